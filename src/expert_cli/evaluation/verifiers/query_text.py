"""Statements of a query text, found without taking quotes and comments for code. Linear in the length of the text."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Literal, NamedTuple

Dialect = Literal["sqlite", "postgresql", "cypher"]

_DOUBLED = (r"'[^']*(?:''[^']*)*(?:'|\Z)", r'"[^"]*(?:""[^"]*)*(?:"|\Z)')
_ESCAPED = (r"'[^'\\]*(?:\\.[^'\\]*)*(?:'|\Z)", r'"[^"\\]*(?:\\.[^"\\]*)*(?:"|\Z)')
_BACKTICKS = r"`[^`]*(?:``[^`]*)*(?:`|\Z)"
_BLOCK_COMMENT = r"(?P<block>/\*.*?(?:\*/|\Z))"
_DASH_COMMENT = r"(?P<line>--[^\n]*)"
_CODE = r"(?P<word>[^\W\d]\w*)|(?P<mark>[^\s\w])|[\w]+"
_QUOTES: dict[Dialect, tuple[str, ...]] = {
    "sqlite": (*_DOUBLED, _BACKTICKS, r"\[[^\]]*(?:\]|\Z)", _DASH_COMMENT),
    "postgresql": (rf"[eE]{_ESCAPED[0]}", *_DOUBLED, r"(?P<dollar>\$\w*\$).*?(?:(?P=dollar)|\Z)", _DASH_COMMENT),
    "cypher": (*_ESCAPED, _BACKTICKS, r"(?P<line>//[^\n]*)"),
}
_TOKENS = {
    dialect: re.compile("|".join((_BLOCK_COMMENT, *quotes, _CODE)), re.DOTALL) for dialect, quotes in _QUOTES.items()
}

_HIDDEN = 0xF0000  # where Unicode's private characters begin
_MOST_HIDDEN = 0x10FFFF - _HIDDEN

_UNORDERED = frozenset(("COLLECT", "LABELS", "KEYS"))


def split(text: str, dialect: Dialect) -> list[str]:
    """Return the statements of `text`, without the semicolons between them; what holds only comments is none."""
    found = []
    start, filled = 0, False
    for match in _TOKENS[dialect].finditer(text):
        if match["mark"] == ";":
            if filled:
                found.append(text[start : match.start()].strip())
            start, filled = match.end(), False
        elif match.lastgroup not in ("block", "line"):
            filled = True
    return [*found, text[start:].strip()] if filled else found


class Token(NamedTuple):
    """A word, mark, number or quoted text of the code, in how many brackets it stands, and where in the statement."""

    text: str
    depth: int
    start: int
    end: int
    quoted: bool


def tokens(statement: str, dialect: Dialect) -> Iterator[Token]:
    """Yield all but blanks and comments; a closing bracket stands where its opening one does."""
    depth = 0
    for match in _TOKENS[dialect].finditer(statement):
        if match.lastgroup in ("block", "line"):
            continue
        mark = match["mark"]
        if mark is not None and mark in ")]}":
            depth -= 1
        yield Token(match[0], depth, match.start(), match.end(), mark is None and match["word"] is None)
        if mark is not None and mark in "([{":
            depth += 1


def code_words(statement: str, dialect: Dialect) -> Iterator[tuple[str, int]]:
    """Yield the words and marks of the code, in upper case, with how many brackets they stand in."""
    for token in tokens(statement, dialect):
        if not token.quoted:
            yield token.text.upper(), token.depth


def without_distinct(text: str, dialect: Dialect) -> str:
    """Return the text with a blank in place of every DISTINCT."""
    words = [token for token in tokens(text, dialect) if token.text.upper() == "DISTINCT"]
    starts, ends = [0, *(word.end for word in words)], [*(word.start for word in words), len(text)]
    return " ".join(text[start:end] for start, end in zip(starts, ends, strict=True))


def rewrite_code(statement: str, dialect: Dialect, rewrite: Callable[[str], str]) -> str:
    """Return the statement with its code rewritten: `rewrite` sees every quote and comment as one private character.

    A statement with more of them than there are such characters is returned as it is.
    """
    hidden: list[str] = []

    def hide(match: re.Match[str]) -> str:
        if match["word"] or match["mark"] or re.fullmatch(r"\w+", match[0]):
            return match[0]
        hidden.append(match[0])
        return chr(_HIDDEN + len(hidden) - 1) if len(hidden) <= _MOST_HIDDEN else ""

    shown = _TOKENS[dialect].sub(hide, statement)
    if len(hidden) > _MOST_HIDDEN:
        return statement
    code = rewrite(shown)
    return "".join(hidden[ord(mark) - _HIDDEN] if 0 <= ord(mark) - _HIDDEN < len(hidden) else mark for mark in code)


def orders_rows(statement: str, dialect: Dialect) -> bool:
    """Whether the order of the result's rows is asked for: an ORDER BY outside brackets, in Cypher after the last RETURN."""
    outer = [word for word, depth in code_words(statement, dialect) if depth == 0]
    if dialect == "cypher" and "RETURN" in outer:
        outer = outer[len(outer) - 1 - outer[::-1].index("RETURN") :]
    return _has_order(outer)


def orders_within(statement: str, dialect: Dialect) -> bool:
    """Whether ORDER BY stands anywhere in a statement: in a subquery, in a window too."""
    return _has_order([word for word, _ in code_words(statement, dialect)])


def orders_lists(statement: str) -> bool:
    """Whether the order of a Cypher query's lists is defined: it collects nothing, or orders it before the last RETURN."""
    code = [word for word, _ in code_words(statement, "cypher")]
    last = len(code) - 1 - code[::-1].index("RETURN") if "RETURN" in code else len(code)
    return not any(_collects(*pair) for pair in pairwise(code)) or _has_order(code[:last])


def _collects(word: str, following: str) -> bool:
    """Whether a list begins here whose order Cypher leaves open; [( begins a pattern that is listed."""
    return (word in _UNORDERED and following in ("(", "{")) or (word, following) == ("[", "(")


def _has_order(code: list[str]) -> bool:
    return any(pair == ("ORDER", "BY") for pair in pairwise(code))
