"""Where the turns of a conversation stand in its text, as far as they are answers or trained."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from expert_cli.data import mask_reasons
from expert_cli.data.templates.segment import Span
from expert_cli.data.templates.talk import HINT, Talk
from expert_cli.data.templates.turns import call_arguments, call_names
from expert_cli.errors import InputError

THINKING = "thinking"
"""Noted of a template that wrote an answer which is asked for only with thinking."""


@dataclass(frozen=True)
class Spans:
    """Finds the turns of a conversation in its text."""

    talk: Talk

    def answers(self) -> tuple[list[Span], bool]:
        """Return every answer, and whether a token ends the last.

        It ends with the last token that ends turns before the next turn says something: an answer may be several messages
        (Harmony), and the template's own words may spell what it says before it says that.
        """
        numbers = [number for number, turn in enumerate(self.talk.turns) if turn["role"] == "assistant"]
        starts: list[tuple[int, str]] = []
        for number in numbers:
            starts.append(self._start(number, starts[-1][0] if starts else 0))
        spans: list[Span] = []
        limits = [*(start for start, _ in starts[1:]), len(self.talk.text)]
        for number, (start, begins), following in zip(numbers, starts, limits, strict=True):
            place = self.talk.places.get(number + 1, -1) if number < numbers[-1] else -1
            limit = place if start <= place < following else following
            at = self._shown_until(number, start, limit)
            *_, closing = (None, *self.talk.compiler.turn_ends.finditer(self.talk.text, at, limit))
            stop = closing.end(1) if closing else self._unended(number, at)
            token = closing[1] if closing else ""
            spans.append(Span.of_turn("assistant", self.talk.masks[number], start, stop, begins, token))
        return spans, closing is not None

    def others(self, answers: Sequence[Span]) -> Iterator[Span]:
        """Yield every other turn that is trained: what it says, with the token that ends it. answers: where these stand.

        Raises InputError: the template does not write it as it is.
        """
        for number, turn in enumerate(self.talk.turns):
            if self.talk.masks[number].trained and turn["role"] != "assistant":
                start, stop = self._content(number)
                starts = [answer.start for answer in answers]
                places = [at for other, at in self.talk.places.items() if other != number]
                limit = min((at for at in (*starts, *places) if at >= stop), default=len(self.talk.text))
                closing = self.talk.compiler.control.search(self.talk.text, stop, limit)
                ended = closing and self.talk.compiler.turn_ends.fullmatch(closing[0])
                stop, token = (closing.end(), closing[0]) if closing and ended else (stop, "")
                yield Span.of_turn(turn["role"], self.talk.masks[number], start, stop, "", token)

    def _content(self, number: int) -> tuple[int, int]:
        """Where a turn that is no answer says its content, as it is, stripped, or as JSON spells it."""
        place, content = self.talk.places.get(number, -1), self.talk.turns[number]["content"]
        middle = self.talk.middle(number)
        lead = len(content) - len(content.lstrip())
        for said, half in ((content, middle), (content.strip(), middle - lead)):
            for spell in (str, _spelled):
                start, shown = place - len(spell(said[:half])), spell(said)
                if place >= 0 and start >= 0 and self.talk.text.startswith(shown, start):
                    return start, start + len(shown)
        raise InputError(f"the chat template does not write turn {number + 1} as it is, so it cannot be trained", HINT)

    def _start(self, number: int, after: int) -> tuple[int, str]:
        """Where an answer begins, and why: where its generation prompt ends, or the one that leaves thinking to the model."""
        thinking = replace(self.talk, compiler=self.talk.compiler.thinking)
        asked = self.talk.asked(number)
        if self.talk.text.startswith(asked):
            return len(asked), mask_reasons.GENERATION_PROMPT
        asked = thinking.asked(number)
        if self.talk.text.startswith(asked):
            if self.talk.masks[number].trained and number == len(self.talk.turns) - 1:
                self.talk.compiler.reads.add(THINKING)
            return len(asked), mask_reasons.THINKING_PROMPT
        # What comes before is written otherwise once more follows: earlier reasoning, the place of tools.
        for talk in (self.talk, thinking) if number - 1 in self.talk.places else ():
            start = self.talk.after_place(number - 1, talk.marked([number - 1]).rendered(number, generate=True))
            if start >= after:
                return start, mask_reasons.QUESTION_ALONE
        after = max(after, self.talk.places.get(number - 1, 0))
        said = (*self._said(number), *call_names(self.talk.turns[number]), *call_arguments(self.talk.turns[number]))
        found = [at for shown in said if shown and (at := self.talk.find(shown, after)) >= 0]
        if not found:
            raise InputError(f"the chat template does not show the answer of turn {number + 1}", HINT)
        return min(found), mask_reasons.FIRST_SAID

    def _shown_until(self, number: int, start: int, limit: int) -> int:
        """Where at the earliest an answer has said everything, before `limit`.

        Of an earlier answer templates leave out the reasoning, as models are asked without it. Raises InputError if
        the template does not show all of it.
        """
        turn, said = self.talk.turns[number], self._said(number)
        at = self._after(said if number == len(self.talk.turns) - 1 else said[-1:], start, limit, number)
        called = self._after(call_names(turn), start, limit, number)
        return max([at, called, *(self._after([text], start, limit, number) for text in call_arguments(turn))])

    def _after(self, texts: Sequence[str], start: int, limit: int, number: int) -> int:
        """Where parts of an answer that the template shows one after the other from `start` on end."""
        for shown in texts:
            at = self.talk.find(shown, start, limit)
            if at < 0:
                where = "the last answer" if number == len(self.talk.turns) - 1 else f"turn {number + 1}"
                raise InputError(f"the chat template does not show all of {where}: {self.talk.quoted(shown)}", HINT)
            start = at + len(shown)
        return start

    def _unended(self, number: int, at: int) -> int:
        """Where an answer ends that no token ends: with what the template writes where it is the last."""
        if number == len(self.talk.turns) - 1:
            return max(at, len(self.talk.text.rstrip()))
        if number - 1 not in self.talk.places:
            return at
        return max(at, self.talk.after_place(number - 1, self.talk.marked([number - 1]).rendered(number + 1).rstrip()))

    def _said(self, number: int) -> list[str]:
        """What an answer says beside its calls, part by part, as templates may take it apart; the last may be nothing."""
        turn = self.talk.turns[number]
        reasoning = [str(turn["reasoning_content"])] if turn.get("reasoning_content") else []
        marks = [re.escape(mark) for mark in self.talk.compiler.watched.texts if mark.strip()]
        parts = re.split("|".join(marks), turn["content"]) if marks else [turn["content"]]
        return [text.strip() for text in (*reasoning, *parts)]


def _spelled(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)[1:-1]
