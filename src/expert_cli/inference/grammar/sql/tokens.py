"""Tokens of SQL: read one by one from a text that may still grow, and what may stand at a place."""

from __future__ import annotations

import re
from collections.abc import Callable, Generator
from functools import lru_cache
from typing import Literal, NamedTuple

from expert_cli.inference.grammar.sql.words import SqlDialect, SqlWords

Kind = Literal["word", "quoted", "string", "number", "mark"]
Names = Callable[[str, bool, str], bool]
"""(text in lower case, whether it is whole or a beginning, the mark that quotes it or "") -> whether it is or begins a name."""

_SPACE = re.compile(r"[ \t\r\n\f]*")
_NUMBER = r"(?P<number>[0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?)(?![\w$])"
_OPEN_NUMBER = r"(?P<open_number>[0-9]+\.?[0-9]*[eE][+-]?\Z)"
_STRING = r"(?P<string>'[^']*(?:''[^']*)*'(?!'))|(?P<open_string>'[^']*(?:''[^']*)*\Z)"
_DOUBLE = r'"(?P<double>[^"]*(?:""[^"]*)*)"(?!")|"(?P<open_double>[^"]*(?:""[^"]*)*)\Z'
_OTHERS = r"`(?P<backtick>[^`]+)`|`(?P<open_backtick>[^`]*)\Z|\[(?P<bracket>[^\]]+)\]|\[(?P<open_bracket>[^\]]*)\Z"
_WORD = r"(?P<word>[^\W\d][\w$]*)"
_MARKS = {
    "sqlite": ("->>", "->", "==", "!=", "<>", "<=", ">=", "<<", ">>", "||"),
    "postgresql": (
        "!~*",
        "->>",
        "#>>",
        "->",
        "#>",
        "!~",
        "~*",
        "@>",
        "<@",
        "::",
        "!=",
        "<>",
        "<=",
        ">=",
        "<<",
        ">>",
        "||",
    ),
}
_SINGLE = {"sqlite": "=<>!|&+-*/%~(),.;", "postgresql": "=<>!|&+-*/%~^#@(),.;:[]"}


class Token(NamedTuple):
    """A whole token: `keyword`, in upper case, or the mark itself where it was read as one; `name` in lower case, unquoted;
    `quoted`: the mark that quoted it.
    """

    kind: Kind
    keyword: str
    name: str
    quoted: str = ""


class Want(NamedTuple):
    """What may stand at a place: keywords, marks, names, functions, literals, the end."""

    words: tuple[frozenset[str], ...] = ()
    marks: tuple[frozenset[str], ...] = ()
    names: tuple[Names, ...] = ()
    literals: frozenset[Kind] = frozenset()
    calls: frozenset[str] = frozenset()
    end: bool = False

    def also(self, other: Want) -> Want:
        """Return what may stand where either may."""
        return Want(
            self.words + other.words,
            self.marks + other.marks,
            self.names + other.names,
            self.literals | other.literals,
            self.calls or other.calls,
            self.end or other.end,
        )


Reading = Generator[Want, Token, Token]
"""What reads a part: yields what it wants, is sent the token that stands there, returns the first one after the part."""
Follow = Callable[[], Want]
"""What may stand after a part, asked when the part could end."""


@lru_cache(maxsize=1024)
def want(words: str = "", marks: str = "", *literals: Kind, end: bool = False) -> Want:
    """Return a Want of keywords and marks, blanks between them."""
    return Want(
        (frozenset(words.split()),) if words else (),
        (frozenset(marks.split()),) if marks else (),
        literals=frozenset(literals),
        end=end,
    )


class Found(NamedTuple):
    """A piece of a text, None where only blanks are left, and where it ends.

    over: whether it is whole, whatever follows; whole: whether it may be, as it can also go on where the text ends in it.
    """

    end: int
    token: Token | None
    over: bool = True
    whole: bool = True


@lru_cache(maxsize=2)
def _pattern(dialect: SqlDialect) -> re.Pattern[str]:
    quotes = _DOUBLE if dialect == "postgresql" else f"{_DOUBLE}|{_OTHERS}"
    marks = "|".join(map(re.escape, (*_MARKS[dialect], *_SINGLE[dialect])))
    refused = r"(?P<refused>--|/\*)"
    return re.compile("|".join((_OPEN_NUMBER, _NUMBER, _STRING, quotes, _WORD, refused, f"(?P<mark>{marks})")))


def find(text: str, start: int, dialect: SqlDialect) -> Found | None:
    """Return the token after the blanks at `start`; None where none can stand."""
    space = _SPACE.match(text, start)
    start = space.end() if space else start
    if start == len(text):
        return Found(start, None)
    match = _pattern(dialect).match(text, start)
    if match is None or match.lastgroup is None or match.lastgroup == "refused":
        return None
    group, end = match.lastgroup, match.end()
    opened = group.startswith("open_")
    over = not opened and (end < len(text) or _is_over(group, match[group]))
    return Found(end, _token(group, match[group]), over, not opened)


def _is_over(group: str, text: str) -> bool:
    """Whether nothing that follows can belong to a token."""
    return group in ("backtick", "bracket") or text in ("(", ")", ",", ";", "+", ".", "[", "]")


def _token(group: str, text: str) -> Token:
    if group == "word":
        return Token("word", text.upper(), text.lower())
    if group == "mark":
        return Token("mark", text, "")
    if group.endswith("string"):
        return Token("string", "", text)
    if group.endswith("number"):
        return Token("number", "", text)
    return Token("quoted", "", text.replace('""', '"').lower(), quoted='"' if group.endswith("double") else "[")


def taken(wanted: Want, token: Token, words: SqlWords) -> Token | None:
    """Return a whole token as it is understood where `wanted` may stand; None where it cannot stand."""
    if token.kind == "word":
        if any(token.keyword in group for group in wanted.words):
            return token
        known = token.keyword not in words.reserved and any(name(token.name, True, "") for name in wanted.names)
        return token._replace(keyword="") if known or token.name in wanted.calls else None
    if token.kind == "quoted":
        return token if any(name(token.name, True, token.quoted) for name in wanted.names) else None
    if token.kind == "mark":
        return token if any(token.keyword in group for group in wanted.marks) else None
    return token if token.kind in wanted.literals else None


def may_begin(wanted: Want, tail: Token) -> bool:
    """Whether a token that may go on can become one that `wanted` takes."""
    if tail.kind == "word":
        return (
            any(tail.keyword in _beginnings(group) for group in wanted.words)
            or any(name(tail.name, False, "") for name in wanted.names)
            or tail.name in _beginnings(wanted.calls)
        )
    if tail.kind == "quoted":
        return any(name(tail.name, False, tail.quoted) for name in wanted.names)
    if tail.kind == "mark":
        return any(tail.keyword in _beginnings(group) for group in wanted.marks)
    return tail.kind in wanted.literals


@lru_cache(maxsize=1024)
def _beginnings(words: frozenset[str]) -> frozenset[str]:
    return frozenset(word[:length] for word in words for length in range(1, len(word) + 1))
