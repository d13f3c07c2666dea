r"""One conversation on its way through a chat template: its text, where turns stand in it, its pieces.

Control tokens in what rows say are hidden from the template and put back as text:

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
from expert_cli.data.templates.loss_mask import TemplateCompiler
from expert_cli.data.templates.segment import Segment, Span, TurnMask, with_reasons
from expert_cli.data.templates.turns import HIDDEN, first_calls, tool_name
from expert_cli.errors import InputError
from expert_cli.utils.chat_rendering import render_safely

HINT = 'Take it out of the rows, or use a base model, "prompt_template" or "chat_template_path" that shows it.'


@dataclass(frozen=True)
class Talk:
    """One conversation on its way through a template.

    kwargs: what the row gives the template beside these. masks: of each turn. hidden: what stands in the texts of tools and
    turns for private-use characters.
    """

    compiler: TemplateCompiler
    tools: list[Any]
    kwargs: dict[str, Any]
    turns: list[dict[str, Any]]
    masks: Sequence[TurnMask]
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
        text = render_safely(lambda turns, ask: chat(turns, ask, self.tools, self.kwargs), self.turns[:count], generate)
        return self.compiler.opened(text)

    def asked(self, number: int) -> str:
        """Return what the answer of a turn is asked with; without jinja where the turns before it are plain."""
        before = self.turns[:number]
        contents = [turn["content"] for turn in before]
        if self.tools or self.kwargs or any(len(turn) > 2 for turn in before) or self.compiler.watched.occurs(contents):
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

    def _require_difference(self, field: str, without: Talk) -> None:
        """Refuse a template that writes the same without a field. One that was seen to read it is not asked again."""
        if field in self.compiler.reads:
            return
        try:
            shown = without.text != self.text
        except InputError:  # of a template that wants a call before its answer
            shown = True
        if not shown:
            raise InputError(f"the chat template does not show {field}", HINT)
        self.compiler.reads.add(field)

    @cached_property
    def places(self) -> dict[int, int]:
        """Where each turn that is no answer says something: a mark in the middle of its content is written there.

        Without those turns that the template writes otherwise when they are marked.
        """
        others = [number for number, turn in enumerate(self.turns) if turn["role"] != "assistant"]
        places: dict[int, int] = {}
        for group in (others, *([number] for number in others)):
            try:
                parts = re.split(f"\ue000({'|'.join(map(self._mark, group))})\ue001", self.marked(group).text)
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

    def marked(self, numbers: Sequence[int]) -> Talk:
        turns = [*self.turns]
        for number in numbers:
            content, at = turns[number]["content"], self.middle(number)
            marked = f"{content[:at]}\ue000{self._mark(number)}\ue001{content[at:]}"
            turns[number] = {**turns[number], "content": marked}
        return replace(self, turns=turns)

    def middle(self, number: int) -> int:
        """Return where in a turn's content its mark stands: one at its edge would change what templates strip."""
        content = self.turns[number]["content"]
        said = content.strip()
        return content.find(said) + (len(said) + 1) // 2 if said else len(content)

    def after_place(self, number: int, written: str) -> int:
        """Where something ends that a template writes from the place of a turn on; -1 if the conversation differs."""
        place = self.places.get(number, -1)
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

    def _require(self, shown: str, what: str) -> None:
        if self.find(shown.strip()) < 0:
            raise InputError(f"the chat template does not show {what}: {self.quoted(shown)}", HINT)

    def find(self, shown: str, start: int = 0, limit: int | None = None) -> int:
        """Where a text is shown, as it is or as JSON spells it; -1 if it is not."""
        at = self._words.find(shown, start, limit)
        return at if at >= 0 else self._words.find(json.dumps(shown, ensure_ascii=False)[1:-1], start, limit)

    def quoted(self, text: str) -> str:
        return json.dumps(HIDDEN.sub(lambda match: self.hidden[int(match[1])], text)[:60], ensure_ascii=False)
