"""Conversations become text: how a chat template, which is somebody else's program, is run."""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from expert_cli.errors import InputError
from expert_cli.utils.text import first_line

DATE = dt.date(2024, 7, 26)
"""What `strftime_now` calls today, as Llama's templates do without it: rows written tomorrow are those written today."""
MEAN_SECONDS = 0.1
"""Of processor time, for each conversation that a template renders: a data set may have a million. Real ones take 0.001."""
SLACK_SECONDS = 60.0
"""What a template may take beyond that: a few long conversations, one after the other."""
RenderChat = Callable[[Sequence[Mapping[str, Any]], bool], str]
"""(messages, add_generation_prompt) -> text."""
RenderJinja = Callable[..., str]
"""(jinja text, messages, add_generation_prompt) -> text; tools=[...] and what else it is given, where there is some."""
GIVEN = frozenset(("messages", "tools", "documents", "add_generation_prompt", "strftime_now", "variables"))
"""What a template is given by these names already."""


@dataclass
class _Pace:
    """How many conversations a template rendered in this process, and how long that took."""

    count: int = 0
    seconds: float = 0.0

    def require_quick(self) -> None:
        """Raise TemplateLimitError if it was too slow, from then on always: the limit of one conversation bounds no build."""
        from expert_cli.utils.jinja_sandbox import TemplateLimitError

        if self.seconds > SLACK_SECONDS + MEAN_SECONDS * self.count:
            raise TemplateLimitError(
                f"it took {self.seconds:.0f} s for {self.count} conversations, {MEAN_SECONDS:g} s each is the most"
            )


@lru_cache
def _pace(_jinja: str) -> _Pace:
    return _Pace()


def render_jinja(
    jinja: str,
    messages: Sequence[Mapping[str, Any]],
    add_generation_prompt: bool,
    /,
    *,
    tools: Sequence[Any] = (),
    variables: Mapping[str, Any] | None = None,
    **kwargs: Any,
) -> str:
    """Render a template as transformers would, in a sandbox with limits of size and time, for each and for all it renders.

    variables: what else the template may read, such as a tokenizer's `bos_token`. kwargs: what a row gives it. Raises whatever
    the template raises.
    """
    from expert_cli.utils import jinja_sandbox  # the light side does without jinja2

    settings = {
        **(variables or {}),
        **kwargs,
        "messages": messages,
        "tools": list(tools) or None,
        "documents": None,
        "add_generation_prompt": add_generation_prompt,
        "strftime_now": DATE.strftime,
    }
    pace = _pace(jinja)
    pace.require_quick()
    started = time.thread_time()
    try:
        return jinja_sandbox.render(jinja, settings)
    finally:
        pace.seconds += time.thread_time() - started
        pace.count += 1


def render_safely(render: RenderChat, messages: Sequence[Mapping[str, Any]], add_generation_prompt: bool) -> str:
    """Render; whatever the template raises becomes an InputError that names the roles."""
    try:
        return render(messages, add_generation_prompt)
    except Exception as error:  # it may raise anything
        roles = ", ".join(message["role"] for message in messages)
        raise InputError(
            f"the chat template refuses a conversation of {roles}: {first_line(error)}",
            'Give the rows the roles it knows, or set another "prompt_template".',
        ) from error
