"""What SELECT lists: its outputs, with the names that AS gives them."""

from __future__ import annotations

from typing import cast

from expert_cli.inference.grammar.sql.names import Place
from expert_cli.inference.grammar.sql.relations import Output, Relations
from expert_cli.inference.grammar.sql.scope import Scope
from expert_cli.inference.grammar.sql.sources import FromReader
from expert_cli.inference.grammar.sql.tokens import Follow, Reading, Token, Want, want
from expert_cli.inference.grammar.sql.words import SqlDialect

_STAR = want(marks="*")


class OutputReader(FromReader):
    """Reads the outputs of a SELECT. naming: the name that AS gives to the one being read."""

    def __init__(self, dialect: SqlDialect, relations: Relations) -> None:
        super().__init__(dialect, relations)
        self.naming = ""

    def outputs(self, scope: Scope, ends: Follow, width: int, must: frozenset[str]) -> Reading:
        """Read what SELECT lists; return the token after it.

        An output that was listed before is the last one, for a model that repeats what it lists never comes to FROM.
        """
        place = Place(scope, aggregates=True, windows=True, own=True)
        listed: set[tuple[Token, ...]] = set()
        tokens: list[Token] = []

        def follow() -> Want:
            given = len(scope.outputs) + 1
            starred = any(output.star is not None for output in scope.outputs) or self.star is not None
            done = not width or given == width or starred
            more = want(marks=",") if not width or given < width or starred else Want()
            lacks = must - {output.name for output in scope.outputs} - {self.naming or self.column}
            if not done or lacks:
                return more
            ended = want("FROM").also(ends() if not starred else Want())
            return ended if tuple(tokens) in listed else more.also(ended)

        token = yield from self._distinct(place)
        while True:
            tokens[:] = [token]
            token = yield from self._output(place, tokens, follow)
            if token.keyword != ",":
                return token
            listed.add(tuple(tokens))
            token = yield self.operand_want(place).also(_STAR)

    def _distinct(self, place: Place) -> Reading:
        """Read DISTINCT and ALL; return the first token of an output."""
        begins = self.operand_want(place).also(_STAR)
        token = yield begins.also(want("DISTINCT ALL"))
        if token.keyword not in ("DISTINCT", "ALL"):
            return token
        token = yield begins.also(Want() if self.lite or token.keyword == "ALL" else want("ON"))
        if token.keyword != "ON":
            return token
        yield want(marks="(")
        while token.keyword != ")":
            token = yield from self.expression(place, lambda: want(marks=", )"))
        return (yield begins)

    def _output(self, place: Place, tokens: list[Token], follow: Follow) -> Reading:
        """Read an output, of which the first token was read, and the others are added to `tokens`, but for its name."""
        scope = place.scope
        aggregates, windows = scope.aggregates, scope.windows
        self.naming = ""
        if tokens[0].keyword == "*":
            self.star = ""
            token = yield follow()
            scope.outputs.append(Output("", star=""))
            return token
        named = want("AS").also(self.fresh(implied=True))
        expression = self.expression(place, lambda: named.also(follow()), tokens[0], star=follow)
        token = yield from _recorded(expression, tokens)
        tokens.pop()
        if self.star is not None:
            scope.outputs.append(Output("", star=self.star))
            return token
        name, alias = self.column, False
        if token.keyword == "AS":
            token = yield self.fresh(strings=True)
        if not token.keyword:
            name, alias = token.name.strip("'"), True
            self.naming = name
            token = yield follow()
        held = scope.aggregates > aggregates, scope.windows > windows
        scope.outputs.append(Output(name, alias, aggregate=held[0], window=held[1]))
        self.naming = ""
        return token


def _recorded(reading: Reading, tokens: list[Token]) -> Reading:
    """Read on, and add to `tokens` what is read, the token after it, too."""
    options = next(reading)
    while True:
        token = yield options
        tokens.append(token)
        try:
            options = reading.send(token)
        except StopIteration as end:
            return cast(Token, end.value)
