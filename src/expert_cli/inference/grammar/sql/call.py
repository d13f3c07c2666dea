"""Calls of SQL's functions: their arguments, FILTER, windows."""

from __future__ import annotations

from expert_cli.inference.grammar.sql.expression import ExpressionReader
from expert_cli.inference.grammar.sql.names import Place
from expert_cli.inference.grammar.sql.scope import Scope
from expert_cli.inference.grammar.sql.tokens import Follow, Reading, Token, Want, want

_ORDERED = frozenset(("group_concat", "string_agg", "array_agg", "json_agg", "jsonb_agg"))
_WITHIN = frozenset(("percentile_cont", "percentile_disc", "mode"))
_OPEN, _CLOSE = want(marks="("), want(marks=")")
_FIELDS = "YEAR MONTH DAY HOUR MINUTE SECOND DOW DOY ISODOW EPOCH WEEK QUARTER DECADE CENTURY ISOYEAR MILLISECONDS MICROSECONDS"
_SIDES = want("PRECEDING FOLLOWING")


class CallReader(ExpressionReader):
    """Reads calls."""

    def call(self, place: Place, name: str, after: Follow) -> Reading:
        """Read a call from its first argument on."""
        self.depth += 1
        scope = place.scope
        scalar_too = name in ("min", "max") and self.dialect == "sqlite"
        aggregate = name in self.words.aggregates and (place.aggregates or not scalar_too)
        nested = [False]
        inner = place._replace(windows=False)
        if aggregate:
            if place.nested is not None:
                place.nested[0] = True
            scope.aggregates += 1
            inner = Place(scope, aggregates=place.nested is None and place.windows, nested=nested, own=True)
        if name in ("extract", "substring", "trim", "position", "overlay") and self.dialect == "postgresql":
            yield from self._worded(inner, name)
        else:
            least = 2 if scalar_too and not aggregate else self.words.functions[name][0]
            yield from self._arguments(inner, name, least, aggregate)
        self.depth -= 1
        self.column = ""
        must = name in self.words.window_only or nested[0]
        return (yield from self._after_call(place, name, aggregate, must, after))

    def _arguments(self, place: Place, name: str, least: int, aggregate: bool) -> Reading:
        most = self.words.functions[name][1]
        first = self.operand_want(place) if most else Want()
        if aggregate:
            first = first.also(want("DISTINCT"))
        if name == "count":
            first = first.also(want(marks="*"))
        token = yield first.also(_CLOSE) if not least else first
        if token.keyword == "*":
            return (yield _CLOSE)
        if token.keyword == ")":
            return token
        given = 1
        distinct = token.keyword == "DISTINCT"
        if distinct:
            token = yield self.operand_want(place)
            most = most if self.dialect == "postgresql" else 1

        def follow() -> Want:
            marks = (")" if given >= least or distinct else "") + (" ," if given < most else "")
            return want("ORDER" if name in _ORDERED and given >= least else "", marks.strip())

        token = yield from self.expression(place, follow, token)
        while token.keyword == ",":
            given += 1
            token = yield from self.expression(place, follow)
        if token.keyword == "ORDER":
            yield want("BY")
            token = yield from self.order_terms(place, lambda: _CLOSE)
        return token

    def _worded(self, place: Place, name: str) -> Reading:
        """Read arguments that words part, as SQL's standard has them, or commas."""
        if name == "extract":
            yield want(_FIELDS)
            yield want("FROM")
            return (yield from self.expression(place, lambda: _CLOSE))
        if name == "position":
            yield from self._chain(place, want(marks="||"), lambda: want("IN"), None)
            return (yield from self.expression(place, lambda: _CLOSE))
        first = self.operand_want(place)
        token = yield first.also(want("BOTH LEADING TRAILING")) if name == "trim" else first
        if token.keyword in ("BOTH", "LEADING", "TRAILING"):
            token = yield first.also(want("FROM"))
            if token.keyword == "FROM":
                return (yield from self.expression(place, lambda: _CLOSE))
        parts = {"trim": "FROM", "substring": "FROM FOR", "overlay": "PLACING"}[name]
        marks = ")" if name == "trim" else ""
        token = yield from self.expression(place, lambda: want(parts, f"{marks} ,".strip()), token)
        while token.keyword != ")":
            token = yield from self.expression(place, lambda: want("FROM FOR", ") ,"))
        return token

    def _after_call(self, place: Place, name: str, aggregate: bool, must: bool, after: Follow) -> Reading:
        """Read WITHIN GROUP, FILTER and OVER."""
        over = want("OVER") if place.windows and (aggregate or must) else Want()
        filters = want("FILTER").also(over) if aggregate else over
        within = name in _WITHIN and self.dialect == "postgresql"
        token = yield want("WITHIN") if within else filters if must else filters.also(after())
        if token.keyword == "WITHIN":
            yield want("GROUP")
            yield _OPEN
            yield want("ORDER")
            yield want("BY")
            yield from self.order_terms(Place(place.scope), lambda: _CLOSE)
            token = yield filters.also(after())
        if token.keyword == "FILTER" and filters.words:
            yield _OPEN
            yield want("WHERE")
            self.depth += 1
            yield from self.expression(Place(place.scope), lambda: _CLOSE)
            self.depth -= 1
            self.column = ""
            token = yield over if must else over.also(after())
        if token.keyword != "OVER" or not over.words:
            return token
        place.scope.windows += 1
        token = yield _OPEN.also(self.window_names(place.scope))
        if token.keyword == "(":
            yield from self.window(place)
        elif place.scope.defined is None:
            place.scope.over.add(token.name)
        self.column = ""
        return (yield after())

    def window_names(self, scope: Scope, defining: bool = False) -> Want:
        """Return a Want of a window: any before WINDOW, which then defines it; never quoted, as SQLite compares quotes."""
        known = scope.over if defining else scope.defined

        def fits(text: str, whole: bool, quoted: str) -> bool:
            if known is not None:
                return not quoted and (text in known if whole else any(name.startswith(text) for name in known))
            return not quoted and (not whole or text.upper() not in self.words.clauses)

        return Want(names=(fits,))

    def window(self, place: Place) -> Reading:
        """Read a window; its opening bracket was read."""
        inner = place._replace(windows=False)
        self.depth += 1
        frames = want("ROWS RANGE GROUPS", ")")
        token = yield want("PARTITION ORDER").also(frames)
        if token.keyword == "PARTITION":
            yield want("BY")
            follow = want("ORDER", ",").also(frames)
            token = yield from self.expression(inner, lambda: follow)
            while token.keyword == ",":
                token = yield from self.expression(inner, lambda: follow)
        if token.keyword == "ORDER":
            yield want("BY")
            token = yield from self.order_terms(inner, lambda: frames)
        if token.keyword in ("ROWS", "RANGE", "GROUPS"):
            yield from self._frame()
            token = yield _CLOSE
        self.depth -= 1
        self.column = ""
        return token

    def _frame(self) -> Reading:
        token = yield want("BETWEEN UNBOUNDED CURRENT", "", "number")
        if token.keyword != "BETWEEN":
            return (yield from self._bound(token, want("PRECEDING")))
        token = yield want("UNBOUNDED CURRENT", "", "number")
        yield from self._bound(token, _SIDES if token.kind == "number" else want("PRECEDING"))
        yield want("AND")
        token = yield want("UNBOUNDED CURRENT", "", "number")
        return (yield from self._bound(token, _SIDES if token.kind == "number" else want("FOLLOWING")))

    def _bound(self, token: Token, sides: Want) -> Reading:
        return (yield want("ROW") if token.keyword == "CURRENT" else sides)

    def order_terms(self, place: Place, follow: Follow, named: bool = False) -> Reading:
        """Read what ORDER BY lists; named: only results, by name or number, as after UNION."""
        token = yield from self._order_term(place, follow, named)
        while token.keyword == ",":
            token = yield from self._order_term(place, follow, named)
        return token

    def _order_term(self, place: Place, follow: Follow, named: bool) -> Reading:
        def after() -> Want:
            return want("ASC DESC NULLS", ",").also(follow())

        aliases = place.scope.ordered
        results = self.any_of(aliases)
        token = yield results.also(want("", "", "number") if named else self.operand_want(place))
        if named or (token.name in aliases and not token.keyword and not place.scope.has_bare(token.name)):
            token = yield after()
        else:
            token = yield from self.expression(place, after, token)
        if token.keyword in ("ASC", "DESC"):
            token = yield want("NULLS", ",").also(follow())
        if token.keyword == "NULLS":
            yield want("FIRST LAST")
            token = yield want(marks=",").also(follow())
        return token
