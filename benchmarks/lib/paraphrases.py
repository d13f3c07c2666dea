"""Other ways to write an SQLite query that mean the same: what a judge must not take for wrong.

Each rewrite holds by the rules of SQL for any content of the tables, NULL among it; where that depends on keys or on
names, it is made only where they are known. Some queries leave to chance what they return; `left_to_chance` tells them.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlglot import exp, parse_one
from sqlglot.errors import SqlglotError

Tree = Any
"""A query as sqlglot parses it."""


@dataclass(frozen=True)
class Schema:
    """The columns of each table, names of tables in lower case, and the column of each that is a key without NULL."""

    columns: Mapping[str, Sequence[str]]
    keys: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Paraphrase:
    """A query and the rewrites that made it."""

    rewrites: tuple[str, ...]
    query: str


def paraphrases(query: str, schema: Schema, count: int, seed: int = 0) -> list[Paraphrase]:
    """Return up to `count` texts, each other than the query, of one to three rewrites each.

    Raises sqlglot.errors.SqlglotError where the query does not parse.
    """
    chosen = random.Random(f"{seed} {query}")
    tree = _with_texts(parse_one(query, read="sqlite"), schema)
    found: dict[str, Paraphrase] = {}
    for _ in range(4 * count):
        made = _made(tree, schema, chosen)
        if made is not None and made.query != query:
            found.setdefault(made.query, made)
        if len(found) == count:
            break
    return list(found.values())


def variants(query: str, schema: Schema) -> list[Paraphrase]:
    """Return answers that hold what is asked for in another form, which judges are of two minds on.

    Columns in reverse; a column more; whole numbers as floats; rows that are tied in ORDER BY reversed.
    """
    tree = _with_texts(parse_one(query, read="sqlite"), schema)
    if not isinstance(tree, exp.Select) or _has_star(tree):
        return []
    reverse, more, floats, ties = (tree.copy() for _ in range(4))
    reverse.set("expressions", list(reversed(reverse.expressions)))
    more.set("expressions", [exp.alias_(exp.Literal.string("more"), "more"), *more.expressions])
    floats.set("expressions", [_as_float(one) if one.find(exp.Count) else one for one in floats.expressions])
    made = {"columns in reverse": reverse, "a column more": more, "whole numbers as floats": floats}
    order = ties.args.get("order")
    if order and not tree.args.get("distinct"):
        order.append("expressions", exp.Ordered(this=exp.Literal.number(1), desc=True, nulls_first=False))
        made["tied rows in reverse"] = ties
    return [Paraphrase((name,), new.sql("sqlite")) for name, new in made.items() if new != tree]


def _as_float(column: Tree) -> Tree:
    return exp.Mul(this=exp.paren(column.unalias().copy()), expression=exp.Literal.number("1.0"))


def left_to_chance(query: str) -> str:
    """Return what a query leaves to chance, "" for nothing that is plain."""
    try:
        tree = parse_one(query, read="sqlite")
    except SqlglotError:
        return ""
    for select in tree.find_all(exp.Select):
        group = select.args.get("group")
        keys = {one.sql().lower() for one in group.expressions} if group else set()
        loose = [
            one for one in select.expressions if not one.find(exp.AggFunc) and one.unalias().sql().lower() not in keys
        ]
        if loose and (group or any(one.find(exp.AggFunc) for one in select.expressions)):
            return "a column outside GROUP BY"
        if select.args.get("limit") and not select.args.get("order"):
            return "LIMIT without ORDER BY"
        if select.args.get("limit") and select is not tree:
            return "LIMIT in a subquery, whose ties are open"
    return ""


def _made(tree: Tree, schema: Schema, chosen: random.Random) -> Paraphrase | None:
    names: list[str] = []
    for _ in range(chosen.randint(1, 3)):
        for name in chosen.sample(sorted(REWRITES), len(REWRITES)):
            others = list(REWRITES[name](tree.copy(), schema)) if name not in names else []
            if others:
                tree = chosen.choice(others)
                names.append(name)
                break
    name = chosen.choice(sorted(SPELLINGS))
    return Paraphrase((*names, name), SPELLINGS[name](tree)) if names else None


def _with_texts(tree: Tree, schema: Schema) -> Tree:
    """Return a query with texts that stand in double quotes, as SQLite allows, in single ones."""
    known = {name.lower() for names in schema.columns.values() for name in names}

    def text(node: Any) -> Any:
        quoted = isinstance(node, exp.Column) and node.this.args.get("quoted") and not node.table
        return exp.Literal.string(node.name) if quoted and node.name.lower() not in known else node

    return tree.transform(text)


def _each(tree: Tree, kinds: Any, change: Callable[[Any], Any]) -> Iterator[Tree]:
    """Yield the tree with one node at a time replaced; None leaves it."""
    for place, _ in enumerate(tree.find_all(kinds)):
        copy = tree.copy()
        node = list(copy.find_all(kinds))[place]
        new = change(node)
        if new is None:
            continue
        if node is copy:
            yield new
        else:
            node.replace(new)
            yield copy


def _tables(select: Tree) -> list[Tree]:
    sources = [select.args.get("from_"), *(select.args.get("joins") or [])]
    return [one.this for one in sources if one]


def _has_star(tree: Tree) -> bool:
    columns = [one for select in tree.find_all(exp.Select) for one in select.expressions]
    return any(one.is_star for one in columns)


def _table_aliases(tree: Tree, schema: Schema) -> Iterator[Tree]:  # noqa: ARG001  as the others
    named = {table.alias.lower() for table in tree.find_all(exp.Table, exp.Subquery) if table.alias}
    plain = {table.name.lower() for table in tree.find_all(exp.Table) if not table.alias}
    if not named or named & plain:
        return
    for table in tree.find_all(exp.Table, exp.Subquery):
        if table.alias:
            table.set("alias", exp.TableAlias(this=exp.to_identifier(f"the_{table.alias}")))
    for column in tree.find_all(exp.Column):
        if column.table.lower() in named:
            column.set("table", exp.to_identifier(f"the_{column.table}"))
    yield tree


def _column_aliases(tree: Tree, schema: Schema) -> Iterator[Tree]:  # noqa: ARG001
    if (
        isinstance(tree, exp.Select)
        and not _has_star(tree)
        and not any(isinstance(one, exp.Alias) for one in tree.expressions)
    ):
        tree.set("expressions", [exp.alias_(one.copy(), f"c{n}") for n, one in enumerate(tree.expressions)])
        yield tree


def _join_order(tree: Tree, schema: Schema) -> Iterator[Tree]:  # noqa: ARG001
    if not _has_star(tree):
        yield from _each(tree, exp.Select, _swapped_join)


def _is_inner(join: Tree) -> bool:
    return bool(join.args.get("on")) and not join.side and not join.method and join.kind in ("", "INNER")


def _swapped_join(select: Tree) -> Tree | None:
    joins = select.args.get("joins") or []
    if len(joins) != 1 or not _is_inner(joins[0]):
        return None
    first = select.args["from_"].this
    select.args["from_"].set("this", joins[0].this.copy())
    joins[0].set("this", first.copy())
    return select


def _comma_join(tree: Tree, schema: Schema) -> Iterator[Tree]:  # noqa: ARG001
    def change(select: Tree) -> Tree | None:
        joins = select.args.get("joins") or []
        if not joins or not all(map(_is_inner, joins)):
            return None
        for join in joins:
            select = select.where(join.args["on"].copy(), copy=False)
            join.set("on", None)
            join.set("kind", None)
        return select

    yield from _each(tree, exp.Select, change)


def _in_subquery(tree: Tree, schema: Schema) -> Iterator[Tree]:
    def change(node: Tree) -> Tree | None:
        inner = node.args["query"].this if node.args.get("query") else None
        if not isinstance(inner, exp.Select) or node.find_ancestor(exp.Not) or not isinstance(node.this, exp.Column):
            return None
        if any(inner.args.get(key) for key in ("group", "limit", "distinct", "having")) or inner.find(
            exp.AggFunc, exp.Star
        ):
            return None
        if inner.args.get("order") or not isinstance(inner.expressions[0], exp.Column):
            return None
        outside = _qualified(node.this, node.find_ancestor(exp.Select), schema)
        if outside is None or outside.table.lower() in {one.alias_or_name.lower() for one in _tables(inner)}:
            return None
        if any(column.table == "" for column in [inner.expressions[0]]) and len(_tables(inner)) > 1:
            return None
        wanted = _qualified(inner.expressions[0], inner, schema)
        if wanted is None:
            return None
        select = inner.copy().where(exp.EQ(this=wanted, expression=outside))
        select.set("expressions", [exp.Literal.number(1)])
        return exp.Exists(this=select)

    yield from _each(tree, exp.In, change)


def _qualified(column: Tree, select: Tree, schema: Schema) -> Tree | None:
    """Return the column with its table's name, where one of the tables alone has it."""
    if column.table:
        return column.copy()
    tables = _tables(select) if select else []
    if not tables or not all(isinstance(table, exp.Table) for table in tables):
        return None
    holders = [t for t in tables if column.name.lower() in [n.lower() for n in schema.columns.get(t.name.lower(), ())]]
    return exp.column(column.this.copy(), table=holders[0].alias_or_name) if len(holders) == 1 else None


def _in_list(tree: Tree, schema: Schema) -> Iterator[Tree]:  # noqa: ARG001
    def change(node: Tree) -> Tree | None:
        values = node.expressions
        if node.args.get("query") or not values:
            return None
        return exp.paren(exp.or_(*(exp.EQ(this=node.this.copy(), expression=value.copy()) for value in values)))

    yield from _each(tree, exp.In, change)


def _between(tree: Tree, schema: Schema) -> Iterator[Tree]:  # noqa: ARG001
    def change(node: Tree) -> Tree:
        low = exp.GTE(this=node.this.copy(), expression=node.args["low"].copy())
        return exp.paren(exp.and_(low, exp.LTE(this=node.this.copy(), expression=node.args["high"].copy())))

    yield from _each(tree, exp.Between, change)


_OPPOSITE = {exp.EQ: exp.NEQ, exp.NEQ: exp.EQ, exp.GT: exp.LTE, exp.LTE: exp.GT, exp.LT: exp.GTE, exp.GTE: exp.LT}
_MIRRORED = {exp.EQ: exp.EQ, exp.NEQ: exp.NEQ, exp.GT: exp.LT, exp.LT: exp.GT, exp.GTE: exp.LTE, exp.LTE: exp.GTE}


def _negated(tree: Tree, schema: Schema) -> Iterator[Tree]:  # noqa: ARG001
    def change(node: Tree) -> Tree | None:
        if isinstance(node.this, exp.Column) and isinstance(node.expression, exp.Column):
            return None  # a join that no index serves
        return exp.Not(this=exp.paren(_OPPOSITE[type(node)](this=node.this.copy(), expression=node.expression.copy())))

    yield from _each(tree, tuple(_OPPOSITE), change)


def _mirrored(tree: Tree, schema: Schema) -> Iterator[Tree]:  # noqa: ARG001
    def change(node: Tree) -> Tree:
        return _MIRRORED[type(node)](this=node.expression.copy(), expression=node.this.copy())

    yield from _each(tree, tuple(_MIRRORED), change)


def _swapped(tree: Tree, schema: Schema) -> Iterator[Tree]:  # noqa: ARG001
    def change(node: Tree) -> Tree:
        return type(node)(this=exp.paren(node.expression.copy()), expression=exp.paren(node.this.copy()))

    yield from _each(tree, (exp.And, exp.Or), change)


def _count_star(tree: Tree, schema: Schema) -> Iterator[Tree]:
    def change(node: Tree) -> Tree | None:
        if not isinstance(node.this, exp.Star):
            return None
        select = node.find_ancestor(exp.Select)
        outer = [join for join in select.args.get("joins") or [] if join.side]
        keyed = [one for one in _tables(select) if isinstance(one, exp.Table) and one.name.lower() in schema.keys]
        if keyed and not outer:
            return exp.Count(
                this=exp.column(schema.keys[keyed[0].name.lower()], table=keyed[0].alias_or_name, quoted=True)
            )
        return exp.Count(this=exp.Literal.number(1))

    yield from _each(tree, exp.Count, change)


def _with_clause(tree: Tree, schema: Schema) -> Iterator[Tree]:  # noqa: ARG001
    if not tree.args.get("order") and not tree.args.get("limit") and not tree.args.get("with_"):
        yield exp.select("*").from_("found").with_("found", as_=tree, dialect="sqlite")


def _derived_table(tree: Tree, schema: Schema) -> Iterator[Tree]:
    def change(table: Tree) -> Tree | None:
        if table.name.lower() not in schema.columns or not isinstance(table.parent, exp.From | exp.Join):
            return None
        whole = exp.select("*").from_(exp.to_table(table.name, quoted=True))
        return whole.subquery(table.alias_or_name)

    yield from _each(tree, exp.Table, change)


def _group_by(tree: Tree, schema: Schema) -> Iterator[Tree]:  # noqa: ARG001
    def change(select: Tree) -> Tree | None:
        plain = all(isinstance(one, exp.Column) and not isinstance(one.this, exp.Star) for one in select.expressions)
        if (
            not select.args.get("distinct")
            or not plain
            or any(select.args.get(key) for key in ("group", "order", "limit"))
        ):
            return None
        select.set("distinct", None)
        return select.group_by(*(one.copy() for one in select.expressions), copy=False)

    yield from _each(tree, exp.Select, change)


def _order_position(tree: Tree, schema: Schema) -> Iterator[Tree]:  # noqa: ARG001
    order = tree.args.get("order") if isinstance(tree, exp.Select) else None
    texts = (
        [] if order is None or _has_star(tree) else [one.unalias().sql("sqlite").lower() for one in tree.expressions]
    )
    for place, key in enumerate(order.expressions if order else []):
        if key.this.sql("sqlite").lower() in texts:
            copy = tree.copy()
            number = texts.index(key.this.sql("sqlite").lower()) + 1
            copy.args["order"].expressions[place].set("this", exp.Literal.number(number))
            yield copy


def _qualify(tree: Tree, schema: Schema) -> Iterator[Tree]:
    def change(column: Tree) -> Tree | None:
        named = {
            one.alias.lower() for one in column.find_ancestor(exp.Select).expressions if isinstance(one, exp.Alias)
        }
        if column.table or isinstance(column.this, exp.Star) or column.name.lower() in named:
            return None
        return _qualified(column, column.find_ancestor(exp.Select), schema)

    yield from _each(tree, exp.Column, change)


def _set_operands(tree: Tree, schema: Schema) -> Iterator[Tree]:  # noqa: ARG001
    if not isinstance(tree, exp.Union | exp.Intersect):
        return
    sides = (tree.this.copy(), tree.expression.copy())
    whole = any(one.args.get(key) for one in (tree, *sides) for key in ("order", "limit"))
    if not whole and not any(isinstance(side, exp.SetOperation) for side in sides):
        tree.set("this", sides[1])
        tree.set("expression", sides[0])
        yield tree


REWRITES: Mapping[str, Callable[[Tree, Schema], Iterator[Tree]]] = {
    "aliases of tables": _table_aliases,
    "aliases of columns": _column_aliases,
    "order of a join": _join_order,
    "comma for JOIN": _comma_join,
    "EXISTS for IN": _in_subquery,
    "OR for IN": _in_list,
    "comparisons for BETWEEN": _between,
    "NOT of the opposite": _negated,
    "sides of a comparison": _mirrored,
    "order of conditions": _swapped,
    "count of a key": _count_star,
    "WITH": _with_clause,
    "subquery for a table": _derived_table,
    "GROUP BY for DISTINCT": _group_by,
    "position in ORDER BY": _order_position,
    "qualified columns": _qualify,
    "order of a UNION": _set_operands,
}
"""Each yields the trees that it can make; it may change the one that it gets."""


def _lower_case(tree: Tree) -> str:
    """Return the query in lower case but for its texts and quoted names."""
    parts = re.split(r"('(?:[^']|'')*'|\"[^\"]*\")", tree.sql("sqlite"))
    return "".join(part if place % 2 else part.lower() for place, part in enumerate(parts))


def _commented(tree: Tree) -> str:
    return "-- the question's rows;\n" + str(tree.sql("sqlite")).replace(" FROM ", " /* ; */\n\tFROM ", 1) + " ;"


def _not_equal(tree: Tree) -> str:
    parts = re.split(r"('(?:[^']|'')*'|\"[^\"]*\")", tree.sql("sqlite"))
    return "".join(part if place % 2 else part.replace("<>", "!=") for place, part in enumerate(parts))


SPELLINGS: Mapping[str, Callable[[Tree], str]] = {
    "as it is": lambda tree: str(tree.sql("sqlite")),
    "lower case": _lower_case,
    "lines": lambda tree: str(tree.sql("sqlite", pretty=True)),
    "quoted names": lambda tree: str(tree.sql("sqlite", identify=True)),
    "comments": _commented,
    "!= for <>": _not_equal,
}
