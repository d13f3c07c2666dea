"""Rows as they stand in a file, before anything is decided about them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple


class RawRow(NamedTuple):
    """One row as it was read from `where`; `fault` says why it could not be read and is "" otherwise."""

    where: str
    fields: Mapping[str, object]
    fault: str = ""


class ColumnFilter:
    """Keeps of each row the columns of interest, and remembers the names of all."""

    def __init__(self, wanted: frozenset[str]) -> None:
        """Take the names of interest in small letters."""
        self._wanted = wanted
        self._by_shape: dict[tuple[str, ...], tuple[str, ...]] = {}
        self._seen: dict[str, None] = {}

    @property
    def seen(self) -> list[str]:
        """Return the names of all columns met so far, in order."""
        return list(self._seen)

    def select(self, names: Iterable[str]) -> tuple[str, ...]:
        """Return those of `names` that are of interest."""
        shape = tuple(names)
        kept = self._by_shape.get(shape)
        if kept is None:
            kept = tuple(name for name in shape if name.casefold() in self._wanted)
            self._by_shape[shape] = kept
            self._seen.update(dict.fromkeys(shape))
        return kept
