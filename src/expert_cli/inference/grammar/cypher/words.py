"""Cypher's words, one after the other, also where the text ends within one."""

from __future__ import annotations

import re
from typing import Literal, NamedTuple

WordKind = Literal["blank", "comment", "word", "name", "string", "number", "parameter", "mark"]

MARKS = ("<=", ">=", "<>", "=~", "..", "+=", "||", "::", *"-+*/%^=<>()[]{},.:;|&!")
_LONGER = frozenset(mark[0] for mark in MARKS if len(mark) > 1)
_WORD = re.compile(
    r"(?P<blank>\s+|//[^\n]*\n|/\*.*?\*/)"
    r"|(?P<word>[^\W\d]\w*)"
    r"|(?P<name>`(?:[^`]|``)+`)"
    r"|(?P<string>'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\")"
    r"|(?P<number>\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)"
    r"|(?P<parameter>\$\w+)"
    rf"|(?P<mark>{'|'.join(map(re.escape, MARKS))})",
    re.DOTALL,
)
_BEGUN = re.compile(
    r"(?P<comment>/[/*].*)"
    r"|(?P<name>`.*)"
    r"|(?P<string>['\"].*)"
    r"|(?P<number>\d+(?:\.(?!\d)|(?:\.\d+)?(?:[eE][+-]?\d*)?))"
    r"|(?P<parameter>\$\w*)",
    re.DOTALL,
)
_OPEN_AT_END = frozenset(["word", "name", "number", "parameter"])


class Word(NamedTuple):
    """A word. open: the text ends with it, and it could go on."""

    kind: WordKind
    text: str
    end: int
    open: bool


def read_word(text: str, start: int) -> Word | None:
    """Return the word that begins there, None where none can."""
    found = _WORD.match(text, start)
    begun = _BEGUN.match(text, start) if found is None or found.lastgroup in ("number", "mark") else None
    if begun is not None and begun.end() == len(text) and (found is None or begun.end() >= found.end()):
        return Word(begun.lastgroup, begun[0], len(text), True)  # type: ignore[arg-type]
    if found is None:
        return None
    kind, word = found.lastgroup, found[0]
    ends = found.end() == len(text)
    is_open = ends and (kind in _OPEN_AT_END or (kind == "mark" and (word in _LONGER or word == "/")))
    return Word(kind, word, found.end(), is_open)  # type: ignore[arg-type]


def is_whole(word: Word) -> bool:
    """Whether a word that the text ends with may end so: 1, 1.5, 1e3 and $a, and not 1. or 1e or $."""
    found = _WORD.fullmatch(word.text)
    return found is not None and found.lastgroup == word.kind


def quoted(name: str) -> str:
    """Return a name in backticks."""
    return "`" + name.replace("`", "``") + "`"


def unquoted(word: str) -> str:
    """Return the name that a word in backticks stands for."""
    return word[1:-1].replace("``", "`")
