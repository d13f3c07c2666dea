"""The contents that the answers to one case are run on, beside those it names. Runs in the process of `engine_server.py`."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from expert_cli.evaluation.verifiers.query_text import Dialect, orders_rows
from expert_cli.evaluation.verifiers.sandbox.limits import Stopped
from expert_cli.evaluation.verifiers.worlds.neighbors import neighbors

CANDIDATES = 4
"""So many are made for each that is wanted."""
IDLE = 1.5
"""After so many for each in which no further neighbor is told, no more are made."""
QUERY_S, NEIGHBOR_S, MAKE_S = 2.0, 0.5, 30.0
DIGITS = 9
Rows = Sequence[Sequence[Any]]


class PerturbingEngine(Protocol):
    """An engine that can make other contents of its source."""

    def run(self, query: str, *, timeout_s: float) -> list[tuple[Any, ...]]:
        """Return the rows of one query. Raises `Stopped`."""

    def prepare(self, query: str, *, timeout_s: float) -> None:
        """Find out whether a statement is allowed. Raises `Stopped`."""

    def perturbed(self, queries: Sequence[str], number: int) -> tuple[PerturbingEngine, PerturbingEngine]:
        """Return the content of this number, and it once more: there, unordered rows come the other way round."""


@dataclass(frozen=True)
class _Candidate:
    """A content. telling: the expected queries find something, in one order. told: the neighbors with another result."""

    engine: PerturbingEngine
    telling: bool
    told: frozenset[str]


def telling_contents(
    engine: PerturbingEngine, queries: Sequence[str], dialect: Dialect, count: int
) -> list[PerturbingEngine]:
    """Return up to `count` contents on which the expected queries have one result each, whatever order rows are read in.

    They are chosen in turn: the next is the one that tells most neighbors from an expected query of those left.
    """
    others = {other: query for query in queries for other in neighbors(query)}
    found = list[_Candidate]()
    end = time.monotonic() + MAKE_S  # as a last resort: it makes the choice depend on the machine
    idle = 0
    for number in range(CANDIDATES * count):
        if time.monotonic() > end or (idle >= IDLE * count and sum(one.telling for one in found) >= count):
            break
        candidate = _candidate(engine, queries, dialect, others, number)
        if candidate:
            idle = 0 if candidate.told - frozenset().union(*(one.told for one in found)) else idle + 1
            found.append(candidate)
    return [one.engine for one in _chosen(found, count)]


def _candidate(
    engine: PerturbingEngine, queries: Sequence[str], dialect: Dialect, others: dict[str, str], number: int
) -> _Candidate | None:
    """Return the content of this number; None where an expected query fails, or has a result by chance."""
    content, other_way = engine.perturbed(queries, number)
    results, clear = dict[str, Rows](), True
    for query in queries:
        try:
            rows, again = (_rounded(one.run(query, timeout_s=QUERY_S)) for one in (content, other_way))
        except Stopped:
            return None
        if Counter(map(repr, rows)) != Counter(map(repr, again)):
            return None
        clear = clear and (rows == again or not orders_rows(query, dialect))
        results[query] = rows
    filled = any(cell for rows in results.values() for row in rows for cell in row)
    told = (other for other, query in others.items() if _differs(content, other, results[query], dialect))
    return _Candidate(content, clear and filled, frozenset(told))


def _differs(content: PerturbingEngine, other: str, rows: Rows, dialect: Dialect) -> bool:
    try:
        found = _rounded(content.run(other, timeout_s=NEIGHBOR_S))
    except Stopped:
        return True
    if found == rows:
        return False
    return orders_rows(other, dialect) or Counter(map(repr, found)) != Counter(map(repr, rows))


def _rounded(rows: Rows) -> Rows:
    """Return rows without the noise that another order of adding makes."""
    return [[float(f"{cell:.{DIGITS}g}") if isinstance(cell, float) else cell for cell in row] for row in rows]


def _chosen(found: Sequence[_Candidate], count: int) -> list[_Candidate]:
    left = frozenset[str]().union(*(one.told for one in found))
    rest, chosen = list(found), list[_Candidate]()
    while rest and len(chosen) < count:
        best = max(rest, key=lambda one: (len(one.told & left), one.telling, len(one.told)))
        rest.remove(best)
        chosen.append(best)
        left -= best.told
    return chosen
