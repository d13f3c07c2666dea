"""Votes among several answers to one question: equal results count together; None means no result.

Answers that cannot be run are compared by value if they are JSON, else by their text without spacing.
"""

from __future__ import annotations

import json
from collections.abc import Hashable, Sequence
from contextlib import suppress
from typing import Any

from expert_cli.utils.files import strict_json


def by_votes(given: Sequence[Hashable]) -> list[list[int]]:
    """Return the indexes of answers, grouped by result: most votes first, "" (no rows) after them, None last."""
    alike: dict[Hashable, list[int]] = {}
    for place, key in enumerate(given):
        alike.setdefault(key, []).append(place)
    rank: dict[Hashable, int] = {"": 1, None: 2}
    return [places for _, places in sorted(alike.items(), key=lambda same: (rank.get(same[0], 0), -len(same[1])))]


def votes(answers: Sequence[str], given: Sequence[Hashable]) -> dict[str, Any]:
    """Return the document of `chat --json`: the answers as drawn, and the number of votes for each different result."""
    counts = [{"answer": answers[places[0]], "count": len(places)} for places in by_votes(given)]
    return {"samples": list(answers), "votes": counts}


def same_as(answer: str) -> str:
    """Return a key that is equal for answers with equal results."""

    def number(written: str) -> float:
        value = float(written)
        return int(value) if value.is_integer() else value

    with suppress(ValueError):
        strict_json(answer.encode())
        return json.dumps(json.loads(answer, parse_float=number), sort_keys=True)  # 1.0 equals 1
    return "".join(answer.split())
