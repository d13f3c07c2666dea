"""Which texts of an evaluation stand in training rows, too: the same but for letter case and blanks."""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

from expert_cli.utils.text import excerpt, normalize, short_place

MOST_HELD_OUT = 20_000
"""So many texts of an evaluation are looked for: the first ones."""
_MOST_EXAMPLES = 3


class Question(NamedTuple):
    """What a row or case asks, what stands below it, and where it stands."""

    asked: str
    input: str
    where: str


class HeldOut:
    """The texts of an evaluation, to be looked for in training rows; those that say nothing are in no row."""

    def __init__(self, questions: Sequence[Question]) -> None:
        """Take the texts."""
        self._by_text: defaultdict[tuple[str, str], list[int]] = defaultdict(list)
        for number, (asked, below, _) in enumerate(questions):
            if asked.strip():
                self._by_text[normalize(asked), normalize(below)].append(number)

    def find(self, asked: str, below: str) -> Iterator[int]:
        """Yield the numbers of the texts that a row asks."""
        yield from self._by_text.get((normalize(asked), normalize(below)), ())


@dataclass
class Overlap:
    """The texts of one evaluation that were found in training rows, as a store's statistics keep them.

    added: how many texts there are, also those beyond the first `MOST_HELD_OUT`, which are not looked for.
    """

    questions: list[Question] = field(default_factory=list)
    added: int = 0
    same: set[int] = field(default_factory=set)
    examples: list[dict[str, Any]] = field(default_factory=list)

    def add(self, question: Question) -> None:
        """Take a text, before any row that trains is looked at."""
        self.added += 1
        if len(self.questions) < MOST_HELD_OUT:
            self.questions.append(question)

    @cached_property
    def held(self) -> HeldOut:
        """The texts that are looked for."""
        return HeldOut(self.questions)

    def found(self, number: int, where: str) -> None:
        """Note that a row that trains asks a text, by the number of this."""
        if number not in self.same and len(self.examples) < _MOST_EXAMPLES:
            there = {"held_out": short_place(self.questions[number].where), "train": short_place(where)}
            self.examples.append({**there, "text": excerpt(self.questions[number].asked)})
        self.same.add(number)

    def as_json(self) -> dict[str, Any]:
        """Return how many texts were looked for, and how many stand in training rows."""
        found = {"rows": self.added, "same": len(self.same), "examples": self.examples}
        return {**found, "digest": digest_of(self.questions)}


def digest_of(questions: Sequence[Question]) -> str:
    """Return a hash of what is asked, wherever it stands."""
    first = questions[:MOST_HELD_OUT]
    told = json.dumps([[one.asked for one in first], [one.input for one in first]])
    return hashlib.sha256(told.encode()).hexdigest()[:16]
