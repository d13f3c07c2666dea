"""What a query's tokens, by sqlglot, tell: its statements, and what it orders. Of Cypher sqlglot is told the quotes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import pairwise
from typing import ClassVar, Literal

from sqlglot import Token, TokenError, Tokenizer, TokenType, tokenize

from expert_cli.evaluation.verifiers.sandbox.child_process import Stopped

Dialect = Literal["sqlite", "postgresql", "cypher"]
SQLGLOT = {"sqlite": "sqlite", "postgresql": "postgres"}
TEXTS = (TokenType.STRING, TokenType.NATIONAL_STRING, TokenType.BYTE_STRING, TokenType.HEREDOC_STRING)
BEGINS = (TokenType.SELECT, TokenType.WITH, TokenType.VALUES, TokenType.VAR)
"""What begins a query, or a word that begins nothing."""
_OPENS, _CLOSES = ({getattr(TokenType, f"{side}_{of}") for of in ("PAREN", "BRACKET", "BRACE")} for side in ("L", "R"))


class _Cypher(Tokenizer):
    QUOTES, IDENTIFIERS, COMMENTS, STRING_ESCAPES = ["'", '"'], ["`"], ["//", ("/*", "*/")], ["\\"]
    COMMANDS: ClassVar[set[TokenType]] = set()  # CALL begins no other language


@lru_cache(maxsize=64)
def tokens(statement: str, dialect: Dialect) -> list[Token]:
    """Return all but blanks and comments. Raises `Stopped` for quotes or comments that are left open."""
    try:
        return _Cypher().tokenize(statement) if dialect == "cypher" else tokenize(statement, read=SQLGLOT[dialect])
    except TokenError as error:
        raise Stopped("invalid", f"a quote or comment is left open: {error}") from error


for _name in SQLGLOT.values():
    tokenize("", read=_name)  # a dialect is loaded while the process may still open files


def outer(statement: str, dialect: Dialect) -> Iterator[Token]:
    """Yield the tokens outside all brackets."""
    depth = 0
    for token in tokens(statement, dialect):
        depth -= token.token_type in _CLOSES
        if not depth:
            yield token
        depth += token.token_type in _OPENS


def split(text: str, dialect: Dialect) -> list[str]:
    """Return the statements of `text`, without the semicolons between them; what holds only comments is none."""
    found, start, filled = [], 0, False
    for token in tokens(text, dialect):
        is_end = token.token_type is TokenType.SEMICOLON
        if is_end:
            found += [text[start : token.start].strip()] if filled else []
            start = token.end + 1
        filled = not is_end
    return [*found, text[start:].strip()] if filled else found


def words(code: Iterable[Token]) -> list[str]:
    """Return words and marks in upper case, "" for a text or quoted name."""
    return ["" if one.token_type in (*TEXTS, TokenType.IDENTIFIER) else one.text.upper() for one in code]


def without(statement: str, dialect: Dialect, kinds: tuple[TokenType, ...], put: str) -> str:
    """Return a statement with `put` in the place of tokens."""
    for token in reversed(tokens(statement, dialect)):
        if token.token_type in kinds:
            statement = statement[: token.start] + put + statement[token.end + 1 :]
    return statement


def orders_rows(statement: str, dialect: Dialect) -> bool:
    """Whether the order of the result's rows is asked for: an ORDER BY outside brackets, in Cypher after the last RETURN."""
    code = words(outer(statement, dialect))
    if dialect == "cypher" and "RETURN" in code:
        code = code[len(code) - 1 - code[::-1].index("RETURN") :]
    return "ORDER BY" in code


def orders_lists(statement: str) -> bool:
    """Whether the order of a Cypher query's lists is defined: it collects nothing, or orders it before the last RETURN.

    Cypher leaves open the order of what is collected, of labels and keys, and of a pattern that is listed, which [( begins.
    """
    code = words(tokens(statement, "cypher"))
    last = len(code) - 1 - code[::-1].index("RETURN") if "RETURN" in code else len(code)
    begins = {("[", "("), *((word, mark) for word in ("COLLECT", "LABELS", "KEYS") for mark in "({")}
    return begins.isdisjoint(pairwise(code)) or "ORDER BY" in code[:last]
