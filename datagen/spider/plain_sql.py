"""One form for queries that mean the same: a column carries its table where several are read, and none where one is.

`SELECT T2.Name FROM election AS T1 JOIN representative AS T2 ON ... WHERE Votes > 1` becomes
`SELECT representative.Name FROM election JOIN representative ON ... WHERE election.Votes > 1`: a model that writes SELECT
before FROM then says at once which table it means. Names are spelled as they are given, functions in capitals, and what a
foreign key joins stands in its direction: what refers, then what it refers to.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError
from sqlglot.optimizer.scope import Scope, traverse_scope

Tables = Mapping[str, Sequence[str]]
"""The names of tables -> those of their columns, as queries shall spell them."""
Join = tuple[str, str, str, str]
"""A foreign key: table, column, the other table, its column, in small letters."""


def plain(query: str, tables: Tables, joins: Collection[Join] = ()) -> str | None:
    """The query in that form; None where it cannot be read, or a column's table cannot be told."""
    try:
        tree = sqlglot.parse_one(query, read="sqlite")
        scopes = traverse_scope(tree)
    except (SqlglotError, RecursionError):
        return None
    known = {name.lower(): (name, {column.lower(): column for column in columns}) for name, columns in tables.items()}
    if not all(_carried(scope, known) for scope in scopes):
        return None
    for scope in scopes:
        _named(scope, known)
    _turn_joins(tree, joins)
    return tree.sql(dialect="sqlite", normalize_functions="upper")


def _turn_joins(tree: exp.Expr, joins: Collection[Join]) -> None:
    for equal in [equal for join in tree.find_all(exp.Join) for equal in join.find_all(exp.EQ)]:
        left, right = equal.this, equal.expression
        if isinstance(left, exp.Column) and isinstance(right, exp.Column):
            turned = (right.table, right.name, left.table, left.name)
            if tuple(name.lower() for name in turned) in joins:
                equal.set("this", right)
                equal.set("expression", left)


_Known = Mapping[str, tuple[str, Mapping[str, str]]]


def _table(source: object, known: _Known) -> tuple[str, Mapping[str, str]] | None:
    return known.get(source.name.lower()) if isinstance(source, exp.Table) else None


def _carried(scope: Scope, known: _Known) -> bool:
    """Give every column of a SELECT the name or alias of its source; False where that is not known."""
    sources = {name.lower(): source for name, source in scope.sources.items() if name in scope.selected_sources}
    aliases = {selected.alias.lower() for selected in getattr(scope.expression, "selects", []) if selected.alias}
    for column in scope.columns:
        name = column.name.lower()
        if column.table or isinstance(column.this, exp.Star):
            continue
        having = [alias for alias, source in sources.items() if (table := _table(source, known)) and name in table[1]]
        if len(having) == 1 and all(_table(source, known) for source in sources.values()):
            column.set("table", exp.to_identifier(having[0]))
        elif not (len(sources) == 1 and (having or name in aliases)) and name not in aliases:
            return False
    return True


def _named(scope: Scope, known: _Known) -> None:
    """Write tables by their own names where each is read once, and columns without any where one is read."""
    nodes = list(scope.selected_sources.values())
    tables = [(node, table) for node, source in nodes if (table := _table(source, known))]
    within = Counter(name for _, (name, _) in tables)
    outer: set[str] = set()
    above = scope.parent if scope.is_correlated_subquery else None
    while above:
        outer |= {source.name.lower() for source in above.sources.values() if isinstance(source, exp.Table)}
        above = above.parent
    new: dict[str, str] = {}
    for node, (name, columns) in tables:
        old = node.alias_or_name
        alone = within[name] == 1 and name.lower() not in outer
        new[old.lower()] = name if alone or not node.alias else old
        node.set("this", exp.to_identifier(name, quoted=node.this.quoted or not name.isidentifier()))
        if alone:
            node.set("alias", None)
        _spelled(scope, old.lower(), columns)
    bare = len(nodes) == 1 and bool(tables) and not scope.is_correlated_subquery
    for column in scope.expression.find_all(exp.Column):
        if column.table.lower() in new and _owner(column, scope):
            to = new[column.table.lower()]
            local = (
                bare and column.find_ancestor(exp.Select) is scope.expression and not isinstance(column.this, exp.Star)
            )
            column.set("table", None if local else exp.to_identifier(to, quoted=not to.isidentifier()))


def _spelled(scope: Scope, source: str, columns: Mapping[str, str]) -> None:
    for column in scope.expression.find_all(exp.Column):
        spelled = columns.get(column.name.lower())
        if column.table.lower() == source and spelled and not isinstance(column.this, exp.Star):
            quoted = column.this.quoted or not spelled.isidentifier()
            column.set("this", exp.to_identifier(spelled, quoted=quoted))


def _owner(column: exp.Column, scope: Scope) -> bool:
    """Whether the name before a column is bound by this SELECT, not by one within it."""
    select = column.find_ancestor(exp.Select)
    while select is not None and select is not scope.expression:
        inner = {table.alias_or_name.lower() for table in _own_tables(select)}
        if column.table.lower() in inner:
            return False
        select = select.find_ancestor(exp.Select)
    return True


def _own_tables(select: exp.Select) -> list[exp.Table]:
    return [table for table in select.find_all(exp.Table) if table.find_ancestor(exp.Select) is select]
