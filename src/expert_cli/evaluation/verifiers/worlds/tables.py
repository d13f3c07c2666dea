"""What is known of a database: tables, what may be empty, keys, and rows. A graph is read as tables, too."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

Row = tuple[Any, ...]


@dataclass(frozen=True)
class ForeignKey:
    """Columns of a table whose values stand in the columns `parents` of `table`; columns by their places."""

    columns: tuple[int, ...]
    table: str
    parents: tuple[int, ...]


@dataclass(frozen=True)
class Table:
    """A table. keys: sets of columns whose values no two rows share; none of them is NULL."""

    name: str
    columns: tuple[str, ...]
    nullable: tuple[bool, ...]
    keys: tuple[tuple[int, ...], ...]
    foreign: tuple[ForeignKey, ...]
    rows: Sequence[Row]


def parents_first(tables: Sequence[Table]) -> list[Table]:
    """Return the tables, those that others refer to first; where they refer to each other, in their order."""
    left, found = list(tables), list[Table]()
    while left:
        waiting = {table.name for table in left}
        free = [one for one in left if not any(key.table in waiting - {one.name} for key in one.foreign)] or left[:1]
        found += free
        left = [table for table in left if table not in free]
    return found
