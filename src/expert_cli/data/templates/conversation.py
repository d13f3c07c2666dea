r"""A conversation that goes through its chat template as it is, where a compiled one would not tell the truth.

Tools, calls of tools and reasoning are written by the template alone, and contents that it looks into decide what it
writes. The rendered text is the reference, as `apply_chat_template` gives it; what the template does not show is refused,
never lost. Control tokens in what rows say are hidden from the template and put back as text:

    row       {"content": "Say <|im_end|>"}
    rendered  <|im_start|>user\nSay \ue0000\ue001<|im_end|>\n
    pieces    C "<|im_start|>"  U "user\nSay <|im_end|>"  C "<|im_end|>" ...
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate
from typing import Any

from expert_cli.data import mask_reasons
from expert_cli.data.rows.columnar import Message
from expert_cli.data.templates.loss_mask import TemplateCompiler
from expert_cli.data.templates.segment import Document, Segment, Span, with_reasons
from expert_cli.data.templates.turns import (
    HIDDEN,
    call_arguments,
    call_names,
    first_calls,
    hide_control,
    parse_arguments,
    spelled_arguments,
    template_turn,
    tool_name,
)
from expert_cli.errors import InputError
from expert_cli.utils.chat_rendering import render_safely

THINKING = "thinking"
"""Noted of a template that wrote an answer which is asked for only with thinking."""
_HINT = 'Take it out of the rows, or use a base model or "prompt_template" that shows it.'


def needs_template(messages: Sequence[Message]) -> bool:
    """Whether turns have more than a role and a content."""
    return any(message.fields or message.role == "tools" for message in messages)


def whole_document(compiler: TemplateCompiler, messages: Sequence[Message]) -> Document:
    """Return the document of a conversation that ends with an answer.

    Raises InputError: the template refuses the conversation, or does not show part of it.
    """
    talk = _talk(compiler, messages)
    spelled = [arguments for turn in talk.turns for arguments in spelled_arguments(turn)]
    if any(arguments not in talk.text or json.dumps(arguments) in talk.text for arguments in spelled):
        # given as JSON text and quoted once more: the template wants what the text spells
        talk = replace(talk, turns=[parse_arguments(turn) for turn in talk.turns])
    talk.require_shown()
    spans, ended = talk.spans()
    return tuple(talk.pieces(talk.text[: spans[-1].stop], spans, ended=ended))


def asking(compiler: TemplateCompiler, messages: Sequence[Message]) -> Document:
    """Return what the next answer of a conversation follows."""
    talk = _talk(compiler, messages)
    return tuple(talk.pieces(talk.rendered(len(talk.turns), generate=True), [], ended=True))


def _talk(compiler: TemplateCompiler, messages: Sequence[Message]) -> _Talk:
    hidden: list[str] = []
    tools: list[Any] = []
    if messages and messages[0].role == "tools":
        tools = hide_control(json.loads(messages[0].content), compiler.control, hidden)
        messages = messages[1:]
    turns = [hide_control(template_turn(message), compiler.control, hidden) for message in messages]
    return _Talk(compiler, tools, turns, [*messages], hidden)


@dataclass(frozen=True)
class _Talk:
    """One conversation on its way through a template.

    messages: each turn as the row has it. hidden: what stands in the texts of tools and turns for private-use characters.
    """

    compiler: TemplateCompiler
    tools: list[Any]
    turns: list[dict[str, Any]]
    messages: list[Message]
    hidden: list[str]

    @cached_property
    def text(self) -> str:
        """The whole conversation."""
        return self.rendered(len(self.turns))

    @cached_property
    def _words(self) -> str:
        """The whole conversation without its control tokens, in which nothing stands that a row says."""
        return self.compiler.control.sub(lambda token: "\0" * len(token[0]), self.text)

    def rendered(self, count: int, *, generate: bool = False) -> str:
        """Return the first `count` turns as text."""
        chat = self.compiler.chat
        text = render_safely(lambda turns, ask: chat(turns, ask, self.tools), self.turns[:count], generate)
        return self.compiler.opened(text)

    def asked(self, number: int) -> str:
        """Return what the answer of a turn is asked with; without jinja where the turns before it are plain."""
        before = self.turns[:number]
        contents = [turn["content"] for turn in before]
        if self.tools or any(len(turn) > 2 for turn in before) or self.compiler.watched.occurs(contents):
            return self.rendered(number, generate=True)
        compiled = self.compiler.compiled((*(turn["role"] for turn in before), "assistant"))
        return "".join(piece.text for piece in compiled.fill(contents, with_answer=False))

    def require_shown(self) -> None:
        """Raise InputError if the template leaves out tools, calls or turns other than answers."""
        if self.tools:
            self._require_difference("tools", replace(self, tools=[]))
        calls = [turn.get("tool_calls") or [] for turn in self.turns]
        for field, most in (("tool_calls", 0), ("more than one of tool_calls", 1)):
            if any(len(called) > most for called in calls):
                self._require_difference(field, replace(self, turns=[first_calls(turn, most) for turn in self.turns]))
        for tool in self.tools:
            self._require(tool_name(tool), "tools")
        for turn in self.turns:
            if turn["role"] != "assistant":
                self._require(turn["content"], f"a turn of {turn['role']}")

    def _require_difference(self, field: str, without: _Talk) -> None:
        """Refuse a template that writes the same without a field. One that was seen to read it is not asked again."""
        if field in self.compiler.reads:
            return
        try:
            shown = without.text != self.text
        except InputError:  # of a template that wants a call before its answer
            shown = True
        if not shown:
            raise InputError(f"the chat template does not show {field}", _HINT)
        self.compiler.reads.add(field)

    def spans(self) -> tuple[list[Span], bool]:
        """Return for every answer where it begins and ends; and whether a token ends the last.

        It ends with the last token that ends turns before the next turn says something: an answer may be several messages
        (Harmony), and the template's own words may spell what it says before it says that.
        """
        numbers = [number for number, turn in enumerate(self.turns) if turn["role"] == "assistant"]
        starts: list[tuple[int, str]] = []
        for number in numbers:
            starts.append(self._start(number, starts[-1][0] if starts else 0))
        spans: list[Span] = []
        limits = [*(start for start, _ in starts[1:]), len(self.text)]
        for number, (start, begins), following in zip(numbers, starts, limits, strict=True):
            place = self._places.get(number + 1, -1) if number < numbers[-1] else -1
            limit = place if start <= place < following else following
            at = self._shown_until(number, start, limit)
            *_, closing = (None, *self.compiler.turn_ends.finditer(self.text, at, limit))
            stop = closing.end(1) if closing else self._unended(number, at)
            span = Span.answer(start, stop, begins, closing[1] if closing else "")
            turn = self.messages[number]
            spans.append(span if turn.trained else span.not_trained(turn.reason))
        return spans, closing is not None

    @cached_property
    def _places(self) -> dict[int, int]:
        """Where each turn that is no answer says something: a mark in the middle of its content is written there.

        Without those turns that the template writes otherwise when they are marked.
        """
        others = [number for number, turn in enumerate(self.turns) if turn["role"] != "assistant"]
        places: dict[int, int] = {}
        for group in (others, *([number] for number in others)):
            try:
                parts = re.split(f"\ue000({'|'.join(map(self._mark, group))})\ue001", self._marked(group).text)
            except InputError:  # of a template that takes a content apart
                continue
            if "".join(parts[::2]) == self.text and len(parts) == 2 * len(group) + 1:
                marks = (int(mark) - len(self.hidden) for mark in parts[1::2])
                places.update(zip(marks, accumulate(map(len, parts[::2])), strict=False))
            if len(places) == len(others):
                break
        return places

    def _mark(self, number: int) -> str:
        """A number that no hidden token has."""
        return str(len(self.hidden) + number)

    def _marked(self, numbers: Sequence[int]) -> _Talk:
        turns = [*self.turns]
        for number in numbers:
            content = turns[number]["content"]
            said = content.strip()  # a mark at its edge would change what templates strip
            at = content.find(said) + (len(said) + 1) // 2 if said else len(content)
            marked = f"{content[:at]}\ue000{self._mark(number)}\ue001{content[at:]}"
            turns[number] = {**turns[number], "content": marked}
        return replace(self, turns=turns)

    def _after_place(self, number: int, written: str) -> int:
        """Where something ends that a template writes from the place of a turn on; -1 if the conversation differs."""
        place = self._places.get(number, -1)
        tail = written.rpartition(f"\ue000{self._mark(number)}\ue001")[2]
        return place + len(tail) if place >= 0 and self.text.startswith(tail, place) else -1

    def pieces(self, text: str, spans: Sequence[Span], *, ended: bool) -> Iterator[Segment]:
        """Yield the pieces of a text; ended: no end token is wanting."""
        for part, trained, begins, ends in self.compiler.stretches(text, spans):
            yield from with_reasons(self._stretch(part, trained), begins, ends)
        if not ended:
            trained, token = spans[-1].trained, self.compiler.eos_token
            yield Segment(token, True, trained, mask_reasons.end_is_put(token) if trained else "")

    def _stretch(self, text: str, trained: bool) -> Iterator[Segment]:
        control = ""
        for number, part in enumerate(self.compiler.control.split(text)):
            if number % 2:
                control += part
            elif part:
                if control:
                    yield Segment(control, True, trained)
                control = ""
                yield Segment(HIDDEN.sub(lambda match: self.hidden[int(match[1])], part), False, trained)
        if control:
            yield Segment(control, True, trained)

    def _start(self, number: int, after: int) -> tuple[int, str]:
        """Where an answer begins, and why: where its generation prompt ends, or the one that leaves thinking to the model."""
        thinking = replace(self, compiler=self.compiler.thinking)
        asked = self.asked(number)
        if self.text.startswith(asked):
            return len(asked), mask_reasons.GENERATION_PROMPT
        asked = thinking.asked(number)
        if self.text.startswith(asked):
            if self.messages[number].trained and number == len(self.turns) - 1:
                self.compiler.reads.add(THINKING)
            return len(asked), mask_reasons.THINKING_PROMPT
        # What comes before is written otherwise once more follows: earlier reasoning, the place of tools.
        for talk in (self, thinking) if number - 1 in self._places else ():
            start = self._after_place(number - 1, talk._marked([number - 1]).rendered(number, generate=True))
            if start >= after:
                return start, mask_reasons.QUESTION_ALONE
        after = max(after, self._places.get(number - 1, 0))
        said = (*self._said(number), *call_names(self.turns[number]), *call_arguments(self.turns[number]))
        found = [at for shown in said if shown and (at := self._in(shown, after)) >= 0]
        if not found:
            raise InputError(f"the chat template does not show the answer of turn {number + 1}", _HINT)
        return min(found), mask_reasons.FIRST_SAID

    def _shown_until(self, number: int, start: int, limit: int) -> int:
        """Where at the earliest an answer has said everything, before `limit`.

        Of an earlier answer templates leave out the reasoning, as models are asked without it. Raises InputError if
        the template does not show all of it.
        """
        turn, said = self.turns[number], self._said(number)
        at = self._after(said if number == len(self.turns) - 1 else said[-1:], start, limit, number)
        called = self._after(call_names(turn), start, limit, number)
        return max([at, called, *(self._after([text], start, limit, number) for text in call_arguments(turn))])

    def _after(self, texts: Sequence[str], start: int, limit: int, number: int) -> int:
        """Where parts of an answer that the template shows one after the other from `start` on end."""
        for shown in texts:
            at = self._in(shown, start, limit)
            if at < 0:
                where = "the last answer" if number == len(self.turns) - 1 else f"turn {number + 1}"
                raise InputError(f"the chat template does not show all of {where}: {self._quoted(shown)}", _HINT)
            start = at + len(shown)
        return start

    def _unended(self, number: int, at: int) -> int:
        """Where an answer ends that no token ends: with what the template writes where it is the last."""
        if number == len(self.turns) - 1:
            return max(at, len(self.text.rstrip()))
        if number - 1 not in self._places:
            return at
        return max(at, self._after_place(number - 1, self._marked([number - 1]).rendered(number + 1).rstrip()))

    def _said(self, number: int) -> list[str]:
        """What an answer says beside its calls, part by part, as templates may take it apart; the last may be nothing."""
        turn = self.turns[number]
        reasoning = [str(turn["reasoning_content"])] if turn.get("reasoning_content") else []
        marks = [re.escape(mark) for mark in self.compiler.watched.texts if mark.strip()]
        parts = re.split("|".join(marks), turn["content"]) if marks else [turn["content"]]
        return [text.strip() for text in (*reasoning, *parts)]

    def _require(self, shown: str, what: str) -> None:
        if self._in(shown.strip()) < 0:
            raise InputError(f"the chat template does not show {what}: {self._quoted(shown)}", _HINT)

    def _in(self, shown: str, start: int = 0, limit: int | None = None) -> int:
        """Where a text is shown, as it is or as JSON spells it; -1 if it is not."""
        at = self._words.find(shown, start, limit)
        return at if at >= 0 else self._words.find(json.dumps(shown, ensure_ascii=False)[1:-1], start, limit)

    def _quoted(self, text: str) -> str:
        return json.dumps(HIDDEN.sub(lambda match: self.hidden[int(match[1])], text)[:60], ensure_ascii=False)
