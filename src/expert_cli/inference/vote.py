"""Several answers to one question put to the vote: those that give the same count as one; None is nothing.

Where nothing runs them, JSON is the same by its value, anything else by its text without spacing.
"""

from __future__ import annotations

import json
from collections.abc import Hashable, Sequence
from contextlib import suppress
from typing import Any

from expert_cli.utils.files import strict_json


def by_votes(given: Sequence[Hashable]) -> list[list[int]]:
    """Return the places of answers that give the same, most votes first; "", a result without rows, is behind, None last."""
    alike: dict[Hashable, list[int]] = {}
    for place, key in enumerate(given):
        alike.setdefault(key, []).append(place)
    rank: dict[Hashable, int] = {"": 1, None: 2}
    return [places for _, places in sorted(alike.items(), key=lambda same: (rank.get(same[0], 0), -len(same[1])))]


def votes(answers: Sequence[str], given: Sequence[Hashable]) -> dict[str, Any]:
    """Return what `chat --json` says: answers as they were drawn, and how many give the same as each that differs."""
    counts = [{"answer": answers[places[0]], "count": len(places)} for places in by_votes(given)]
    return {"samples": list(answers), "votes": counts}


def same_as(answer: str) -> str:
    """Return what is the same text for answers that give the same."""

    def number(written: str) -> float:
        value = float(written)
        return int(value) if value.is_integer() else value

    with suppress(ValueError):
        strict_json(answer.encode())
        return json.dumps(json.loads(answer, parse_float=number), sort_keys=True)  # 1.0 is 1
    return "".join(answer.split())
