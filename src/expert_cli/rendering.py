"""Conversations become text: how a chat template, which is somebody else's program, is run."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from expert_cli.errors import InputError

DATE = dt.date(2024, 7, 26)
"""What `strftime_now` calls today, as Llama's templates do without it: rows written tomorrow are those written today."""
RenderChat = Callable[[Sequence[Mapping[str, Any]], bool], str]
"""(messages, add_generation_prompt) -> text."""


class RenderJinja(Protocol):
    """(jinja text, messages, add_generation_prompt) -> text; `tools` where there are some."""

    def __call__(
        self,
        jinja: str,
        messages: Sequence[Mapping[str, Any]],
        add_generation_prompt: bool,
        /,
        *,
        tools: Sequence[Any] = ...,
    ) -> str:
        """Render."""


def render_jinja(
    jinja: str,
    messages: Sequence[Mapping[str, Any]],
    add_generation_prompt: bool,
    /,
    *,
    tools: Sequence[Any] = (),
    variables: Mapping[str, Any] | None = None,
) -> str:
    """Render a template as transformers would, in a sandbox with limits of time and size.

    variables: what else the template may read, such as a tokenizer's `bos_token`. Raises whatever the template raises.
    """
    from expert_cli import jinja_sandbox  # the light side does without jinja2

    settings = {
        **(variables or {}),
        "messages": messages,
        "tools": list(tools) or None,
        "documents": None,
        "add_generation_prompt": add_generation_prompt,
        "strftime_now": DATE.strftime,
    }
    return jinja_sandbox.render(jinja, settings)


def render_safely(render: RenderChat, messages: Sequence[Mapping[str, Any]], add_generation_prompt: bool) -> str:
    """Render; whatever the template raises becomes an InputError that names the roles."""
    try:
        return render(messages, add_generation_prompt)
    except Exception as error:  # it may raise anything
        roles = ", ".join(message["role"] for message in messages)
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
        raise InputError(
            f"the chat template refuses a conversation of {roles}: {reason}",
            'Give the rows the roles it knows, or set another "prompt_template".',
        ) from error
