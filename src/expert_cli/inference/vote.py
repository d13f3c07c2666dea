"""Several answers to one question put to the vote: those that give the same count as one.

Where nothing runs them, JSON is the same by its value, SQL by the form that sqlglot writes it in, where that is installed;
anything else, and what cannot be read, by its text without spacing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Hashable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, Literal, NamedTuple

from expert_cli.inference.expert_config import Grammar
from expert_cli.utils.files import unique_keys

_JSON = re.compile(r"\s*[\[{]")
_SQL = re.compile(r"\s*(?:SELECT|WITH|INSERT|UPDATE|DELETE)\b", re.IGNORECASE)


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
    """Return what an answer gives as far as its text says. grammar: says in which language it is; None: it says so itself."""
    key = same_as(answer, grammar)
    return Given(0 if key else 2, key)


def same_as(answer: str, grammar: Grammar | None) -> str:
    """Return what is the same text for answers that give the same."""
    kind = grammar.type if grammar else "json" if _JSON.match(answer) else "sql" if _SQL.match(answer) else ""
    if kind.startswith("json"):
        with suppress(ValueError, RecursionError):
            return json.dumps(_plain(json.loads(answer, object_pairs_hook=unique_keys)), sort_keys=True)
    if kind.startswith("sql") and find_spec("sqlglot") is not None:
        from sqlglot import errors, parse_one
        from sqlglot.optimizer.normalize_identifiers import normalize_identifiers

        dialect = "postgres" if kind == "sql-postgres" else "sqlite"
        with suppress(errors.SqlglotError, RecursionError):  # names without quotes in small letters
            query = normalize_identifiers(parse_one(answer, dialect=dialect), dialect=dialect)
            return str(query.sql(dialect=dialect, comments=False))
    return "".join(answer.split())


def _plain(value: Any) -> Any:
    """Return a value whose whole numbers are written in one way: 1.0 is 1."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value
