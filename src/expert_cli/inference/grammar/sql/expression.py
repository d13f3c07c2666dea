"""Expressions of SQL, read token by token: what each place wants, and what the names in it use."""

from __future__ import annotations

from expert_cli.inference.grammar.sql.names import CONSTANTS, DEEPEST, NameReader, Place
from expert_cli.inference.grammar.sql.tokens import Follow, Reading, Token, Want, want

_ARITHMETIC = want(marks="+ - * / % || & | << >>")
_QUERY = want("SELECT WITH")
_CLOSE, _OPEN, _LIST = want(marks=")"), want(marks="("), want(marks=", )")
_SIGNS = frozenset(("-", "+", "~", "NOT"))
_COMPARISONS = frozenset(("=", "==", "<>", "!=", "<", ">", "<=", ">=", "LIKE", "GLOB", "BETWEEN"))
_CONNECTIVES = frozenset(("AND", "OR"))
MOST_CONDITIONS = 3
"""So many conditions join a source while FROM lacks what was used, all of which hold: a model that may not go on to WHERE yet
would write them without end, instead of the source that lacks.
"""
_TYPE_ENDS = {"DOUBLE": "PRECISION", "CHARACTER": "VARYING", "UNSIGNED": "BIG INT INTEGER", "BIG": "INT"}


class ExpressionReader(NameReader):
    """Reads expressions."""

    def expression(
        self, place: Place, follow: Follow, first: Token | None = None, star: Follow | None = None
    ) -> Reading:
        """Read operands and the operators between them."""
        operators = self._operators if self.depth < DEEPEST else self._shallow_operators
        return self._chain(place, operators, follow, first, star)

    def _chain(
        self, place: Place, operators: Want, follow: Follow, first: Token | None, star: Follow | None = None
    ) -> Reading:
        operated, conditions = False, 1

        def after() -> Want:
            if operated:
                self.column = ""
            if place.joins and place.scope.lacking():
                barred = _CONNECTIVES if conditions == MOST_CONDITIONS else {"OR"}
                return operators._replace(words=tuple(group - barred for group in operators.words)).also(follow())
            return operators.also(follow())

        token = first or (yield self.operand_want(place))
        operated = token.keyword in _SIGNS
        token = yield from self._operand(place, token, after, star)
        column = "" if operated else self.column
        while token.keyword and any(token.keyword in group for group in operators.words + operators.marks):
            operated, column = True, ""
            conditions += token.keyword in _CONNECTIVES
            token = yield from self._operation(place, token, after)
        self.column = column
        return token

    def _operation(self, place: Place, token: Token, after: Follow) -> Reading:
        word = token.keyword
        if word == "NOT":
            token = yield self._negated()
            word = token.keyword
            if word == "NULL":
                return (yield after())
        if word in ("ISNULL", "NOTNULL"):
            return (yield after())
        if word == "IN":
            return (yield from self._membership(place, after))
        if word == "BETWEEN":
            first = yield self.operand_want(place).also(self._strings)
            yield from self._chain(place, _ARITHMETIC, lambda: want("AND"), first)
        elif word == "COLLATE":
            yield want("NOCASE BINARY RTRIM")
            return (yield after())
        elif word == "::":
            return (yield from self.type_name(after))
        elif word == "[":
            yield from self.expression(place, lambda: want(marks="]"))
            return (yield after())
        elif word in ("AT", "SIMILAR"):
            yield want("TIME" if word == "AT" else "TO")
            if word == "AT":
                yield want("ZONE")
        elif word == "IS":
            return (yield from self._identity(place, after))
        return (yield from self._right(place, word, after))

    def _negated(self) -> Want:
        allowed = self.words.operators & {"LIKE", "GLOB", "ILIKE", "SIMILAR", "BETWEEN"}
        members = {"IN"} if self.depth < DEEPEST else set()
        return Want((allowed | members | ({"NULL"} if self.dialect == "sqlite" else set()),))

    def _right(self, place: Place, word: str, after: Follow) -> Reading:
        """Read the operand right of an operator."""
        operands = self.operand_want(place)
        if word in _COMPARISONS:
            operands = operands.also(self._strings)
        if self.dialect == "postgresql" and self.depth < DEEPEST and word in _COMPARISONS:
            operands = operands.also(want("ANY ALL SOME"))
        token = yield operands
        if token.keyword in ("ANY", "ALL", "SOME"):
            yield _OPEN
            return (yield from self._bracket(place, after))
        if word not in ("LIKE", "ILIKE"):
            return (yield from self._operand(place, token, after))
        token = yield from self._operand(place, token, lambda: want("ESCAPE").also(after()))
        if token.keyword == "ESCAPE":
            yield want("", "", "string")
            token = yield after()
        return token

    def _identity(self, place: Place, after: Follow) -> Reading:
        """Read what follows IS."""
        lite = self.dialect == "sqlite"
        truths = want("NULL TRUE FALSE UNKNOWN DISTINCT")
        operands = want("DISTINCT").also(self.operand_want(place)) if lite else truths.also(want("NOT"))
        token = yield operands
        if token.keyword == "NOT":
            token = yield operands if lite else truths
        if token.keyword == "DISTINCT":
            yield want("FROM")
            token = yield self.operand_want(place)
        return (yield from self._operand(place, token, after))

    def _membership(self, place: Place, after: Follow) -> Reading:
        """Read what follows IN."""
        width = self.width
        yield _OPEN
        self.depth += 1
        token = yield _QUERY.also(self.operand_want(place)).also(self._strings) if width == 1 else _QUERY
        if token.kind == "word" and token.keyword in ("SELECT", "WITH"):
            yield from self.query(place.scope, lambda: _CLOSE, token, width)
        else:
            token = yield from self.expression(place, lambda: _LIST, token)
            while token.keyword == ",":
                token = yield self.operand_want(place).also(self._strings)
                token = yield from self.expression(place, lambda: _LIST, token)
        self.depth -= 1
        self.width = 1
        return (yield after())

    # -- operands

    def _operand(self, place: Place, token: Token, after: Follow, star: Follow | None = None) -> Reading:
        self.column, self.width, self.star = "", 1, None
        while token.keyword in _SIGNS:
            token = yield self.operand_want(place)
            star = None
        word = token.keyword
        if token.kind in ("string", "number") or word in CONSTANTS.split() or word == "UNKNOWN":
            return (yield after())
        if word == "(":
            return (yield from self._bracket(place, after))
        if not word:
            return (yield from self._named(place, token, after, star))
        self.depth += 1
        if word == "CASE":
            yield from self._case(place)
        elif word == "CAST":
            yield _OPEN
            yield from self.expression(place, lambda: want("AS"))
            yield from self.type_name(lambda: _CLOSE)
        elif word == "ARRAY":
            yield want(marks="[")
            token = yield from self.expression(place, lambda: want(marks=", ]"))
            while token.keyword == ",":
                token = yield from self.expression(place, lambda: want(marks=", ]"))
        else:
            yield _OPEN
            token = yield _QUERY
            yield from self.query(place.scope, lambda: _CLOSE, token, 0)
        self.depth -= 1
        self.column = ""
        return (yield after())

    def _case(self, place: Place) -> Reading:
        token = yield self.operand_want(place).also(want("WHEN"))
        if token.keyword != "WHEN":
            token = yield from self.expression(place, lambda: want("WHEN"), token)
        while token.keyword == "WHEN":
            yield from self.expression(place, lambda: want("THEN"))
            token = yield from self.expression(place, lambda: want("WHEN ELSE END"))
        if token.keyword == "ELSE":
            token = yield from self.expression(place, lambda: want("END"))
        return token

    def _bracket(self, place: Place, after: Follow) -> Reading:
        """Read an expression or a query in brackets; in a condition also several values, which IN must follow."""
        self.depth += 1
        token = yield _QUERY.also(self.operand_want(place))
        width = 1
        if token.kind == "word" and token.keyword in ("SELECT", "WITH"):
            yield from self.query(place.scope, lambda: _CLOSE, token, 1)
            self.column = ""
        else:
            several = not place.aggregates and self.depth < DEEPEST
            token = yield from self.expression(place, lambda: _LIST if several else _CLOSE, token)
            while token.keyword == ",":
                width += 1
                token = yield from self.expression(place, lambda: _LIST)
        self.depth -= 1
        self.width = width
        return (yield after() if width == 1 else want("IN"))

    def type_name(self, follow: Follow) -> Reading:
        """Read a type, as CAST names one."""
        token = yield Want((self.words.types,))
        ends = _TYPE_ENDS.get(token.keyword, "")
        options = follow().also(want(ends, "( [" if self.dialect == "postgresql" else "("))
        token = yield options
        if ends and token.keyword in ends.split():
            token = yield follow().also(_OPEN)
        if token.keyword == "(":
            yield want("", "", "number")
            token = yield _LIST
            if token.keyword == ",":
                yield want("", "", "number")
                yield _CLOSE
            token = yield follow()
        elif token.keyword == "[":
            yield want(marks="]")
            token = yield follow()
        return token
