"""Several answers to one question put to the vote: those that give the same count as one.

Where nothing runs them, JSON is the same by its value, anything else by its text without spacing.
"""

from __future__ import annotations

import json
from collections.abc import Hashable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from expert_cli.inference.expert_config import Grammar
from expert_cli.utils.files import unique_keys


class Given(NamedTuple):
    """What an answer gives: of the same key where it gives the same. rank: 0 something; 1 a result without rows; 2 nothing."""

    rank: Literal[0, 1, 2]
    key: Hashable


def by_votes(given: Sequence[Given]) -> list[list[int]]:
    """Return the places of answers that give the same, most votes first; those without rows come behind, nothing last."""
    alike: dict[Given, list[int]] = {}
    for place, one in enumerate(given):
        alike.setdefault(one, []).append(place)
    return [places for _, places in sorted(alike.items(), key=lambda same: (same[0].rank, -len(same[1])))]


@dataclass(frozen=True)
class Vote:
    """Answers as they were drawn, and how many give the same as each that differs, in the order of `by_votes`."""

    answers: tuple[str, ...]
    counts: tuple[tuple[str, int], ...]

    @classmethod
    def of(cls, answers: Sequence[str], given: Sequence[Given]) -> Vote:
        """Count at least one answer."""
        return cls(tuple(answers), tuple((answers[places[0]], len(places)) for places in by_votes(given)))

    @property
    def majority(self) -> str:
        """The answer that most agree with, as it was first drawn."""
        return self.counts[0][0]

    def as_json(self) -> dict[str, Any]:
        """Return the keys of `chat --json`."""
        votes = [{"answer": answer, "count": count} for answer, count in self.counts]
        return {"samples": list(self.answers), "votes": votes}


def text_given(answer: str, grammar: Grammar | None) -> Given:
    """Return what an answer gives as far as its text says. grammar: as `same_as` takes it."""
    key = same_as(answer, grammar)
    return Given(0 if key else 2, key)


def same_as(answer: str, grammar: Grammar | None) -> str:
    """Return what is the same text for answers that give the same. grammar: of JSON or another; None: the text tells."""

    def number(written: str) -> float:
        value = float(written)
        return int(value) if value.is_integer() else value

    if grammar.type.startswith("json") if grammar else answer.lstrip().startswith(("{", "[")):
        with suppress(ValueError, RecursionError):
            value = json.loads(answer, object_pairs_hook=unique_keys, parse_float=number)  # 1.0 is 1
            return json.dumps(value, sort_keys=True)
    return "".join(answer.split())
