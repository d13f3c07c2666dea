r"""A conversation that goes through its chat template as it is, where a skeleton would not tell the truth.

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
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar, cast

from expert_cli.data.rows.columnar import Message
from expert_cli.data.templates.loss_mask import TemplateCompiler
from expert_cli.data.templates.segment import Document, Segment
from expert_cli.data.templates.text_forms import TURN_ENDS
from expert_cli.errors import InputError
from expert_cli.utils.chat_rendering import render_safely

T = TypeVar("T")
_HIDDEN = re.compile("\ue000(\\d+)\ue001")
_REASONING = ("reasoning_content", "thinking", "reasoning")
THINKING = "thinking"
"""Noted of a template that wrote an answer which is asked for only with thinking."""
_HINT = 'Take it out of the rows, or use a base model or "prompt_template" that shows it.'


def needs_template(messages: Sequence[Message]) -> bool:
    """Whether turns have more than a role and a content."""
    return any(message.fields or message.role == "tools" for message in messages)


def whole_document(carver: TemplateCompiler, messages: Sequence[Message]) -> Document:
    """Return the document of a conversation that ends with an answer.

    Raises InputError: the template refuses the conversation, or does not show part of it.
    """
    talk = _talk(carver, messages)
    text = talk.rendered(len(talk.turns))
    if any(spelled not in text for turn in talk.turns for spelled in _spelled_arguments(turn)):
        # given as JSON text and quoted once more: the template wants what the text spells
        talk = replace(talk, turns=[_parsed_arguments(turn) for turn in talk.turns])
        text = talk.rendered(len(talk.turns))
    talk.require_shown(text)
    spans, ended = talk.spans(text)
    return tuple(talk.pieces(text[: spans[-1][2]], spans, ended=ended))


def asking(carver: TemplateCompiler, messages: Sequence[Message]) -> Document:
    """Return what the next answer of a conversation follows."""
    talk = _talk(carver, messages)
    return tuple(talk.pieces(talk.rendered(len(talk.turns), generate=True), [], ended=True))


def _talk(carver: TemplateCompiler, messages: Sequence[Message]) -> _Talk:
    hidden: list[str] = []
    tools: list[Any] = []
    if messages and messages[0].role == "tools":
        tools = _hide(json.loads(messages[0].content), carver.control, hidden)
        messages = messages[1:]
    turns = [_hide(_turn(message), carver.control, hidden) for message in messages]
    return _Talk(carver, tools, turns, [message.trained for message in messages], hidden)


@dataclass(frozen=True)
class _Talk:
    """One conversation on its way through a template.

    trained: of each turn. hidden: what stands in the texts of tools and turns for private-use characters.
    """

    carver: TemplateCompiler
    tools: list[Any]
    turns: list[dict[str, Any]]
    trained: list[bool]
    hidden: list[str]

    def rendered(self, count: int, *, generate: bool = False) -> str:
        """Return the first `count` turns as text."""
        chat, bos = self.carver.chat, self.carver.bos_token
        text = render_safely(lambda turns, ask: chat(turns, ask, self.tools), self.turns[:count], generate)
        return text if text.startswith(bos) else bos + text

    def asked(self, number: int) -> str:
        """Return what the answer of a turn is asked with; without jinja where the turns before it are plain."""
        before = self.turns[:number]
        contents = [turn["content"] for turn in before]
        if self.tools or any(len(turn) > 2 for turn in before) or self.carver.watched.occurs(contents):
            return self.rendered(number, generate=True)
        skeleton = self.carver.skeleton((*(turn["role"] for turn in before), "assistant"))
        return "".join(piece.text for piece in skeleton.fill(contents, with_answer=False))

    def require_shown(self, text: str) -> None:
        """Raise InputError if the template leaves out tools, calls or turns other than answers."""
        if self.tools:
            self._require_difference("tools", replace(self, tools=[]), text)
        if any("tool_calls" in turn for turn in self.turns):
            without = [{name: turn[name] for name in turn if name != "tool_calls"} for turn in self.turns]
            self._require_difference("tool_calls", replace(self, turns=without), text)
        for tool in self.tools:
            self._require(text, _named(tool), "tools")
        for turn in self.turns:
            if turn["role"] != "assistant":
                self._require(text, turn["content"], f"a turn of {turn['role']}")

    def _require_difference(self, field: str, without: _Talk, text: str) -> None:
        """Refuse a template that writes the same without a field. One that was seen to read it is not asked again."""
        if field in self.carver.reads:
            return
        if without.rendered(len(self.turns)) == text:
            raise InputError(f"the chat template does not show {field}", _HINT)
        self.carver.reads.add(field)

    def spans(self, text: str) -> tuple[list[tuple[bool, int, int]], bool]:
        """Return for every answer whether it is trained, where it begins and ends; and whether a token ends the last."""
        numbers = [number for number, turn in enumerate(self.turns) if turn["role"] == "assistant"]
        starts: list[int] = []
        for number in numbers:
            starts.append(self._start(text, number, starts[-1] if starts else 0))
        last = self.carver.control.search(text, self._stop(text, numbers[-1], starts[-1], len(text)))
        ends = TURN_ENDS | {last[0]} if last else TURN_ENDS
        stops = [last.end() if last else len(text.rstrip())]
        for number, start, following in zip(
            reversed(numbers[:-1]), reversed(starts[:-1]), reversed(starts), strict=False
        ):
            limit = self._limit(text, number, start, following)
            stop = self._stop(text, number, start, limit)
            closing = self.carver.control.search(text, stop, limit)
            stops.append(closing.end() if closing and closing[0] in ends else stop)
        return [(self.trained[n], a, b) for n, a, b in zip(numbers, starts, reversed(stops), strict=True)], bool(last)

    def _limit(self, text: str, number: int, start: int, following: int) -> int:
        """Where the turn after an answer says something; `following`: where the next answer begins."""
        said = self.turns[number + 1]["content"].strip()
        at = text.rfind(said, start, following) if said else -1
        return at if at >= 0 else following

    def pieces(self, text: str, spans: Sequence[tuple[bool, int, int]], *, ended: bool) -> Iterator[Segment]:
        """Yield the pieces of a text; ended: no end token is wanting."""
        everything = not self.carver.completion_only
        at = 0
        for trained, start, stop in spans:
            yield from self._stretch(text[at:start], everything)
            yield from self._stretch(text[start:stop], trained)
            at = stop
        yield from self._stretch(text[at:], everything)
        if not ended:
            yield Segment(self.carver.eos_token, True, spans[-1][0])

    def _stretch(self, text: str, trained: bool) -> Iterator[Segment]:
        control = ""
        for number, part in enumerate(self.carver.control.split(text)):
            if number % 2:
                control += part
            elif part:
                if control:
                    yield Segment(control, True, trained)
                control = ""
                yield Segment(_HIDDEN.sub(lambda match: self.hidden[int(match[1])], part), False, trained)
        if control:
            yield Segment(control, True, trained)

    def _start(self, text: str, number: int, after: int) -> int:
        """Where an answer begins: where its generation prompt ends, be it one that leaves the thinking to the model."""
        asked = self.asked(number)
        if text.startswith(asked):
            return len(asked)
        asked = replace(self, carver=self.carver.thinking).asked(number)
        if text.startswith(asked):
            if self.trained[number] and number == len(self.turns) - 1:
                self.carver.reads.add(THINKING)
            return len(asked)
        said = (*self._said(number), *_call_texts(self.turns[number]))
        texts = [shown for shown in said if shown and self._in(text, shown, after) >= 0]
        if not texts:
            raise InputError(f"the chat template does not show the answer of turn {number + 1}", _HINT)
        return min(self._in(text, shown, after) for shown in texts)

    def _stop(self, text: str, number: int, start: int, limit: int) -> int:
        """Where what an answer says ends, before `limit`. Raises InputError if the template does not show all of it.

        Of an earlier answer templates leave out the reasoning, as models are asked without it.
        """
        said, calls = self._said(number), _call_texts(self.turns[number])
        at = start
        for shown in said if number == len(self.turns) - 1 else said[-1:]:
            at = self._after(text, shown, at, limit, number)
        return max([at, *(self._after(text, shown, start, limit, number) for shown in calls)])

    def _after(self, text: str, shown: str, start: int, limit: int, number: int) -> int:
        """Where a part of an answer that the template shows from `start` on ends."""
        at = self._in(text[:limit], shown, start)
        if at < 0:
            where = "the last answer" if number == len(self.turns) - 1 else f"turn {number + 1}"
            raise InputError(f"the chat template does not show all of {where}: {self._quoted(shown)}", _HINT)
        return at + len(shown)

    def _said(self, number: int) -> list[str]:
        """What an answer says beside its calls, part by part, as templates may take it apart; the last may be nothing."""
        turn = self.turns[number]
        reasoning = [str(turn["reasoning_content"])] if turn.get("reasoning_content") else []
        marks = [re.escape(mark) for mark in self.carver.watched.texts if mark.strip()]
        parts = re.split("|".join(marks), turn["content"]) if marks else [turn["content"]]
        return [text.strip() for text in (*reasoning, *parts)]

    def _require(self, text: str, shown: str, what: str) -> None:
        if self._in(text, shown.strip()) < 0:
            raise InputError(f"the chat template does not show {what}: {self._quoted(shown)}", _HINT)

    def _in(self, text: str, shown: str, start: int = 0) -> int:
        """Where a text is shown, as it is or as JSON spells it; -1 if it is not."""
        at = text.find(shown, start)
        return at if at >= 0 else text.find(json.dumps(shown, ensure_ascii=False)[1:-1], start)

    def _quoted(self, text: str) -> str:
        return json.dumps(_HIDDEN.sub(lambda match: self.hidden[int(match[1])], text)[:60], ensure_ascii=False)


def _turn(message: Message) -> dict[str, Any]:
    more = json.loads(message.fields) if message.fields else {}
    reasoning = next((more[name] for name in _REASONING if name in more), None)
    if reasoning is not None:  # under the names that templates read, as transformers gives it
        more = {"thinking": reasoning, **more, "reasoning_content": reasoning}
    return {"role": message.role, "content": message.content, **more}


def _hide(value: T, control: re.Pattern[str], hidden: list[str]) -> T:
    """Return a value of JSON with private-use characters in place of the control tokens in its texts."""

    def place(match: re.Match[str]) -> str:
        hidden.append(match[0])
        return f"\ue000{len(hidden) - 1}\ue001"

    def inner(part: Any) -> Any:
        if isinstance(part, str):
            return control.sub(place, _HIDDEN.sub(place, part))
        if isinstance(part, list):
            return list(map(inner, part))
        return {inner(name): inner(value) for name, value in part.items()} if isinstance(part, dict) else part

    return cast("T", inner(value))


def _calls(turn: Mapping[str, Any]) -> list[Any]:
    """The functions that an answer calls, with their arguments."""
    return [call.get("function") or call for call in turn.get("tool_calls") or ()]


def _named(tool: Any) -> str:
    """The name of a tool, "" without one."""
    function = tool.get("function") or tool if isinstance(tool, dict) else {}
    return str(function.get("name", "")) if isinstance(function, dict) else ""


def _spelled_arguments(turn: Mapping[str, Any]) -> list[str]:
    return [call["arguments"] for call in _calls(turn) if isinstance(call.get("arguments"), str)]


def _parsed_arguments(turn: dict[str, Any]) -> dict[str, Any]:
    """The turn with what its calls' arguments spell, where that is an object."""
    if not _spelled_arguments(turn):
        return turn
    return {**turn, "tool_calls": [_parsed_call(call) for call in turn["tool_calls"]]}


def _parsed_call(call: dict[str, Any]) -> dict[str, Any]:
    if "function" in call:
        return {**call, "function": _parsed_call(call["function"])}
    try:
        arguments = json.loads(call["arguments"])
    except (ValueError, TypeError, KeyError):
        return call
    return {**call, "arguments": arguments} if isinstance(arguments, dict) else call


def _call_texts(turn: Mapping[str, Any]) -> list[str]:
    """The names and the texts of the calls of an answer."""
    return [
        text for call in _calls(turn) for text in (str(call.get("name", "")), *_leaves(call.get("arguments"))) if text
    ]


def _leaves(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value.strip()
    elif isinstance(value, dict):
        for name, inner in value.items():
            yield str(name)
            yield from _leaves(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _leaves(inner)
