"""Compares rows by the rules `strict` and `spider` (docs/JUDGING.md), and finds out with sqlglot's tokenizer whether a query
orders its rows.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain, permutations, product
from typing import Any, ClassVar, Literal

from sqlglot import Token, TokenError, Tokenizer, TokenType, tokenize

from expert_cli.evaluation.verifiers.case import Stopped

Dialect = Literal["sqlite", "postgresql", "cypher"]
SQLGLOT = {"sqlite": "sqlite", "postgresql": "postgres"}
TEXTS = (TokenType.STRING, TokenType.NATIONAL_STRING, TokenType.BYTE_STRING, TokenType.HEREDOC_STRING)
BEGINS = (TokenType.SELECT, TokenType.WITH, TokenType.VALUES, TokenType.VAR)
"""Token types with which a query may begin. VAR: a word that is not a keyword."""
_OPENS, _CLOSES = ({getattr(TokenType, f"{side}_{of}") for of in ("PAREN", "BRACKET", "BRACE")} for side in ("L", "R"))


class _Cypher(Tokenizer):
    QUOTES, IDENTIFIERS, COMMENTS, STRING_ESCAPES = ["'", '"'], ["`"], ["//", ("/*", "*/")], ["\\"]
    COMMANDS: ClassVar[set[TokenType]] = set()  # CALL is not a command here


@lru_cache(maxsize=64)
def tokens(statement: str, dialect: Dialect) -> list[Token]:
    """Return the tokens without white space and comments. Raises `Stopped` for an unclosed quote or comment."""
    try:
        return _Cypher().tokenize(statement) if dialect == "cypher" else tokenize(statement, read=SQLGLOT[dialect])
    except TokenError as error:
        raise Stopped("invalid", f"a quote or comment is left open: {error}") from error


for _name in SQLGLOT.values():
    tokenize("", read=_name)  # load the dialects while this process may still open files


def outer(statement: str, dialect: Dialect) -> Iterator[Token]:
    """Yield the tokens outside all brackets."""
    depth = 0
    for token in tokens(statement, dialect):
        depth -= token.token_type in _CLOSES
        if not depth:
            yield token
        depth += token.token_type in _OPENS


def split(text: str, dialect: Dialect) -> list[str]:
    """Return the statements of `text` without their semicolons; comments without code are not a statement."""
    found, start, filled = [], 0, False
    for token in tokens(text, dialect):
        is_end = token.token_type is TokenType.SEMICOLON
        if is_end:
            found += [text[start : token.start].strip()] if filled else []
            start = token.end + 1
        filled = not is_end
    return [*found, text[start:].strip()] if filled else found


def words(code: Iterable[Token]) -> list[str]:
    """Return keywords and symbols in upper case, "" for a string or a quoted name."""
    return ["" if one.token_type in (*TEXTS, TokenType.IDENTIFIER) else one.text.upper() for one in code]


def without(statement: str, dialect: Dialect, kinds: tuple[TokenType, ...], put: str) -> str:
    """Return a statement with tokens of some kinds replaced by `put`."""
    for token in reversed(tokens(statement, dialect)):
        if token.token_type in kinds:
            statement = statement[: token.start] + put + statement[token.end + 1 :]
    return statement


def orders_rows(statement: str, dialect: Dialect) -> bool:
    """Whether the query orders its rows: it has an ORDER BY outside brackets, in Cypher after the last RETURN."""
    code = words(outer(statement, dialect))
    return "ORDER BY" in code[_last_return(code) :]


def orders_lists(statement: str) -> bool:
    """Whether the lists in a Cypher query's result have a defined order, that is, the query does not call collect()."""
    return "COLLECT" not in words(tokens(statement, "cypher"))


def _last_return(code: Sequence[str]) -> int:
    return max((place for place, word in enumerate(code) if word == "RETURN"), default=0)


Rule = Literal["strict", "spider"]
TOLERANCE, NOISE = 1e-6, 1e-9
"""Relative tolerances of floats: TOLERANCE for equality, NOISE for sums that were added in another order."""
MAX_ORDER_LOOKS = 1_000_000
"""The most comparisons of rows to find a column order or pairs of equal rows. Beyond it, only one order is compared."""

Row = tuple[Any, ...]
Run = Callable[[str], Sequence[Row]]
Flat = tuple[str, tuple[int | float, ...]]
"""A row as text without its numbers, which is compared exactly, and the numbers."""


Ties = Sequence[Sequence[Row]]
"""All rows of an ordered query without its LIMIT, grouped by equal sort keys."""


@dataclass(frozen=True)
class Result:
    """The result of an accepted query. ordered: the order of rows counts; ordered_lists: the order inside lists counts."""

    rows: Sequence[Row]
    ordered: bool = False
    ordered_lists: bool = True
    ties: Ties | None = None


def is_right(rule: Rule, rows: Sequence[Row], expected: Result) -> bool:
    """Whether `rows` are right by a rule; identical rows, the common case, are accepted at once."""
    return repr(rows) == repr(expected.rows) or (same if rule == "strict" else same_by_spider)(rows, expected)


def same(rows: Sequence[Row], expected: Result) -> bool:
    """Whether `rows` are right by the rule `strict`."""
    if len(rows) != len(expected.rows):
        return False
    in_order = [[row] for row in expected.rows] if expected.ordered else [expected.rows]
    return _within(rows, expected.ties or in_order, expected.ordered_lists)


def _within(rows: Sequence[Row], ties: Ties, ordered_lists: bool) -> bool:
    """Whether the rows follow the groups of ties, in any order within a group. If a LIMIT cuts a group, any of its rows fit."""
    flat, start = _flattened(rows, ordered_lists), 0
    for group in ties:
        part = flat[start : start + len(group)]
        start += len(group)
        if part and not _are_among(part, _flattened(group, ordered_lists)):
            return False
    return start >= len(rows)


def _are_among(part: Sequence[Flat], group: Sequence[Flat]) -> bool:
    """Whether the rows are among the group's rows, counting repeats."""
    others = iter(sorted(group, key=_rounded))
    if all(any(_alike(one, other) for other in others) for one in sorted(part, key=_rounded)):
        return True
    left = list(group) if len(part) * len(group) <= MAX_ORDER_LOOKS else []  # noise may have sorted them differently
    for one in part:
        place = next((n for n, other in enumerate(left) if _alike(one, other)), None)
        if place is None:
            return False
        del left[place]
    return True


def _alike(one: Flat, other: Flat) -> bool:
    return one[0] == other[0] and all(map(_close, one[1], other[1]))


def _close(one: float, other: float) -> bool:
    return one == other or (isinstance(one + other, float) and math.isclose(one, other, rel_tol=TOLERANCE))


def _flattened(rows: Sequence[Row], ordered_lists: bool) -> list[Flat]:
    """Separate rows into text and numbers. ordered_lists: the order of list items counts."""

    def shape(value: Any) -> Any:
        if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
            numbers.append(value)
            return 0
        if isinstance(value, list):
            return [shape(one) for one in (value if ordered_lists else sorted(value, key=repr))]
        return {key: shape(value[key]) for key in sorted(value)} if isinstance(value, dict) else value

    found = []
    for row in rows:
        numbers: list[int | float] = []
        found.append((repr([shape(value) for value in row]), tuple(numbers)))
    return found


def _rounded(row: Flat) -> Flat:
    """Return a row with its numbers rounded, so that the order of additions does not matter."""
    both = ((round(number), number) for number in row[1])
    return row[0], tuple(
        whole if math.isclose(whole, number, rel_tol=NOISE) else float(f"{number:.9g}") for whole, number in both
    )


def same_by_spider(rows: Sequence[Row], expected: Result) -> bool:
    """Whether `rows` are right by the rule `spider`; two empty results are equal, whatever their columns."""
    if not rows or not expected.rows:
        return len(rows) == len(expected.rows)
    given, wanted = ([tuple(map(_hashable, one)) for one in zip(*side, strict=True)] for side in (rows, expected.rows))
    if expected.ordered:
        return Counter(given) == Counter(wanted)
    alike = defaultdict[Hashable, tuple[list[Row], list[Row]]](lambda: ([], []))  # columns with the same values
    for side, columns in enumerate((given, wanted)):
        for column in columns:
            alike[frozenset(Counter(column).items())][side].append(column)
    if any(len(here) != len(there) for here, there in alike.values()):
        return False
    here, there = zip(*alike.values(), strict=True)
    goal, are_few = Counter(zip(*chain(*there), strict=True)), math.prod(math.factorial(len(one)) for one in here)
    orders = product(*map(permutations, here)) if are_few * len(rows) <= MAX_ORDER_LOOKS else [here]
    return any(Counter(zip(*chain(*order), strict=True)) == goal for order in orders)


def _hashable(cell: Any) -> Hashable:
    return repr(cell) if isinstance(cell, list | dict) else cell


def rows_key(rule: Rule, rows: Sequence[Row], accepted: Sequence[Result]) -> Hashable:
    """Return a key, equal for results that the rule treats as equal. It keeps the row order if all of `accepted` have one.

    For `spider`, columns with the same values keep their order.
    """
    if rule == "spider":  # columns may have any order
        rows = [*zip(*sorted(zip(*rows, strict=True), key=lambda column: sorted(map(repr, column))), strict=True)]
    keys = [*map(_rounded, _flattened(rows, accepted[0].ordered_lists))]
    return tuple(keys if all(result.ordered for result in accepted) else sorted(keys))


def find_ties(query: str, dialect: Dialect, own: Result, run: Run, columns: Sequence[str]) -> Ties | None:
    """Return the groups of tied rows of an ordered query; None if they cannot be found, and only its own order is right.

    The query is run twice without its LIMIT, with all result columns appended to its sort keys, once ascending and once
    descending. A group of ties ends where both runs have returned the same set of rows, so sort keys need not be columns.

    own: the query's own result; columns: how ORDER BY can name each column of it.
    """
    code = [*outer(query, dialect)]
    said = words(code)
    keys = max(place for place, word in enumerate(said, 1) if word == "ORDER BY")
    cut = next((n for n in range(keys, len(said)) if said[n] in ("LIMIT", "OFFSET", "FETCH", "SKIP", "FOR")), len(said))
    if {"OFFSET", "SKIP", ","}.intersection(said[cut:]):  # the rows that it returns need not begin with the first group
        return None
    head = query[: code[cut - 1].end + 1]
    ways = ("ASC", "DESC") if dialect == "cypher" else ("ASC NULLS FIRST", "DESC NULLS LAST")
    try:
        up, down = (run(f"{head}, {', '.join(f'{one} {way}' for one in columns)}") for way in ways)
    except Stopped:
        return None
    groups, start, balance = list[Sequence[Row]](), 0, 0  # sums of row hashes: ascending minus descending
    both = (map(_rounded, _flattened(some, own.ordered_lists)) for some in (up, down))
    for place, (one, other) in enumerate(zip(*both, strict=False), start=1):
        balance += hash(repr(one)) - hash(repr(other))  # not hash() of a number: hash(-1) == hash(-2)
        if not balance:
            groups.append(up[start:place])
            start = place
    return groups if start == len(up) == len(down) and _within(own.rows, groups, own.ordered_lists) else None
