"""Another content of the same tables: rows drawn anew, keys kept."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from expert_cli.evaluation.verifiers.worlds.tables import ForeignKey, Row, Table, parents_first
from expert_cli.evaluation.verifiers.worlds.values import Draw, Pool, Value, pool

FEWEST_ROWS, MOST_ROWS = 12, 80
"""Of a content whose scale is 1: few, so that conditions and limits meet, and queries are quick."""
TRIES = 6


@dataclass(frozen=True)
class Made:
    """A drawn row, and what stands in for it where the database refuses it: the same keys with values of a real row.

    named: a query names one of its values, or of a row that it refers to.
    """

    row: Row
    stand_in: Row
    named: bool = False


def pools_of(tables: Sequence[Table], named: Mapping[str, Sequence[Value]]) -> dict[str, list[Pool]]:
    """Return the pools of every table's columns. named: constants by column, in lower case, also for what it refers to."""
    found = {
        (one.name, place): [*named.get(name.lower(), ())] for one in tables for place, name in enumerate(one.columns)
    }
    for table in tables:
        for key in table.foreign:
            for place, parent in zip(key.columns, key.parents, strict=True):
                found.get((key.table, parent), []).extend(named.get(table.columns[place].lower(), ()))
    return {
        table.name: [
            pool(
                (row[place] for row in table.rows if row[place] is not None),
                list(dict.fromkeys(found[table.name, place])),
            )
            for place in range(len(table.columns))
        ]
        for table in tables
    }


def perturb(tables: Sequence[Table], pools: Mapping[str, Sequence[Pool]], rng: random.Random) -> dict[str, list[Made]]:
    """Return another content: the rows of every table, those referred to first."""
    found: dict[str, list[Made]] = {}
    scale = rng.choice((0.4, 0.8, 1.0, 1.0, 1.6))
    redrawn = rng.choice((0.15, 0.5, 0.9))
    nulls = rng.choice((0.0, 0.0, 0.08, 0.25))
    for table in parents_first(tables):
        found[table.name] = (
            []
            if rng.random() < 0.05
            else _Filler(table, pools[table.name], rng, nulls).rows(
                round(scale * min(MOST_ROWS, max(FEWEST_ROWS, len(table.rows)))), redrawn, found
            )
        )
    return found


class _Filler:
    """Fills one table."""

    def __init__(self, table: Table, pools: Sequence[Pool], rng: random.Random, nulls: float) -> None:
        self._table, self._rng = table, rng
        self._draws = [
            Draw.of(known, rng, (nulls if known.own or not table.rows else 0.9) if nullable else 0.0)
            for known, nullable in zip(pools, table.nullable, strict=True)
        ]
        self._single = {key[0] for key in table.keys if len(key) == 1}
        self._taken: list[set[Row]] = [set() for _ in table.keys]
        self._named_parents: dict[ForeignKey, set[Row]] = {}

    def rows(self, count: int, redrawn: float, others: Mapping[str, Sequence[Made]]) -> list[Made]:
        """Return at most `count` rows. redrawn: the share of values that no row of the table has in this place."""
        table, rng = self._table, self._rng
        referring = {place for key in table.foreign for place in key.columns}
        fresh = {place: self._draws[place].keys(rng, count) for place in sorted(self._single - referring)}
        parents = [self._parents(key, others, fresh) for key in table.foreign]
        made = []
        for number in range(count):
            base = rng.choice(table.rows) if table.rows else (None,) * len(table.columns)
            for _ in range(TRIES):
                row = self._row(base, redrawn if table.rows else 1.0, referring)
                held = {place: keys[number] for place, keys in fresh.items()}
                held |= self._references(parents)
                row = [held.get(place, value) for place, value in enumerate(row)]
                if self._takes(row):
                    stand_in = tuple(held.get(place, value) for place, value in enumerate(base))
                    made.append(Made(tuple(row), stand_in, self._named(row)))
                    break
        return made

    def _row(self, base: Row, redrawn: float, referring: set[int]) -> list[Any]:
        rng = self._rng
        return [
            draw.value(rng) if place not in referring and rng.random() < redrawn else value
            for place, (value, draw) in enumerate(zip(base, self._draws, strict=True))
        ]

    def _parents(
        self, key: ForeignKey, others: Mapping[str, Sequence[Made]], fresh: Mapping[int, Sequence[Any]]
    ) -> tuple[ForeignKey, list[Row]] | None:
        """Return what a foreign key may refer to, some more often than others; None where that is not known yet."""
        if key.table in others:
            rows = [tuple(one.row[place] for place in key.parents) for one in others[key.table]]
            self._named_parents[key] = {row for row, one in zip(rows, others[key.table], strict=True) if one.named}
        elif key.table == self._table.name and fresh.keys() >= set(key.parents):
            rows = list(zip(*(fresh[place] for place in key.parents), strict=True))
        else:
            return None
        whole = list(dict.fromkeys(row for row in rows if None not in row))
        some = self._rng.sample(whole, round(len(whole) * self._rng.choice((0.4, 0.7, 1.0))))
        often = some[: 1 + len(some) // 4] * self._rng.choice((0, 2, 4))
        named = [row for row in whole if row in self._named_parents.get(key, ())]
        return key, [*some, *often, *named * self._rng.choice((0, 0, 3, 10))]

    def _references(self, parents: Sequence[tuple[ForeignKey, list[Row]] | None]) -> dict[int, Any]:
        """Choose the values of all columns that refer to others."""
        held: dict[int, Any] = {}
        for known in parents:
            if known is None:
                continue
            key, rows = known
            empty = all(self._table.nullable[place] for place in key.columns)
            shares = [self._draws[place].null_share for place in key.columns]
            chosen: Row | None = self._rng.choice(rows) if rows else None
            if chosen is None or (empty and self._rng.random() < min(shares)):
                chosen = (None,) * len(key.columns)
            held |= {place: value for place, value in zip(key.columns, chosen, strict=True) if place not in held}
        return held

    def _named(self, row: Sequence[Any]) -> bool:
        referred = ((tuple(row[place] for place in key.columns), rows) for key, rows in self._named_parents.items())
        return any(values in rows for values, rows in referred) or any(map(Draw.names, self._draws, row))

    def _takes(self, row: Sequence[Any]) -> bool:
        """Whether no earlier row has its keys; they are taken then."""
        keys = [tuple(row[place] for place in key) for key in self._table.keys]
        if any(key in taken for key, taken in zip(keys, self._taken, strict=True) if None not in key):
            return False
        if any(row[place] is None and not nullable for place, nullable in enumerate(self._table.nullable)):
            return False
        for key, taken in zip(keys, self._taken, strict=True):
            taken.add(key)
        return True
