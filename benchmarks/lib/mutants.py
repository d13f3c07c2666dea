"""Wrong queries next to a right one, each with its kind: what a judge is to tell from it.

A mutant differs in one place. Some mean the same as the query they were made of; nothing here can tell which.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlglot import exp, parse_one

Columns = Mapping[str, Sequence[str]]
"""The columns of each table; names of tables in lower case."""
Change = Callable[[Any, Columns], Iterator[exp.Expression]]


@dataclass(frozen=True)
class Mutant:
    """A changed query. kind: what was changed."""

    kind: str
    query: str


def sql_mutants(query: str, columns: Columns, seed: int = 0) -> list[Mutant]:
    """Return every mutant of an SQLite query, each text once, in an order that the seed decides.

    Raises sqlglot.errors.ParseError where the query does not parse.
    """
    tree = _with_texts(parse_one(query, read="sqlite"), columns)
    found = {tree.sql("sqlite"): ""}
    for place, node in enumerate(tree.walk()):
        for kind, of, change in SQL_CHANGES:
            if isinstance(node, of):
                for new in change(node, columns):
                    found.setdefault(_replaced(tree, place, new).sql("sqlite"), kind)
    made = [Mutant(kind, text) for text, kind in found.items() if kind]
    random.Random(seed).shuffle(made)
    return made


def _with_texts(tree: Any, columns: Columns) -> Any:
    """Return a query with texts that stand in double quotes, as SQLite allows, in single ones."""
    known = {name.lower() for names in columns.values() for name in names}

    def text(node: Any) -> Any:
        quoted = isinstance(node, exp.Column) and node.this.args.get("quoted") and not node.table
        return exp.Literal.string(node.name) if quoted and node.name.lower() not in known else node

    return tree.transform(text)


def _replaced(tree: Any, place: int, new: Any) -> Any:
    copy = tree.copy()
    old = next(node for number, node in enumerate(copy.walk()) if number == place)
    if old is copy:
        return new
    old.replace(new)
    return copy


OPERATORS: Mapping[Any, Sequence[Any]] = {
    exp.EQ: (exp.NEQ, exp.GTE),
    exp.NEQ: (exp.EQ,),
    exp.GT: (exp.GTE, exp.LT),
    exp.GTE: (exp.GT, exp.LTE),
    exp.LT: (exp.LTE, exp.GT),
    exp.LTE: (exp.LT, exp.GTE),
    exp.And: (exp.Or,),
    exp.Or: (exp.And,),
    exp.Add: (exp.Sub,),
    exp.Sub: (exp.Add,),
    exp.Mul: (exp.Add,),
    exp.Div: (exp.Mul,),
}


def _operators(node: Any, columns: Columns) -> Iterator[exp.Expression]:  # noqa: ARG001  as the others
    if isinstance(node, exp.EQ) and isinstance(node.parent, exp.Join):
        return
    for other in OPERATORS.get(type(node), ()):
        yield other(this=node.this.copy(), expression=node.expression.copy())


def _negations(node: Any, columns: Columns) -> Iterator[exp.Expression]:  # noqa: ARG001
    if isinstance(node, exp.Not):
        yield node.this.copy()
    elif not isinstance(node.parent, exp.Not):
        yield exp.Not(this=node.copy())


def _set_operations(node: Any, columns: Columns) -> Iterator[exp.Expression]:  # noqa: ARG001
    for other, distinct in ((exp.Union, True), (exp.Intersect, True), (exp.Except, True), (exp.Union, False)):
        if (type(node), bool(node.args.get("distinct"))) != (other, distinct):
            copy = node.copy()
            yield other(**{**copy.args, "distinct": distinct})


def _constants(node: Any, columns: Columns) -> Iterator[exp.Expression]:  # noqa: ARG001
    if isinstance(node.parent, exp.Limit | exp.Offset | exp.Order | exp.Ordered | exp.Group):
        return
    if not node.is_string:
        for step in (-1, 1):
            number = float(node.name) + step
            yield exp.Literal.number(str(int(number) if number.is_integer() else number))
    elif re.fullmatch(r"-?\d+", node.name):
        yield exp.Literal.string(str(int(node.name) + 1))
    else:
        others = {one.name for one in node.root().find_all(exp.Literal) if one.is_string} - {node.name}
        for text in (*sorted(others), node.name.swapcase(), node.name[:-1]):
            yield exp.Literal.string(text)


def _columns(node: Any, columns: Columns) -> Iterator[exp.Expression]:
    """Yield the other columns of the table that a column is of, where that is plain."""
    select = node.find_ancestor(exp.Select)
    joins = select.args.get("joins") or [] if select else []
    tables = [one.this for one in (select.args.get("from_"), *joins) if one] if select else []
    named = {table.alias_or_name.lower(): columns.get(table.name.lower(), ()) for table in tables}
    holders = [named.get(node.table.lower(), ())] if node.table else list(named.values())
    for names in holders:
        if node.name.lower() in map(str.lower, names):
            for name in names:
                if name.lower() != node.name.lower():
                    copy = node.copy()
                    copy.set("this", exp.to_identifier(name, quoted=not name.isidentifier()))
                    yield copy
            return


AGGREGATES = (exp.Count, exp.Sum, exp.Avg, exp.Min, exp.Max)


def _aggregates(node: Any, columns: Columns) -> Iterator[exp.Expression]:  # noqa: ARG001
    inside = node.this
    if isinstance(inside, exp.Distinct):
        yield type(node)(this=inside.expressions[0].copy())
        return
    if isinstance(inside, exp.Star):
        return
    for other in AGGREGATES:
        if not isinstance(node, other):
            yield other(this=inside.copy())
    if isinstance(node, exp.Count | exp.Sum | exp.Avg):
        yield type(node)(this=exp.Distinct(expressions=[inside.copy()]))


def _joins(node: Any, columns: Columns) -> Iterator[exp.Expression]:  # noqa: ARG001
    if node.args.get("on") or node.args.get("using"):
        copy = node.copy()
        copy.set("side", None if node.side else "LEFT")
        copy.set("kind", None)
        yield copy


def _distinct(node: Any, columns: Columns) -> Iterator[exp.Expression]:  # noqa: ARG001
    """Yield nothing where rows are a set in any case: inside IN and the like, in set operations, one row of aggregates."""
    within = node.parent.parent if isinstance(node.parent, exp.Subquery) else node.parent
    alone = not node.args.get("group") and all(one.find(*AGGREGATES) for one in node.expressions)
    if alone or isinstance(within, exp.In | exp.Exists | exp.SetOperation):
        return
    copy = node.copy()
    copy.set("distinct", None if node.args.get("distinct") else exp.Distinct())
    yield copy


def _order(node: Any, columns: Columns) -> Iterator[exp.Expression]:  # noqa: ARG001
    if isinstance(node, exp.Ordered):
        desc = not node.args.get("desc")
        yield exp.Ordered(this=node.this.copy(), desc=desc, nulls_first=not desc)
    elif node.args.get("order"):
        copy = node.copy()
        copy.set("order", None)
        yield copy


def _limit(node: Any, columns: Columns) -> Iterator[exp.Expression]:  # noqa: ARG001
    limit = node.args.get("limit")
    if limit is None or not limit.expression.is_int:
        return
    for value in (int(limit.expression.name) + 1, int(limit.expression.name) - 1, 0):
        copy = node.copy()
        copy.set("limit", exp.Limit(expression=exp.Literal.number(value)) if value > 0 else None)
        yield copy


def _dropped(node: Any, columns: Columns) -> Iterator[exp.Expression]:  # noqa: ARG001
    if isinstance(node, exp.And | exp.Or):
        yield node.this.copy()
        yield node.expression.copy()
        return
    for clause in ("where", "having", "group"):
        if node.args.get(clause):
            copy = node.copy()
            copy.set(clause, None)
            yield copy


_SELECTS = (exp.Select, exp.SetOperation)
SQL_CHANGES: Sequence[tuple[str, Any, Change]] = (
    ("operator", tuple(OPERATORS), _operators),
    ("operator", (exp.Like, exp.In, exp.Between, exp.Exists, exp.Is, exp.Not), _negations),
    ("operator", exp.SetOperation, _set_operations),
    ("constant", exp.Literal, _constants),
    ("column", exp.Column, _columns),
    ("aggregate", AGGREGATES, _aggregates),
    ("join", exp.Join, _joins),
    ("distinct", exp.Select, _distinct),
    ("order", (exp.Ordered, *_SELECTS), _order),
    ("limit", _SELECTS, _limit),
    ("predicate", (exp.And, exp.Or, exp.Select), _dropped),
)
"""Kind, nodes it applies to, and what can stand in a node's place."""

_TOKEN = re.compile(
    r"(?P<text>'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\")|(?P<arrow>-\[[^\]]*\]->|<-\[[^\]]*\]-)"
    r"|(?P<number>(?<![\w.*])\d+(?:\.\d+)?(?![\w.]))|(?P<property>(?<=\w\.)\w+)|(?P<mark><>|<=|>=|=~|[=<>])|(?P<word>\w+)"
)
_CYPHER_MARKS = {
    "=": ("<>", ">="),
    "<>": ("=",),
    ">": (">=", "<"),
    ">=": (">", "<="),
    "<": ("<=", ">"),
    "<=": ("<", ">="),
}
CYPHER_PATTERNS: Sequence[tuple[str, str, Sequence[str]]] = (
    ("operator", r"\bAND\b", ("OR",)),
    ("operator", r"(?<!STARTS )(?<!ENDS )\bOR\b", ("AND",)),
    ("operator", r"\bNOT ", ("",)),
    ("operator", r"\bIS NULL\b", ("IS NOT NULL",)),
    ("operator", r"\bIS NOT NULL\b", ("IS NULL",)),
    ("operator", r"\bSTARTS WITH\b", ("ENDS WITH", "CONTAINS")),
    ("operator", r"\bENDS WITH\b", ("STARTS WITH", "CONTAINS")),
    ("operator", r"\bCONTAINS\b", ("STARTS WITH",)),
    ("operator", r"\bUNION ALL\b", ("UNION",)),
    ("operator", r"\bUNION\b(?! ALL)", ("UNION ALL",)),
    ("aggregate", r"\bmax\(", ("min(", "avg(")),
    ("aggregate", r"\bmin\(", ("max(", "avg(")),
    ("aggregate", r"\bsum\(", ("avg(", "max(")),
    ("aggregate", r"\bavg\(", ("sum(", "max(")),
    ("aggregate", r"\bcount\((?!DISTINCT|\*)", ("sum(", "count(DISTINCT ")),
    ("distinct", r"\bDISTINCT ", ("",)),
    ("distinct", r"\bRETURN (?!DISTINCT)", ("RETURN DISTINCT ",)),
    ("join", r"\bOPTIONAL MATCH\b", ("MATCH",)),
    ("join", r"(?<!OPTIONAL )(?<!^)\bMATCH\b", ("OPTIONAL MATCH",)),
    ("label", r"(?<=\(\w):\w+|(?<=\(\w\w):\w+", ("",)),
    ("order", r" DESC\b", ("",)),
    ("order", r"\bORDER BY \S+(?: ASC)?(?= |$)(?! DESC)(?=(?: LIMIT .*)?$)", (r"\g<0> DESC",)),
    ("order", r" ORDER BY .*?(?= LIMIT| SKIP|$)", ("",)),
    ("limit", r" LIMIT \d+", ("",)),
    ("predicate", r" WHERE (?:(?! WHERE ).)*?(?= (?:RETURN|(?<!STARTS )(?<!ENDS )WITH|MATCH|OPTIONAL)\b)", ("",)),
    ("predicate", r"(?<=WHERE )(?:(?! RETURN | WITH | MATCH |\)).)*? (?:AND|OR) ", ("",)),
    ("predicate", r" (?:AND|OR) (?:(?! AND | OR | RETURN | WITH | MATCH ).)*(?= RETURN)", ("",)),
)  # fmt: skip
"""Kind, what is replaced, and by what; each applies to every place in turn."""


def cypher_mutants(query: str, properties: Sequence[str] = (), seed: int = 0) -> list[Mutant]:
    """Return every mutant of a Cypher query on one line, each text once, in an order that the seed decides.

    properties: names that may stand in one another's place.
    """
    found = {query: ""}
    for kind, pattern, replacements in CYPHER_PATTERNS:
        for match in re.finditer(pattern, query):
            for new in replacements:
                found.setdefault(query[: match.start()] + match.expand(new) + query[match.end() :], kind)
    for match in _TOKEN.finditer(query):
        for kind, new in _token_changes(match, query, properties):
            found.setdefault(query[: match.start()] + new + query[match.end() :], kind)
    made = [Mutant(kind, text) for text, kind in found.items() if kind]
    random.Random(seed).shuffle(made)
    return made


def _token_changes(match: re.Match[str], query: str, properties: Sequence[str]) -> Iterator[tuple[str, str]]:
    text = match[0]
    if match["text"]:
        others = sorted({other["text"] for other in _TOKEN.finditer(query) if other["text"]} - {text})
        yield from (("constant", new) for new in (*others, text.swapcase(), f"{text[:-2]}{text[-1]}"))
    elif match["arrow"]:
        yield "direction", f"<{text[:-1]}" if text.endswith(">") else f"{text[1:]}>"
        yield "label", re.sub(r":\w+", "", text, count=1)
    elif match["number"]:
        limit = query[: match.start()].endswith(("LIMIT ", "SKIP "))
        numbers = (float(text) + 1, float(text) - 1)
        kind = "limit" if limit else "constant"
        yield from ((kind, f"{n:g}" if n % 1 else str(int(n))) for n in numbers if n > 0 or not limit)
    elif match["mark"]:
        yield from (("operator", new) for new in _CYPHER_MARKS.get(text, ()))
    elif match["property"]:
        yield from (("property", name) for name in properties if name != text)
