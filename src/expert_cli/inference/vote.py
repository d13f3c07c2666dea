"""Several answers to one question put to the vote: those that give the same count as one, as far as that shows without running.

JSON is the same by its value, SQL by the form that sqlglot writes it in, where that is installed; anything else, and what
cannot be read, by its text without spacing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

from expert_cli.inference.grammar.grammar import Grammar
from expert_cli.utils.files import unique_keys

_JSON = re.compile(r"\s*[\[{]")
_SQL = re.compile(r"\s*(?:SELECT|WITH|INSERT|UPDATE|DELETE)\b", re.IGNORECASE)


@dataclass(frozen=True)
class Vote:
    """Answers in the order in which they were drawn, and how many are the same as each that differs, the majority's first.

    Of as many votes the one goes first that was drawn first; an answer without a word has none, and comes last.
    """

    answers: tuple[str, ...]
    counts: tuple[tuple[str, int], ...]

    @classmethod
    def of(cls, answers: Sequence[str], grammar: Grammar | None) -> Vote:
        """Count at least one answer. grammar: says in which language they are; None: each says so itself."""
        alike: dict[str, list[str]] = {}
        for answer in answers:
            alike.setdefault(same_as(answer, grammar), []).append(answer)
        by_votes = sorted(alike.items(), key=lambda one: (not one[0], -len(one[1])))
        return cls(tuple(answers), tuple((same[0], len(same)) for _, same in by_votes))

    @property
    def majority(self) -> str:
        """The answer that most agree with, as it was first drawn."""
        return self.counts[0][0]

    def as_json(self) -> dict[str, Any]:
        """Return the keys of `chat --json`."""
        votes = [{"answer": answer, "count": count} for answer, count in self.counts]
        return {"samples": list(self.answers), "votes": votes}


def same_as(answer: str, grammar: Grammar | None) -> str:
    """Return what is the same text for answers that give the same."""
    kind = grammar.type if grammar else "json" if _JSON.match(answer) else "sql" if _SQL.match(answer) else ""
    if kind.startswith("json"):
        canonical = _json(answer)
    elif kind.startswith("sql"):
        canonical = _sql(answer, "postgres" if kind == "sql-postgres" else "sqlite")
    else:
        canonical = None
    return "".join(answer.split()) if canonical is None else canonical


def _json(text: str) -> str | None:
    """Return JSON with its keys in order; None for what is none."""
    try:
        return json.dumps(_plain(json.loads(text, object_pairs_hook=unique_keys)), sort_keys=True)
    except (ValueError, RecursionError):
        return None


def _plain(value: Any) -> Any:
    """Return a value whose whole numbers are written in one way: 1.0 is 1."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _sql(text: str, dialect: str) -> str | None:
    """Return a query as sqlglot writes it, names without quotes in small letters; None for what it cannot read."""
    if find_spec("sqlglot") is None:
        return None
    from sqlglot import errors, parse_one
    from sqlglot.optimizer.normalize_identifiers import normalize_identifiers

    try:
        query = normalize_identifiers(parse_one(text, dialect=dialect), dialect=dialect)
        return str(query.sql(dialect=dialect, comments=False))
    except (errors.SqlglotError, RecursionError):
        return None
