"""A chat template, rendered once for a sequence of roles and cut where the contents go.

Private-use characters stand in for the contents, so that rows never pass through jinja and nothing in them can become
a control token. What stands between two control tokens is one piece, as the tokenizer sees it at inference; only the
border between prompt and answer always cuts. Rows that hold what the template looks for are rendered one by one instead:
`conversation.py`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from operator import attrgetter
from typing import NamedTuple

from expert_cli.data import mask_reasons
from expert_cli.data.rows.columnar import Message
from expert_cli.data.templates.chat_template import ChatTemplate
from expert_cli.data.templates.compiled_template import CompiledTemplate, Slot
from expert_cli.data.templates.segment import Segment, Span, TurnMask, with_reasons
from expert_cli.data.templates.text_forms import FORMS, TURN_ENDS, any_of
from expert_cli.data.templates.trained import TrainedTurns
from expert_cli.data.templates.watched import Watched, watched_by
from expert_cli.errors import InputError
from expert_cli.utils.chat_rendering import render_safely

_PLACE = re.compile("\ue000(\\d+)\ue001")
# The probe has a tab on either side of each place, which tells whether the template trims what it is given.
_PROBE = re.compile("(\t?)\ue000(\\d+)\ue001(\t?)")
_STRIPS = {(False, False): str.strip, (False, True): str.lstrip, (True, False): str.rstrip}
"""By whether the template left the tab before a place, and the one after it."""
_ANYTHING = "one \"two\" 'three' <b> & \\ {4} %s ~\n\tFive"
"""A content with what templates might escape."""


class Stretch(NamedTuple):
    """What stands between answers, or one of these. begins, ends: the reasons at its first piece, and at its end token."""

    text: str
    trained: bool
    begins: str
    ends: str


@dataclass(frozen=True)
class TemplateCompiler:
    """Compiles a template; `chat` is the template as it is trained with, the tokens are the tokenizer's, trained: which turns.

    reads: the fields of conversations that the template was seen to read.
    """

    chat: ChatTemplate
    control_tokens: frozenset[str]
    eos_token: str
    bos_token: str
    trained: TrainedTurns
    reads: set[str] = field(default_factory=set, repr=False, compare=False)

    @cached_property
    def compiled(self) -> Callable[..., CompiledTemplate]:
        """`compile`, done once for the same arguments."""
        return cache(self.compile)

    @cached_property
    def thinking(self) -> TemplateCompiler:
        """The same of prompts that leave the thinking to the model; itself where the template makes no difference."""
        chat = self.chat.thinking()
        return self if chat == self.chat else replace(self, chat=chat)

    def compile(self, roles: tuple[str, ...], masks: tuple[TurnMask, ...] = ()) -> CompiledTemplate:
        """Return the template compiled for `roles`, the last of which is the answer's; `masks`: of each, () = by role.

        The document is what the template renders for the whole conversation, up to the end token of the last answer. An
        answer begins where the generation prompt ends, so what the template puts between the two is the answer's; where
        the generation prompt is no beginning of the document, with the content, as another's turn does. Raises InputError if
        the template refuses the roles or does not show every message exactly once.
        """
        messages = [{"role": role, "content": f"\t{_place(i)}\t"} for i, role in enumerate(roles)]
        trims: dict[int, Callable[[str], str]] = {}
        asked = self.opened(self._probe(messages[:-1], True, trims))
        full = self.opened(self._probe(messages, False, trims))
        last = len(roles) - 1
        end = self.control.search(full, full.index(_place(last)))
        end_token = end[0] if end else self.eos_token
        text = full[: end.end()] if end else full.rstrip() + self.eos_token
        gap = text[len(asked) : text.index(_place(last))] if text.startswith(asked) else ""
        masks = masks or self.trained.of_turns([Message(role, "") for role in roles])
        spans = [
            self._span(text, messages, i, gap, end_token, masks[i])
            for i, role in enumerate(roles)
            if role == "assistant" or masks[i].trained
        ]
        if not end and spans[-1].trained:
            spans[-1] = spans[-1]._replace(ends=mask_reasons.end_is_put(end_token))
        spans.sort(key=attrgetter("start"))
        whole = self._cut(text, spans)
        prompt = self._cut(asked, [span for span in spans if span.stop <= len(asked)])
        return CompiledTemplate(prompt, whole, trims, end_token)

    @cached_property
    def watched(self) -> Watched:
        """What the template looks for in contents."""
        return watched_by(self.chat.jinja) if self.as_given(("user", "assistant")) else Watched(everything=True)

    @cached_property
    def as_given(self) -> Callable[[tuple[str, ...]], bool]:
        """Whether the template writes the contents of a conversation of some roles as they are; asked once."""
        return cache(self._writes_as_given)

    def _writes_as_given(self, roles: tuple[str, ...]) -> bool:
        contents = [f"{_ANYTHING}{i}" for i in range(len(roles))]
        compiled = self.compiled(roles)
        filled = "".join(segment.text for segment in compiled.fill(contents, with_answer=True))
        turns = [{"role": role, "content": text} for role, text in zip(roles, contents, strict=True)]
        return self.opened(render_safely(self.chat, turns, False)).startswith(filled.removesuffix(compiled.end_token))

    def _span(
        self, text: str, messages: list[dict[str, str]], number: int, gap: str, end_token: str, mask: TurnMask
    ) -> Span:
        """Where a turn begins and ends, its end token included: an answer behind its prompt, another's with its content."""
        place = text.index(_place(number))
        stop = place + len(_place(number))
        closing = self.control.search(text, stop)
        token = ""
        if closing and closing[0] in {end_token, *self._ends} and not _PLACE.search(text, stop, closing.start()):
            stop, token = closing.end(), closing[0]
        start, begins = self._begins(text, messages, number, gap)
        return Span.of_turn(messages[number]["role"], mask, start, stop, begins, token)

    def _begins(self, text: str, messages: list[dict[str, str]], number: int, gap: str) -> tuple[int, str]:
        """Where a turn begins, and why there, if it is an answer."""
        place = text.index(_place(number))
        if messages[number]["role"] != "assistant":
            return place, ""
        try:
            asked = self.opened(_PROBE.sub(_place(r"\2"), render_safely(self.chat, messages[:number], True)))
        except InputError:
            asked = text
        if text.startswith(asked) and len(asked) <= place:
            return len(asked), mask_reasons.GENERATION_PROMPT
        if gap and text[:place].endswith(gap):
            return place - len(gap), mask_reasons.OPENING
        return place, mask_reasons.CONTENT

    def _probe(self, messages: list[dict[str, str]], generate: bool, trims: dict[int, Callable[[str], str]]) -> str:
        """Render; check that every message is there exactly once and note in `trims` which ones are stripped."""
        text = render_safely(self.chat, messages, generate)
        matches = list(_PROBE.finditer(text))
        if sorted(int(match[2]) for match in matches) != list(range(len(messages))):
            roles = ", ".join(message["role"] for message in messages)
            raise InputError(
                f"the chat template does not show each message of a conversation of {roles} once, as it was given",
                'Set another "prompt_template": with this one rows would lose, repeat or change text.',
            )
        trims.update({int(m[2]): _STRIPS[bool(m[1]), bool(m[3])] for m in matches if not (m[1] and m[3])})
        return _PROBE.sub(_place(r"\2"), text)

    def opened(self, text: str) -> str:
        """Return a rendered text with what the tokenizer puts before each."""
        return text if text.startswith(self.bos_token) else self.bos_token + text

    def _cut(self, text: str, spans: Sequence[Span]) -> tuple[Segment | Slot, ...]:
        """Cut a conversation where its answers begin and end, and each stretch as `_pieces` does."""
        return tuple(
            piece
            for part, trained, begins, ends in self.stretches(text, spans)
            for piece in with_reasons(self._pieces(part, trained), begins, ends)
        )

    def stretches(self, text: str, spans: Sequence[Span]) -> Iterator[Stretch]:
        """Yield what stands between turns, and these."""
        everything = not self.trained.completion_only
        at, reason = 0, mask_reasons.PROMPT
        for span in spans:
            yield Stretch(text[at : span.start], everything, mask_reasons.EVERYTHING if everything else reason, "")
            yield Stretch(text[span.start : span.stop], span.trained, span.begins, span.ends)
            at, reason = span.stop, span.after
        yield Stretch(text[at:], everything, mask_reasons.EVERYTHING if everything else reason, "")

    def _pieces(self, text: str, trained: bool) -> Iterator[Segment | Slot]:
        """Cut a stretch at its control tokens, keeping together what no row's text stands between."""
        constant = ""
        for part in self.control.split(text):
            around = _PLACE.split(part)
            if len(around) == 1:
                constant += part
                continue
            if constant:
                yield Segment(constant, True, trained)
            constant = ""
            parts = (int(p) if n % 2 else p for n, p in enumerate(around))
            yield Slot(tuple(p for p in parts if p != ""), trained)
        if constant:
            yield Segment(constant, True, trained)

    @cached_property
    def control(self) -> re.Pattern[str]:
        """Finds the control tokens in a text, the longest of several."""
        return re.compile(f"({any_of(self.control_tokens)})")

    @cached_property
    def turn_ends(self) -> re.Pattern[str]:
        """Finds tokens that end a turn, each with those that stand right behind it; the first is group 1."""
        one = any_of(self._ends | {self.compiled(("user", "assistant")).end_token} & self.control_tokens)
        return re.compile(f"({one})(?:\\s*(?:{one}))*")

    @cached_property
    def _ends(self) -> frozenset[str]:
        """The control tokens that end turns."""
        ends = TURN_ENDS.union(*(form.ends for form in FORMS.values() if form.hint in self.control_tokens))
        return (ends | {self.eos_token}) & self.control_tokens


def _place(number: int | str) -> str:
    return f"\ue000{number}\ue001"
