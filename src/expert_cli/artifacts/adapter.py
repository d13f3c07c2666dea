"""The folder `adapter/` of a run: weights, the tokenizer with the run's chat template, how it is loaded and asked, the card."""

from __future__ import annotations

from typing import TYPE_CHECKING

from expert_cli.artifacts.loading_code import SECTION, adapter_lines, write_base
from expert_cli.artifacts.model_card import (
    HOW_ASKED,
    TRAINED_FROM,
    asked_lines,
    model_card,
    put_section,
    trained_from_lines,
)
from expert_cli.config.adapter_origin import EXPERT_CONFIG
from expert_cli.config.plan import Plan
from expert_cli.inference.expert import PromptRenderer
from expert_cli.inference.expert_config import decoding_of, expert_config
from expert_cli.model.loading.sources import LocalModel
from expert_cli.runs.fit_result import FitResult
from expert_cli.runs.metrics import part, read_json
from expert_cli.runs.paths import RunPaths
from expert_cli.utils.files import json_text, remove, sha256_of, sync_folder, write_text

if TYPE_CHECKING:
    from peft import PeftModel


def save_adapter(
    model: PeftModel,
    source: LocalModel,
    renderer: PromptRenderer,
    plan: Plan,
    done: FitResult | None,
    paths: RunPaths,
    separators: tuple[str, str],
) -> str:
    """Write the adapter folder beside its place and rename it; return the hash of its weights.

    separators: of the JSON that was trained. The adapter's tokenizer writes prompts as training did, whatever chat template the
    base model has.
    """
    beside = paths.adapter.with_name(".adapter.tmp")
    remove(beside)  # of a run that was killed here
    model.save_pretrained(str(beside), safe_serialization=True)
    write_base(beside, plan.run, source, renderer.template.fingerprint)
    asked = expert_config(decoding_of(plan.loaded.manifest, separators), renderer, plan.run.data.schema_prompt)
    write_text(beside / EXPERT_CONFIG, json_text(asked.as_json()))
    renderer.tokenizer.hf.chat_template = renderer.template.jinja
    renderer.tokenizer.hf.save_pretrained(beside)
    write_text(beside / "README.md", model_card(plan, done))
    if told := part(read_json(paths.run_json), "init_adapter"):
        put_section(beside / "README.md", TRAINED_FROM, trained_from_lines(told))
    put_section(beside / "README.md", HOW_ASKED, asked_lines(asked))
    put_section(beside / "README.md", SECTION, adapter_lines(plan.run, source, asked))
    sync_folder(beside)
    remove(paths.adapter)
    beside.rename(paths.adapter)
    return sha256_of(paths.adapter / "adapter_model.safetensors")
