"""Which tables, columns and values of a database a question is shown: those whose words it has, and what joins them.

Names and values are compared with the question word by word (`words.py`); no model is asked, and the same question is always
shown the same.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from expert_cli.data.schema_prompt.schema import Column, Database, Table
from expert_cli.data.schema_prompt.words import STOP_WORDS, joined, name_words, stem, text_words

LONGEST_MATCH = 8
"""Words of a value that are looked for in the question."""
_STOPPED = frozenset(map(stem, STOP_WORDS))


@dataclass(frozen=True)
class Shown:
    """A table of which some columns are shown, in their order, with values as SQL literals."""

    table: Table
    columns: tuple[str, ...]
    values: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def declared(self) -> list[Column]:
        """The columns that are shown, as the table declares them."""
        by_name = {column.name: column for column in self.table.columns}
        return [by_name[name] for name in self.columns]


class Ranking:
    """How well the tables and columns of a database fit a question."""

    def __init__(self, database: Database, question: str) -> None:
        """Compare the question with all names, and with the values that are known."""
        self._database = database
        self._words = text_words(question)
        self._question = question
        self._stems = frozenset(map(stem, self._words))
        self._telling = tuple(word for word in sorted(self._stems - _STOPPED) if len(word) >= 3)
        self._known: dict[str, float] = {}

    @cached_property
    def matches(self) -> Mapping[tuple[str, str], list[str]]:
        """The values of each (table, column) that stand in the question, the longest first."""
        found: dict[tuple[str, str], list[tuple[int, bool, str]]] = defaultdict(list)
        taken = [False] * len(self._words)
        by_words = self._database.values.by_words
        for count in range(min(LONGEST_MATCH, len(self._words)), 0, -1):
            spans = range(len(self._words) - count + 1)
            hits = [at for at in spans if joined(self._words[at : at + count]) in by_words]
            if count == 1:  # "Ande" is no value of a question that says "and", though their stems are the same
                hits = [at for at in hits if self._words[at] not in STOP_WORDS]
            for at in (at for at in hits if not all(taken[at : at + count])):
                for table, column, text in by_words[joined(self._words[at : at + count])]:
                    found[table, column].append((-count, text not in self._question, text))
            for at in hits:
                taken[at : at + count] = [True] * count
        return {place: [text for _, _, text in sorted(set(of_place))] for place, of_place in found.items()}

    def column_fit(self, table: Table, column: str) -> float:
        """Return how well a column fits: 1 = the question has all words of its name; one more where it has a value."""
        matched = self.matches.get((table.name, column))
        return self._fit(column) + (1.0 if matched else 0.0)

    def table_fit(self, table: Table) -> float:
        """Return how well a table fits, by its name and by its columns that fit best."""
        best = sorted((self.column_fit(table, column.name) for column in table.columns), reverse=True)
        return 1.5 * self._fit(table.name) + sum(
            share * fit for share, fit in zip((1.0, 0.5, 0.25), best, strict=False)
        )

    def _fit(self, name: str) -> float:
        words = name_words(name)
        weights = [0.2 if word in _STOPPED else 1.0 for word in words]
        fits = sum(weight * self._word_fit(word) for word, weight in zip(words, weights, strict=True))
        return fits / (sum(weights) or 1.0)

    def _word_fit(self, word: str) -> float:
        if word not in self._known:
            self._known[word] = (
                1.0 if word in self._stems else max((_alike(word, own) for own in self._telling), default=0)
            )
        return self._known[word]

    def tables(self, most: int | None) -> list[Table]:
        """Return at most so many tables, the one that fits best first, each with the tables that join it to those before."""
        rest = {table.name: self.table_fit(table) for table in self._database.tables}
        by_name = {table.name: table for table in self._database.tables}
        joins = self._database.joins
        chosen: list[str] = []
        most = len(rest) if most is None else most
        while rest and len(chosen) < most:
            best = max(
                rest, key=lambda name: rest[name] + 0.4 * len(joins[name] & set(chosen))
            )  # the first of equal ones
            path = [name for name in _path(chosen, best, joins) if name in rest]
            for name in path if len(chosen) + len(path) <= most else [best]:
                chosen.append(name)
                del rest[name]
        return [by_name[name] for name in chosen]

    def columns(self, table: Table, most: int | None, needed: set[str]) -> tuple[str, ...]:
        """Return the columns of a table that are shown, in their order: those needed, and the best up to so many."""
        names = [column.name for column in table.columns]
        if most is None or len(names) <= most:
            return tuple(names)
        fits = {name: self.column_fit(table, name) + (0.3 if "name" in name_words(name) else 0.0) for name in names}
        ranked = sorted(names, key=lambda name: (name not in needed, -fits[name]))
        kept = set(ranked[: max(most, len(needed))])
        return tuple(name for name in names if name in kept)


def join_keys(tables: Sequence[Table]) -> dict[str, set[str]]:
    """Return the columns of each table that join it to another one of these, and its primary key."""
    by_name = {table.name.casefold(): table for table in tables}
    keys = {table.name: set(table.primary_key) for table in tables}
    for table in tables:
        for foreign in table.foreign_keys:
            other = by_name.get(foreign.table.casefold())
            if other:
                keys[table.name] |= {own for own, _ in foreign.columns}
                keys[other.name] |= {named(other, theirs) for _, theirs in foreign.columns if theirs}
    return keys


def named(table: Table, column: str) -> str:
    """Return a column's name as the table declares it, which a foreign key may write otherwise."""
    return next((own.name for own in table.columns if own.name.casefold() == column.casefold()), column)


def _path(chosen: Sequence[str], target: str, joins: Mapping[str, frozenset[str]]) -> list[str]:
    """Return the tables from the chosen ones, left out, to the target, by the fewest joins; the target alone without any."""
    before: dict[str, str] = dict.fromkeys(chosen, "")
    queue = list(chosen)
    for name in queue:
        for other in sorted(joins[name] - before.keys()):
            before[other] = name
            queue.append(other)
    path = [target]
    while before.get(path[0]):
        path.insert(0, before[path[0]])
    return [name for name in path if name not in chosen]


def _alike(word: str, own: str) -> float:
    """How much a word of a name and one of the question say the same, though they differ: an abbreviation, a part."""
    shorter, longer = sorted((word, own), key=len)
    if len(shorter) >= 3 and longer.startswith(shorter):
        return 0.6
    return 0.5 if len(shorter) >= 4 and shorter in longer else 0.0
