"""How much one answer may use, and the word for an answer that was stopped."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from expert_cli.evaluation.verdict import Grade, Kind

MAX_SQL_BYTES = 100_000
MAX_CYPHER_BYTES = 8_192
"""graphqlite 0.12 writes beyond its memory where one token of a query has more than 16 kB."""
MAX_ROWS = 50_000
MAX_RESULT_BYTES = 16 << 20
MAX_VALUE_BYTES = 250_000
MAX_DEPTH = 100
TOO_DEEP = f"a value of the result is nested more than {MAX_DEPTH} deep"
MEMORY_BYTES = 64 << 20
GOLD_TIMEOUT_S, PREPARE_S = 60.0, 300.0
"""For an expected query; for all of a case on all its contents."""


class Stopped(Exception):
    """A query gave no result to compare; says why."""

    def __init__(self, kind: Kind, detail: str) -> None:
        """Keep both for the verdict."""
        super().__init__(detail)
        self.kind: Kind = kind
        self.detail = detail

    @property
    def verdict(self) -> Grade:
        """The same as a verdict."""
        return Grade(self.kind, self.detail)


def readable(answer: str, max_bytes: int) -> None:
    """Raise `Stopped` for an answer that no engine should see: none, too long, or with what is not text."""
    if not answer.strip():
        raise Stopped("empty", "no answer")
    try:
        size = len(answer.encode())
    except UnicodeEncodeError as error:
        raise Stopped("invalid", "the answer holds characters that are not text") from error
    if size > max_bytes:
        raise Stopped("too_large", f"the answer has {size:,} bytes, at most {max_bytes:,} are run")


def bounded(rows: Iterable[Sequence[Any]]) -> list[tuple[Any, ...]]:
    """Collect rows; raises `Stopped` beyond `MAX_ROWS`, `MAX_RESULT_BYTES` or `MAX_DEPTH`."""
    kept: list[tuple[Any, ...]] = []
    size = 0
    for row in rows:
        kept.append(tuple(row))
        size += sum(len(value) if isinstance(value, str | bytes | list | dict) else 8 for value in row)
        if len(kept) > MAX_ROWS:
            raise Stopped("too_large", f"the result has more than {MAX_ROWS:,} rows")
        if size > MAX_RESULT_BYTES:
            raise Stopped("too_large", f"the result has more than {MAX_RESULT_BYTES:,} bytes")
        _require_shallow(row)
    return kept


def _require_shallow(row: Sequence[Any]) -> None:
    level, depth = [value for value in row if isinstance(value, list | dict)], 0
    while level:
        depth += 1
        if depth > MAX_DEPTH:
            raise Stopped("too_large", TOO_DEEP)
        inside = (value.values() if isinstance(value, dict) else value for value in level)
        level = [item for items in inside for item in items if isinstance(item, list | dict)]
