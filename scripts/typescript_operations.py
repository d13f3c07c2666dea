"""The single operations that pipelines are made of, each with its TypeScript and its Python meaning."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from typescript_case import Raw, a_map

Meaning = Callable[[Any], Any]


@dataclass(frozen=True)
class Operation:
    """One step: `keep` and `each` work on an element written @, `whole` and `end` on all of it, written #.

    `takes` and `gives` name the types; `loop` is start and update of the same fold in a loop, where there is one.
    """

    sort: str
    name: str
    words: str
    code: str
    meaning: Meaning
    takes: str
    gives: str
    loop: tuple[str, str] | None = None


def keep(name: str, words: str, code: str, test: Meaning, of: str) -> Operation:
    """A filter."""
    return Operation("keep", name, words, code, lambda items: [item for item in items if test(item)], of, of)


def each(name: str, words: str, code: str, change: Meaning, of: str, to: str = "") -> Operation:
    """A map."""
    return Operation("each", name, words, code, lambda items: [change(item) for item in items], of, to or of)


def whole(name: str, words: str, code: str, meaning: Meaning, of: str, to: str = "") -> Operation:
    """A step that needs all of its input."""
    return Operation("whole", name, words, code, meaning, of, to or of)


def end(
    name: str, words: str, code: str, meaning: Meaning, of: str, to: str, loop: tuple[str, str] | None = None
) -> Operation:
    """A step after which nothing follows."""
    return Operation("end", name, words, code, meaning, of, to, loop)


def counts(items: list[Any]) -> Raw:
    """How often each item occurs, in order of first sight."""
    return a_map({item: items.count(item) for item in dict.fromkeys(items)})
