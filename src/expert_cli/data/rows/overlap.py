"""Which texts of an evaluation stand in training rows, too: the same but for letter case and blanks."""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

from expert_cli.data.rows.asked import Asked, asked_by
from expert_cli.data.rows.columnar import Rows
from expert_cli.data.rows.similarity import normalize
from expert_cli.utils.text import excerpt, short_place

MOST_HELD_OUT = 20_000
"""So many texts of an evaluation are looked for: the first ones."""
MOST_EXAMPLES = 3


class Match(NamedTuple):
    """A text of an evaluation and a row that asks the same, by their numbers."""

    held: int
    row: int


class HeldOut:
    """The texts of an evaluation, to be looked for in training rows; those that say nothing are in no row."""

    def __init__(self, asked: Asked) -> None:
        """Take the texts."""
        self._by_text: defaultdict[tuple[str, str], list[int]] = defaultdict(list)
        for number, (question, below) in enumerate(zip(asked.questions, asked.inputs, strict=True)):
            if question.strip():
                self._by_text[normalize(question), normalize(below)].append(number)

    def find(self, rows: Asked) -> Iterator[Match]:
        """Yield the texts that stand in some rows, with every row that is the same."""
        for row, (question, below) in enumerate(zip(rows.questions, rows.inputs, strict=True)):
            for held in self._by_text.get((normalize(question), normalize(below)), ()):
                yield Match(held, row)


@dataclass
class Overlap:
    """The texts of one evaluation that were found in training rows, as a store's statistics keep them.

    added: how many texts there are, also those beyond the first `MOST_HELD_OUT`, which are not looked for.
    """

    asked: Asked = field(default_factory=Asked)
    added: int = 0
    same: set[int] = field(default_factory=set)
    examples: list[dict[str, Any]] = field(default_factory=list)

    @classmethod
    def of(cls, asked: Asked) -> Overlap:
        """Begin with all texts of an evaluation."""
        return cls(asked.part(0, MOST_HELD_OUT), len(asked))

    @cached_property
    def _held(self) -> HeldOut:
        return HeldOut(self.asked)

    def add(self, rows: Rows) -> None:
        """Take rows that evaluate, before any that trains is looked at."""
        self.added += len(rows)
        if len(self.asked) < MOST_HELD_OUT:
            self.asked.extend(asked_by(rows).part(0, MOST_HELD_OUT - len(self.asked)))

    def look(self, rows: Asked) -> None:
        """Look at rows that train."""
        for held, row in self._held.find(rows):
            if held not in self.same and len(self.examples) < MOST_EXAMPLES:
                there = {"held_out": short_place(self.asked.places[held]), "train": short_place(rows.places[row])}
                self.examples.append({**there, "text": excerpt(self.asked.questions[held])})
            self.same.add(held)

    def as_json(self) -> dict[str, Any]:
        """Return how many texts were looked for, and how many stand in training rows."""
        return {"rows": self.added, "same": len(self.same), "examples": self.examples, "digest": digest_of(self.asked)}


def digest_of(asked: Asked) -> str:
    """Return a hash of what is asked, wherever it stands."""
    told = json.dumps([asked.questions[:MOST_HELD_OUT], asked.inputs[:MOST_HELD_OUT]])
    return hashlib.sha256(told.encode()).hexdigest()[:16]
