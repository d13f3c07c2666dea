"""Queries of SQL: SELECT with its clauses, WITH, UNION and the like."""

from __future__ import annotations

from collections.abc import Generator

from expert_cli.inference.grammar.sql.names import DEEPEST, Place
from expert_cli.inference.grammar.sql.outputs import OutputReader
from expert_cli.inference.grammar.sql.relations import Output, Relation, Relations
from expert_cli.inference.grammar.sql.scope import Scope
from expert_cli.inference.grammar.sql.tokens import Follow, Reading, Token, Want, want
from expert_cli.inference.grammar.sql.words import SqlDialect

Arm = Generator[Want, Token, tuple[Scope, Token]]

_OPEN, _CLOSE = want(marks="("), want(marks=")")
_SETS = "UNION INTERSECT EXCEPT"


class QueryReader(OutputReader):
    """Reads queries. result: the columns of the last one that ended."""

    def __init__(self, dialect: SqlDialect, relations: Relations) -> None:
        super().__init__(dialect, relations)
        self.recursive: list[tuple[str, tuple[str, ...]]] = []

    def statement(self) -> Reading:
        """Read a query and the end, before which a semicolon may stand."""
        token = yield want("SELECT WITH")
        token = yield from self.query(None, lambda: want("", ";", end=True), token, 0)
        if token.keyword == ";":
            token = yield want(end=True)
        return token

    def query(
        self, outer: Scope | None, follow: Follow, first: Token, width: int, must: frozenset[str] = frozenset()
    ) -> Reading:
        """Read a query from its first token on.

        width: how many columns it must have, 0 for any number; must: names that its columns must have among them.
        """
        saved = self.relations, self.star, self.naming
        token = first
        if token.keyword == "WITH":
            token = yield from self._with(outer)
        token = yield from self._compound(outer, follow, token, width, must)
        self.relations, self.star, self.naming = saved
        return token

    # -- WITH

    def _with(self, outer: Scope | None) -> Reading:
        token = yield want("RECURSIVE").also(self.fresh())
        if token.keyword == "RECURSIVE":
            token = yield self.fresh()
        while True:
            token = yield from self._named_query(outer, token)
            if token.keyword != ",":
                return token
            token = yield self.fresh()

    def _named_query(self, outer: Scope | None, name: Token) -> Reading:
        columns: list[str] = []
        token = yield want("AS", "(")
        if token.keyword == "(":
            columns = yield from self.column_list()
            yield want("AS")
        token = yield want("MATERIALIZED NOT", "(")
        if token.keyword == "NOT":
            yield want("MATERIALIZED")
        if token.keyword != "(":
            yield _OPEN
        self.depth += 1
        token = yield want("SELECT WITH VALUES" if self.depth < DEEPEST else "SELECT VALUES")
        self.recursive.append((name.name, tuple(columns)))
        yield from self.query(outer, lambda: _CLOSE, token, len(columns))
        self.recursive.pop()
        self.depth -= 1
        relation = Relation.of(columns) if columns else self.result
        self.relations = self.relations.with_query(name.name, relation)
        return (yield want("SELECT", ","))

    def _values(self, follow: Follow, width: int) -> Arm:
        """Read rows of VALUES."""
        scope = Scope(self.relations, None, closed=True)
        token = Token("mark", ",", "")
        while token.keyword == ",":
            yield _OPEN
            given = 0
            token = Token("mark", ",", "")
            while token.keyword == ",":
                given += 1
                token = yield from self.expression(Place(scope), self._value_end(given, width))
            width = given
            token = yield want(marks=",").also(follow())
        scope.outputs = [Output(f"column{number + 1}") for number in range(width)]
        return scope, token

    def _value_end(self, given: int, width: int) -> Follow:
        return lambda: want(marks=", )" if not width else ")" if given == width else ",")

    # -- SELECT and what joins several

    def _compound(self, outer: Scope | None, follow: Follow, first: Token, width: int, must: frozenset[str]) -> Reading:
        tail = want("ORDER LIMIT" + ("" if self.dialect == "sqlite" else " OFFSET FETCH"))

        def after() -> Want:
            return want(_SETS).also(tail).also(follow())

        lite = self.dialect == "sqlite"
        recursive, self.recursive = self.recursive, []
        if first.keyword == "VALUES":
            scope, token = yield from self._values(lambda: want(_SETS).also(follow()), width)
        else:
            scope, token = yield from self._select(outer, after, width, must)
        result = scope.result()
        arms = [scope]
        if token.keyword in _SETS.split() and recursive:
            name, columns = recursive[-1]
            self.relations = self.relations.with_query(name, Relation.of(columns) if columns else result)
        while token.keyword in _SETS.split() and token.kind == "word":
            token = yield want("SELECT" if lite and token.keyword != "UNION" else "ALL SELECT")
            if token.keyword == "ALL":
                yield want("SELECT")
            scope, token = yield from self._select(outer, after, scope.width(), frozenset())
            arms.append(scope)
        self.recursive = recursive
        token = yield from self._tail(arms, follow, token)
        self.result = result
        return token

    def _tail(self, arms: list[Scope], follow: Follow, token: Token) -> Reading:
        """Read ORDER BY, LIMIT, OFFSET."""
        scope = arms[-1]
        lite = self.dialect == "sqlite"
        limits = want("LIMIT" + ("" if lite else " OFFSET FETCH"))
        if token.keyword == "ORDER":
            yield want("BY")
            several = len(arms) > 1
            scope.visible = scope.aliases(True, True) if lite and not several else frozenset()
            named = arms if lite else arms[:1]
            shown = frozenset(output.name for arm in named for output in arm.outputs if output.name)
            scope.ordered = shown if several or not lite else scope.visible
            place = Place(scope, aggregates=bool(scope.aggregates or scope.grouped), windows=True)
            token = yield from self.order_terms(place, lambda: limits.also(follow()), named=several)
        if token.keyword not in ("LIMIT", "OFFSET", "FETCH"):
            return token
        place = Place(Scope(self.relations, None, closed=True))
        if token.keyword == "LIMIT":
            options = want("OFFSET", "," if lite else "")
            if lite:
                token = yield from self.expression(place, lambda: options.also(follow()))
            else:
                token = yield want("ALL").also(self.operand_want(place))
                if token.keyword == "ALL":
                    token = yield options.also(follow())
                else:
                    token = yield from self.expression(place, lambda: options.also(follow()), token)
        if token.keyword in ("OFFSET", ","):
            rest = Want() if lite else want("ROW ROWS FETCH")
            token = yield from self.expression(place, lambda: rest.also(follow()))
            if token.keyword in ("ROW", "ROWS"):
                token = yield want("FETCH").also(follow())
        if token.keyword == "FETCH" and not lite:
            token = yield from self._fetch(follow)
        return token

    def _fetch(self, follow: Follow) -> Reading:
        yield want("FIRST NEXT")
        token = yield want("ROW ROWS", "", "number")
        if token.kind == "number":
            yield want("ROW ROWS")
        yield want("ONLY")
        return (yield follow())

    def _select(self, outer: Scope | None, follow: Follow, width: int, must: frozenset[str]) -> Arm:
        """Read one SELECT; return its scope and the token after it."""
        scope = Scope(self.relations, outer)

        def ends() -> Want:
            return self._clauses(scope, "WHERE GROUP HAVING WINDOW", follow)

        token = yield from self.outputs(scope, ends, width, must)
        if token.keyword == "FROM":
            token = yield from self.sources(scope, ends)
        scope.close()
        token = yield from self._conditions(scope, token, follow)
        return scope, token

    def _clauses(self, scope: Scope, clauses: str, follow: Follow) -> Want:
        """Return the clauses that may follow, and what may follow the SELECT, once nothing lacks."""
        if scope.lacking():
            return Want()
        listed = [word for word in clauses.split() if word != "HAVING" or scope.grouped or scope.aggregates]
        if not scope.sources:
            listed = [word for word in listed if word in ("WHERE", "WINDOW")]
        if scope.over:
            return want(" ".join(listed))
        return want(" ".join(word for word in listed if word != "WINDOW")).also(follow())

    def _conditions(self, scope: Scope, token: Token, follow: Follow) -> Reading:
        """Read WHERE, GROUP BY, HAVING and WINDOW."""
        lite = self.dialect == "sqlite"
        if token.keyword == "WHERE":
            scope.visible = scope.aliases(False, False) if lite else frozenset()
            token = yield from self.expression(
                Place(scope), lambda: self._clauses(scope, "GROUP HAVING WINDOW", follow)
            )
        if token.keyword == "GROUP":
            yield want("BY")
            scope.grouped = True
            scope.visible = scope.aliases(False, False)
            token = yield from self._group_terms(scope, follow)
        if token.keyword == "HAVING":
            scope.visible = scope.aliases(True, False) if lite else frozenset()
            place = Place(scope, aggregates=True)
            token = yield from self.expression(place, lambda: self._clauses(scope, "WINDOW", follow))
        scope.visible = frozenset()
        scope.defined = set()
        while token.keyword == "WINDOW" or (token.keyword == "," and scope.over):
            name = yield self.window_names(scope, defining=True)
            yield want("AS")
            yield _OPEN
            yield from self.window(Place(scope, aggregates=True))
            scope.over.discard(name.name)
            scope.defined.add(name.name)
            token = yield want(marks=",") if scope.over else follow()
        return token

    def _group_terms(self, scope: Scope, follow: Follow) -> Reading:
        def after() -> Want:
            return want(marks=",").also(self._clauses(scope, "HAVING WINDOW", follow))

        token = yield from self.expression(Place(scope), after)
        while token.keyword == ",":
            token = yield from self.expression(Place(scope), after)
        return token
