"""Words and marks of a query, found without taking quotes and comments for code. Linear in the length of the text."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Literal, NamedTuple

Dialect = Literal["sqlite", "postgresql", "cypher"]

_DOUBLED = r"'[^']*(?:''[^']*)*(?:'|\Z)|\"[^\"]*(?:\"\"[^\"]*)*(?:\"|\Z)"
_ESCAPED = r"'[^'\\]*(?:\\.[^'\\]*)*(?:'|\Z)"
_BACKTICKS = r"`[^`]*(?:``[^`]*)*(?:`|\Z)"
_QUOTES: dict[Dialect, str] = {
    "sqlite": rf"(?P<line>--[^\n]*)|{_DOUBLED}|{_BACKTICKS}|\[[^\]]*(?:\]|\Z)",
    "postgresql": rf"(?P<line>--[^\n]*)|[eE]{_ESCAPED}|{_DOUBLED}|(?P<tag>\$\w*\$).*?(?:(?P=tag)|\Z)",
    "cypher": "|".join((r"(?P<line>//[^\n]*)", _ESCAPED, _ESCAPED.replace("'", '"'), _BACKTICKS)),
}
QUOTED = {dialect: rf"(?P<block>/\*.*?(?:\*/|\Z))|{quotes}" for dialect, quotes in _QUOTES.items()}
"""A comment, a text or a quoted name."""
_CODE = r"(?P<word>[^\W\d]\w*)|(?P<mark>[^\s\w])|(?P<number>\w+)"
_TOKENS = {dialect: re.compile(f"{quotes}|{_CODE}", re.DOTALL) for dialect, quotes in QUOTED.items()}


class QueryToken(NamedTuple):
    """A word or mark of the code in upper case, "" for a quote or number; in how many brackets it stands, and where."""

    word: str
    text: str
    depth: int
    start: int
    end: int


def tokens(statement: str, dialect: Dialect) -> Iterator[QueryToken]:
    """Yield all but blanks and comments; a closing bracket stands where its opening one does."""
    depth = 0
    for match in _TOKENS[dialect].finditer(statement):
        if match.lastgroup not in ("block", "line"):
            mark = match["mark"] or " "
            depth -= mark in ")]}"
            yield QueryToken((match["word"] or match["mark"] or "").upper(), match[0], depth, *match.span())
            depth += mark in "([{"


def split(text: str, dialect: Dialect) -> list[str]:
    """Return the statements of `text`, without the semicolons between them; what holds only comments is none."""
    found, start, filled = [], 0, False
    for token in tokens(text, dialect):
        if token.word == ";":
            found += [text[start : token.start].strip()] if filled else []
            start = token.end
        filled = token.word != ";"
    return [*found, text[start:].strip()] if filled else found


def code_words(statement: str, dialect: Dialect) -> list[str]:
    """Return the words and marks of the code, in upper case."""
    return [token.word for token in tokens(statement, dialect) if token.word]


def without_distinct(text: str, dialect: Dialect) -> str:
    """Return the text without any DISTINCT."""
    return _TOKENS[dialect].sub(lambda found: "" if found[0].upper() == "DISTINCT" else found[0], text)


def without_texts(statement: str) -> str:
    """Return a Cypher statement with every text empty, and without comments."""

    def empty(found: re.Match[str]) -> str:
        is_text = found.lastgroup is None and found[0][0] in "'\""
        return "" if found.lastgroup in ("block", "line") else "''" if is_text else found[0]

    return _TOKENS["cypher"].sub(empty, statement)


def orders_rows(statement: str, dialect: Dialect) -> bool:
    """Whether the order of the result's rows is asked for: an ORDER BY outside brackets, in Cypher after the last RETURN."""
    outer = [one.word for one in tokens(statement, dialect) if not one.depth]
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
