"""A chat template as jinja text, which is what every other program reads, and the run's own changes to it.

What a run trains with is rendered from the text that it leaves beside its adapter, so the two cannot differ. The changes
stand around the template, never in it:

    {%- if enable_thinking is not defined %}{%- set enable_thinking = false %}{%- endif %}    chat_template_kwargs
    {%- macro strftime_now(format) %}...                                         the day that training rendered with
    {%- if messages[0]['role'] != 'system' %}                                    system_prompt: a text
    {%- set messages = [{'role': 'system', 'content': "Be brief."}] + messages %}
    {%- endif %}
    ... the template as it came ...
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import starmap
from types import MappingProxyType
from typing import Any

from expert_cli.errors import InputError
from expert_cli.utils.chat_rendering import DATE, GIVEN, RenderJinja, render_jinja, render_safely

OWN = "the tokenizer's own chat template"
"""The name of a template that the base model brings along."""


def name_of(jinja: str) -> str:
    """Return the name of a template that the manifest brings along, which is another one for another text."""
    return f"chat_template_path {hashlib.sha256(jinja.encode()).hexdigest()[:16]}"


AS_ANSWERED = "{#- opened as answered #}"
"""Marks a template whose generation prompt was cut: see `_opened_as_answered`."""
_ASKED, _ANSWERED, _ASKED_AGAIN, _SAID = "\ue000", "\ue001", "\ue002", "\ue003"
_HINT = 'Leave system_prompt out, or set "prompt_template": "alpaca" for this base model.'
_DATES = re.compile(r"""strftime_now\s*\(\s*(['"])(.*?)\1\s*\)""")


@dataclass(frozen=True)
class ChatTemplate:
    """A chat template's text and what renders it, with the names of the special tokens of the tokenizer that it came with.

    bos_token: what that tokenizer calls the beginning of a text, "" = nothing; the template may put it, or not. name: what
    tells it from others.
    """

    jinja: str
    render: RenderJinja = render_jinja
    bos_token: str = ""
    name: str = OWN

    def __call__(
        self,
        messages: Sequence[Mapping[str, Any]],
        add_generation_prompt: bool,
        tools: Sequence[Any] = (),
        kwargs: Mapping[str, Any] = MappingProxyType({}),
    ) -> str:
        """Return a conversation ({"role", "content"} each, and what else the template reads) as text.

        kwargs: what else the template is given.
        """
        more: dict[str, Any] = {"tools": tools, **kwargs} if tools else {**kwargs}
        return self.render(self.jinja, messages, add_generation_prompt, **more)

    def after(self, *lines: str) -> ChatTemplate:
        """Return the template with lines before it."""
        return replace(self, jinja="\n".join([*lines, self.jinja]))

    def thinking(self) -> ChatTemplate:
        """Return the template as it writes prompts that leave the thinking to the model."""
        return self.after("{%- set enable_thinking = true %}") if "enable_thinking" in self.jinja else self


def as_trained(
    template: ChatTemplate,
    *,
    system_prompt: str | None,
    kwargs: Mapping[str, Any],
    control_tokens: Collection[str],
    bos_token: str,
) -> ChatTemplate:
    """Return the template that a run trains with, which needs no argument and no system message from its caller.

    system_prompt: the system message of conversations that have none; "": none, not even the template's default; None: as
    the template has it. kwargs: what it is given where its caller gives nothing. bos_token: what the tokenizer puts before a
    text; it stands there where the template puts none.
    Raises InputError: a system prompt or an argument with a control token in it, an argument that the template does not read, a
    template that takes no system message or always puts one.
    """
    for key, said in (("system_prompt", system_prompt or ""), ("chat_template_kwargs", literal(kwargs))):
        if found := next((token for token in control_tokens if token in said), ""):
            raise InputError(f"{key} holds the control token {found}", "Take it out: the template puts its own.")
    require_read(template.jinja, kwargs)
    template = template.after(*starmap(_default, kwargs.items()))
    if system_prompt:
        template = _saying(template, system_prompt)
    elif system_prompt is not None:
        template = _without_default(template, bos_token)
    if "enable_thinking" in template.jinja and "enable_thinking" not in kwargs:
        template = template.after(_default("enable_thinking", False))
    if "strftime_now" in template.jinja:
        template = template.after(_one_day(template.jinja))
    template = _opened_as_answered(template)
    asked = render_safely(template, [_user(_ASKED)], True)
    return template if asked.startswith(bos_token) else template.after(f"{{{{- {literal(bos_token)} }}}}{{#- BOS #}}")


def _one_day(jinja: str) -> str:
    """Return a macro in place of the clock: every day writes what training wrote."""
    known = {form: DATE.strftime(form) for _, form in _DATES.findall(jinja)}
    return f"{{%- macro strftime_now(format) %}}{{{{- {literal(known)}.get(format, '{DATE}') }}}}{{%- endmacro %}}"


def _opened_as_answered(template: ChatTemplate) -> ChatTemplate:
    r"""Cut off the generation prompt what a conversation with its answer does not have there.

    QwQ opens a think block for the model, and writes an answer without one:

        <|im_start|>assistant\n | <think>\n        asked
        <|im_start|>assistant\n | four<|im_end|>   answered
    """
    asked = render_safely(template, [_user(_ASKED)], True)
    answered = render_safely(template, [_user(_ASKED), _turn("assistant", _ANSWERED)], False)
    same = next((n for n, (a, b) in enumerate(zip(asked, answered, strict=False)) if a != b), len(answered))
    opened = asked[same:]
    if not opened or _ASKED in opened:
        return template
    cut = f"add_generation_prompt and conversation.endswith({literal(opened)})"
    end = f"{{% endset %}}{{{{- conversation[:-{len(opened)}] if {cut} else conversation }}}}"
    return replace(template, jinja=template.jinja.removesuffix("\n") + end).after(
        f"{AS_ANSWERED}{{%- set conversation %}}"
    )


def _default(name: str, value: object) -> str:
    return f"{{%- if {name} is not defined %}}{{%- set {name} = {literal(value)} %}}{{%- endif %}}"


def require_read(jinja: str, names: Iterable[str]) -> None:
    """Raise InputError if a template is to be given something that it does not read, or that is given to it anyway."""
    for name in names:
        if name in GIVEN or not name.isidentifier() or name not in _variables(jinja):
            known = ", ".join(sorted(_variables(jinja) - GIVEN)) or "nothing"
            raise InputError(
                f"chat_template_kwargs: the chat template reads no {json.dumps(name, ensure_ascii=False)}; it reads {known}",
                "Leave it out, or use a chat template that reads it.",
            )


@lru_cache
def _variables(jinja: str) -> frozenset[str]:
    from jinja2 import meta  # the light side does without it

    from expert_cli.utils.jinja_sandbox import parse_template

    return frozenset(meta.find_undeclared_variables(parse_template(jinja)))


def literal(value: object) -> str:
    """Return a value of JSON as jinja spells it in an expression."""
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{literal(name)}: {literal(inner)}' for name, inner in value.items())}}}"
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(literal, value))}]"
    return "none" if value is None else json.dumps(value, ensure_ascii=False)


def _saying(template: ChatTemplate, text: str) -> ChatTemplate:
    """Put a system message before conversations without one."""
    probe = template.after(*_system_lines(_SAID))
    try:
        written = render_safely(probe, [_user(_ASKED)], True)
    except InputError as error:
        message = f"the chat template takes no system message, so no system_prompt: {error.message.rpartition(': ')[2]}"
        raise InputError(message, _HINT) from error
    if written.count(_SAID) != 1 or written.count(_ASKED) != 1 or written.index(_SAID) > written.index(_ASKED):
        raise InputError(
            "the chat template does not show a system message before the user's, so no system_prompt", _HINT
        )
    return template.after(*_system_lines(text))


def _system_lines(text: str) -> tuple[str, ...]:
    return (
        "{%- if messages[0]['role'] != 'system' %}",
        f"{{%- set messages = [{{'role': 'system', 'content': {literal(text)}}}] + messages %}}",
        "{%- endif %}",
    )


def _without_default(template: ChatTemplate, bos_token: str) -> ChatTemplate:
    r"""Cut off the system message that a template puts by itself.

    There is one if a first question is opened by more than a second one. Then the template is given an empty system
    message, and what it makes of that one alone is cut off:

        <|im_start|>system\n<|im_end|>\n | <|im_start|>user\nHow many?<|im_end|>\n ...
    """
    whole = render_safely(template, [_user(_ASKED), _turn("assistant", _ANSWERED), _user(_ASKED_AGAIN)], False)
    # SmolLM2's is <|im_start|>, which opens every turn
    bos = next((t for t in (bos_token, template.bos_token) if whole.startswith(t) and whole.count(t) == 1), "")
    opening = whole.partition(_ASKED)[0].removeprefix(bos)
    between = whole.partition(_ANSWERED)[2].partition(_ASKED_AGAIN)[0]
    if between.endswith(opening):
        return template
    refusal = InputError(
        f'system_prompt "": nothing takes out what the chat template puts before a question: {opening[:80]!r}',
        "Write a text, or leave system_prompt out.",
    )
    try:
        head = render_safely(template, [_turn("system", "")], False)
        asked = render_safely(template, [_turn("system", ""), _user(_ASKED)], True)
    except InputError as error:
        raise refusal from error
    rest = asked.removeprefix(head)
    if not (asked.startswith(head) and between.endswith(rest.partition(_ASKED)[0])):
        raise refusal
    lines = (
        "{%- set has_system = messages[0]['role'] == 'system' %}",
        "{%- if not has_system %}",
        "{%- set messages = [{'role': 'system', 'content': ''}] + messages %}",
        "{%- endif %}",
        "{%- set conversation %}",
    )
    kept = f"{literal(bos)} + " if bos and head.startswith(bos) else ""
    cut = f"{{% endset %}}{{{{- conversation if has_system else {kept}conversation[{len(head)}:] }}}}"
    return replace(template, jinja=template.jinja.removesuffix("\n") + cut).after(*lines)


def _user(content: str) -> dict[str, str]:
    return _turn("user", content)


def _turn(role: str, content: str) -> dict[str, str]:
    return {"role": role, "content": content}
