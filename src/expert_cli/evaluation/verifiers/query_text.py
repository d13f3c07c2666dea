"""Statements of a query text, found without taking quotes and comments for code. Linear in the length of the text."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Literal, NamedTuple

Dialect = Literal["sqlite", "postgresql", "cypher"]

_DOUBLED = (r"'[^']*(?:''[^']*)*(?:'|\Z)", r'"[^"]*(?:""[^"]*)*(?:"|\Z)')
_ESCAPED = (r"'[^'\\]*(?:\\.[^'\\]*)*(?:'|\Z)", r'"[^"\\]*(?:\\.[^"\\]*)*(?:"|\Z)')
_BACKTICKS = r"`[^`]*(?:``[^`]*)*(?:`|\Z)"
_CODE = r"(?P<word>[^\W\d]\w*)|(?P<mark>[^\s\w])|(?P<number>\w+)"
_QUOTES: dict[Dialect, tuple[str, ...]] = {
    "sqlite": (*_DOUBLED, _BACKTICKS, r"\[[^\]]*(?:\]|\Z)", r"(?P<line>--[^\n]*)"),
    "postgresql": (
        *(rf"[eE]{_ESCAPED[0]}", *_DOUBLED, r"(?P<dollar>\$\w*\$).*?(?:(?P=dollar)|\Z)", r"(?P<line>--[^\n]*)"),
    ),
    "cypher": (*_ESCAPED, _BACKTICKS, r"(?P<line>//[^\n]*)"),
}
_TOKENS = {
    dialect: re.compile("|".join((r"(?P<block>/\*.*?(?:\*/|\Z))", *quotes, _CODE)), re.DOTALL)
    for dialect, quotes in _QUOTES.items()
}
_HIDDEN = 0xF0000  # where Unicode's private characters begin
PRIVATE = f"{chr(_HIDDEN)}-{chr(0x10FFFD)}"
"""What stands for a quote, as a range of a regular expression."""


class QueryToken(NamedTuple):
    """A word, mark, number or quoted text of the code, in how many brackets it stands, and where in the statement."""

    text: str
    depth: int
    start: int
    end: int
    quoted: bool


def tokens(statement: str, dialect: Dialect) -> Iterator[QueryToken]:
    """Yield all but blanks and comments; a closing bracket stands where its opening one does."""
    depth = 0
    for match in _TOKENS[dialect].finditer(statement):
        if match.lastgroup not in ("block", "line"):
            mark = match["mark"] or " "
            depth -= mark in ")]}"
            yield QueryToken(match[0], depth, match.start(), match.end(), not match["mark"] and not match["word"])
            depth += mark in "([{"


def split(text: str, dialect: Dialect) -> list[str]:
    """Return the statements of `text`, without the semicolons between them; what holds only comments is none."""
    found, start, filled = [], 0, False
    for token in tokens(text, dialect):
        if token.text == ";":
            found += [text[start : token.start].strip()] if filled else []
            start, filled = token.end, False
        else:
            filled = True
    return [*found, text[start:].strip()] if filled else found


def code_words(statement: str, dialect: Dialect) -> list[str]:
    """Return the words and marks of the code, in upper case."""
    return [token.text.upper() for token in tokens(statement, dialect) if not token.quoted]


def without_distinct(text: str, dialect: Dialect) -> str:
    """Return the text without any DISTINCT."""
    return _TOKENS[dialect].sub(lambda found: "" if found[0].upper() == "DISTINCT" else found[0], text)


def hide_quotes(statement: str, dialect: Dialect) -> tuple[str, list[str]]:
    """Return a statement, of no more than 100,000 quotes, with every quote and comment as one private character; and these."""
    hidden: list[str] = []

    def hide(match: re.Match[str]) -> str:
        if match.lastgroup in ("word", "mark", "number"):
            return match[0]
        hidden.append(match[0])
        return chr(_HIDDEN + len(hidden) - 1)

    return _TOKENS[dialect].sub(hide, statement), hidden


def show_quotes(code: str, hidden: list[str]) -> str:
    """Put what `hide_quotes` took out in its places again."""
    return "".join(hidden[ord(mark) - _HIDDEN] if 0 <= ord(mark) - _HIDDEN < len(hidden) else mark for mark in code)


def orders_rows(statement: str, dialect: Dialect) -> bool:
    """Whether the order of the result's rows is asked for: an ORDER BY outside brackets, in Cypher after the last RETURN."""
    outer = [one.text.upper() for one in tokens(statement, dialect) if not one.depth and not one.quoted]
    if dialect == "cypher" and "RETURN" in outer:
        outer = outer[len(outer) - 1 - outer[::-1].index("RETURN") :]
    return ("ORDER", "BY") in pairwise(outer)


def orders_within(statement: str, dialect: Dialect) -> bool:
    """Whether ORDER BY stands anywhere in a statement: in a subquery, in a window too."""
    return ("ORDER", "BY") in pairwise(code_words(statement, dialect))


def orders_lists(statement: str) -> bool:
    """Whether the order of a Cypher query's lists is defined: it collects nothing, or orders it before the last RETURN.

    Cypher leaves open the order of what is collected, of labels and keys, and of a pattern that is listed, which [( begins.
    """
    code = code_words(statement, "cypher")
    last = len(code) - 1 - code[::-1].index("RETURN") if "RETURN" in code else len(code)
    begins = {("[", "("), *((word, mark) for word in ("COLLECT", "LABELS", "KEYS") for mark in "({")}
    return begins.isdisjoint(pairwise(code)) or ("ORDER", "BY") in pairwise(code[:last])
