"""The single operations that pipelines are made of, each with its TypeScript and its Python meaning."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Meaning = Callable[[Any], Any]


@dataclass(frozen=True)
class Operation:
    """One step: `keep` and `each` work on an element written @, `whole` and `end` on all of it, written #.

    `takes` and `gives` name the types.
    """

    sort: str
    name: str
    words: str
    code: str
    meaning: Meaning
    takes: str
    gives: str


def keep(name: str, words: str, code: str, test: Meaning, of: str) -> Operation:
    """A filter."""
    return Operation("keep", name, words, code, lambda items: [item for item in items if test(item)], of, of)


def each(name: str, words: str, code: str, change: Meaning, of: str, to: str = "") -> Operation:
    """A map."""
    return Operation("each", name, words, code, lambda items: [change(item) for item in items], of, to or of)


def whole(name: str, words: str, code: str, meaning: Meaning, of: str, to: str = "") -> Operation:
    """A step that needs all of its input."""
    return Operation("whole", name, words, code, meaning, of, to or of)


def end(name: str, words: str, code: str, meaning: Meaning, of: str, to: str) -> Operation:
    """A step after which nothing follows."""
    return Operation("end", name, words, code, meaning, of, to)
