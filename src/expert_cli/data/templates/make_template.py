"""Chooses the chat template for a manifest and a tokenizer: `make_template`.

A run's settings are added around the template, never inside it, and are saved with it beside the adapter:

    {%- macro strftime_now(format) %}...                                         the date used in training
    {%- if messages[0]['role'] != 'system' %}                                    system_prompt: a text
    {%- set messages = [{'role': 'system', 'content': "Be brief."}] + messages %}
    {%- endif %}
    {%- if enable_thinking is not defined %}{%- set enable_thinking = false %}{%- endif %}    chat_template_kwargs
    ... the original template ...
"""

from __future__ import annotations

import datetime as dt
import hashlib
import re
from collections.abc import Mapping
from dataclasses import replace
from importlib.resources import files
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from expert_cli._compat import control_token_pattern
from expert_cli.data.columns import json_text
from expert_cli.data.templates.chat import ANSWERED, ASKED, A, B, Template
from expert_cli.data.templates.mask import common
from expert_cli.errors import InputError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

STYLES = ("alpaca", "chatml", "deepseek", "gemma", "llama", "mistral", "phi", "qwen3")
"""The prompt templates that a manifest can name. Their Jinja texts are in styles/; qwen3 uses chatml's."""
OWN = "the tokenizer's own chat template"
DATE = dt.date(2024, 7, 26)
"""The date that `strftime_now` returns, so that rows do not change from day to day. It is Llama's default."""
_DATES = re.compile(r"""strftime_now\s*\(\s*(['"])(.*?)\1\s*\)""")


def make_template(  # noqa: PLR0913  the parts of a template, passed by name
    name: str,
    tokenizer: PreTrainedTokenizerFast,
    *,
    eos_token: str,
    bos_token: str = "",
    given: str = "",
    system_prompt: str | None = None,
    chat_template_kwargs: Mapping[str, Any] = MappingProxyType({}),
    trains_all: bool = False,
    input_column: str = "",
) -> Template:
    """Choose the template that `name` means for this tokenizer. Raises InputError.

    name: "" = the manifest's own (`given`), else the tokenizer's own chat template, else alpaca. Instead of a named chat
    template, the tokenizer's own is used if it writes the same control tokens. eos_token: ends an answer if the template writes
    no end token. bos_token: the token that the tokenizer puts before a text; it is written once. system_prompt: for
    conversations without one; None: the template's default. chat_template_kwargs: defaults of variables. trains_all: train
    prompts, too. input_column: if it is called schema or context, alpaca's heading is "### Schema:".
    """
    if name and name not in STYLES:
        raise InputError(f"unknown prompt template {name!r}", f"use one of: {', '.join(STYLES)}")
    known = frozenset(tokenizer.added_tokens_encoder)
    if eos_token not in known:
        raise InputError(
            f"the tokenizer's end token {eos_token!r} is not one of its control tokens",
            "without one the model cannot learn to stop: use a base model whose tokenizer has an end token",
        )
    own, style = given or str(tokenizer.chat_template or ""), style_text(name or "alpaca")
    asked = system_prompt, chat_template_kwargs, given, trains_all
    template = Template(name or "alpaca", style, tokenizer, eos_token, bos_token, "\n\n", *asked)
    marks = re.findall(r"<[^\s<>']+>|\[INST\]", style)
    if own and (not name or (marks and all(mark in own for mark in marks))):
        title = f"chat_template_path {hashlib.sha256(given.encode()).hexdigest()[:16]}" if given else OWN
        return _as_trained(replace(template, name=title, jinja=own))
    if missing := [mark for mark in dict.fromkeys(marks) if mark not in known and mark != "[INST]"]:
        told = f"prompt template {template.name!r} needs control tokens that this tokenizer does not have: {' '.join(missing)}"
        raise InputError(told, "leave prompt_template out (the tokenizer's own, else alpaca)")
    if template.name == "alpaca":
        heading = "Schema" if input_column.lower() in ("schema", "context") else "Input"
        template = replace(template, input_separator=f"\n\n### {heading}:\n")
    return _as_trained(template.under(f"{{%- set eos_token = {literal(eos_token)} %}}"))


def style_text(name: str) -> str:
    """Return the Jinja text of a built-in prompt template."""
    file = files("expert_cli.data.templates") / "styles" / f"{'chatml' if name == 'qwen3' else name}.jinja"
    return file.read_text(encoding="utf-8")


def _as_trained(template: Template) -> Template:
    """Return the template with the run's settings added, so that rendering needs no further argument or system message."""
    system, kwargs = template.system_prompt, template.chat_template_kwargs
    control = control_token_pattern(template.tokenizer, template.jinja)
    for key, said in (("system_prompt", system or ""), ("chat_template_kwargs", literal(dict(kwargs)))):
        if found := control.search(said):
            raise InputError(f"{key} holds the control token {found[0]}", "take it out: the template puts its own")
    template.require_read(kwargs)
    defaults = {"enable_thinking": False} if "enable_thinking" in template.jinja else {}
    for name, value in {**defaults, **kwargs}.items():
        put = f"{{%- if {name} is not defined %}}{{%- set {name} = {literal(value)} %}}{{%- endif %}}"
        template = template.under(put)
    if system:
        template = _saying(template, system)
    if "strftime_now" in template.jinja:  # the same text every day
        known = {form: DATE.strftime(form) for _, form in _DATES.findall(template.jinja)}
        told = f"{{{{- {literal(known)}.get(format, '{DATE}') }}}}"
        template = template.under(f"{{%- macro strftime_now(format) %}}{told}{{%- endmacro %}}")
    template = _opened_as_answered(template)
    if template.render(ASKED, generate=True).startswith(template.bos_token):
        return template
    return template.under(f"{{{{- {literal(template.bos_token)} }}}}{{#- BOS #}}")


def _opened_as_answered(template: Template) -> Template:
    r"""Remove from the generation prompt an ending that a conversation with an answer does not have there.

    QwQ opens a think block in the prompt, but writes an answer without one:

        <|im_start|>assistant | <think>         prompt
        <|im_start|>assistant | four<|im_end|>  with the answer
    """
    asked = template.render(ASKED, generate=True)
    opened = asked[common(asked, template.render(ANSWERED)) :]
    if not opened or A in opened:
        return template
    cut = f"add_generation_prompt and conversation.endswith({literal(opened)})"
    end = f"{{% endset %}}{{{{- conversation[:-{len(opened)}] if {cut} else conversation }}}}"
    return replace(template, jinja="{%- set conversation %}\n" + template.jinja.removesuffix("\n") + end)


def _saying(template: Template, text: str) -> Template:
    """Add a system message to conversations without one. Raises InputError if the template refuses or drops it."""

    def with_system(said: str) -> Template:
        put = f"{{%- set messages = [{{'role': 'system', 'content': {literal(said)}}}] + messages %}}"
        return template.under(f"{{%- if messages[0]['role'] != 'system' %}}\n{put}\n{{%- endif %}}")

    written = with_system(B).render(ASKED, generate=True)
    if not re.search(f"{B}.*{A}", written, re.DOTALL):
        told = "the chat template does not show a system message before the user's, so no system_prompt"
        raise InputError(told, 'leave system_prompt out, or set "prompt_template": "alpaca" for this base model')
    return with_system(text)


def literal(value: object) -> str:
    """Return a JSON value as a Jinja literal."""
    return "none" if value is None else json_text(value)
