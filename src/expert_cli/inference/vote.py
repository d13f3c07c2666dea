"""Several answers to one question put to the vote: those that give the same count as one.

Where nothing runs them, JSON is the same by its value, anything else by its text without spacing.
"""

from __future__ import annotations

import json
from collections.abc import Hashable, Sequence
from contextlib import suppress
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


def votes(answers: Sequence[str], given: Sequence[Given]) -> dict[str, Any]:
    """Return what `chat --json` says: answers as they were drawn, and how many give the same as each that differs."""
    counts = [{"answer": answers[places[0]], "count": len(places)} for places in by_votes(given)]
    return {"samples": list(answers), "votes": counts}


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
