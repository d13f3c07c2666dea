"""The base model of a run: its folder on this machine, its tokenizer, and how its prompts are written."""

from __future__ import annotations

from pathlib import Path

from expert_cli.console import Reporter
from expert_cli.data.chat_template import ChatTemplate
from expert_cli.data.encode import template_for
from expert_cli.data.templates import Template
from expert_cli.model.sources import LocalModel, locate
from expert_cli.model.tokenizer import TokenizerInfo
from expert_cli.paths import cache_folder
from expert_cli.runconfig import RunConfig


def locate_base(run: RunConfig, report: Reporter) -> LocalModel:
    """Return the base model of a run, fetched if need be. Raises InputError, EnvironmentProblem, LockedOrDamaged."""
    return locate(
        run.model.name,
        search=(run.manifest.parent, run.root, Path.cwd()),
        sha256=run.model.sha256,
        cache=cache_folder(),
        offline=run.data.offline,
        report=report,
    )


def prompt_template(run: RunConfig, tokenizer: TokenizerInfo, input_column: str) -> Template:
    """Return how a run writes its rows down; alpaca heads the input by what its column is called."""
    own = None
    if tokenizer.has_chat_template:
        own = ChatTemplate(tokenizer.hf.get_chat_template(), tokenizer.render, tokenizer.hf.bos_token or "")
    return template_for(
        tokenizer.backend,
        run.model.template,
        own=own,
        eos_token=tokenizer.eos_token,
        system_prompt=run.model.system_prompt,
        completion_only=run.data.completion_only,
        input_column=input_column,
    )
