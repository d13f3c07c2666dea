"""FROM: tables, subqueries and joins, which bind what SELECT used before them."""

from __future__ import annotations

import re
from collections.abc import Generator
from typing import Literal

from expert_cli.inference.grammar.sql.call import CallReader
from expert_cli.inference.grammar.sql.names import DEEPEST, Place
from expert_cli.inference.grammar.sql.relations import Relation, Relations
from expert_cli.inference.grammar.sql.scope import Scope
from expert_cli.inference.grammar.sql.tokens import Follow, Kind, Reading, Token, Want, want
from expert_cli.inference.grammar.sql.words import SqlDialect

Join = Literal["first", "list", "join", "natural"]

_NUMBERED = re.compile(r"[a-z][0-9]+\Z")
_IN_PLACE = re.compile(r"t[1-9]\Z")
_LENGTHENED = re.compile(r"[a-z][0-9]+(?:[a-z_]|(?<=[0-9]{3}))")
_AFTER_OUTPUTS = "FROM WHERE"
_AFTER_SOURCES = (
    "WHERE GROUP HAVING ORDER LIMIT JOIN INNER LEFT RIGHT FULL CROSS NATURAL USING UNION INTERSECT EXCEPT OFFSET"
)
MOST_LINKS = 3
"""So many sources may stand in a FROM of which nothing was named yet, while others are still to come."""
_JOINS = "JOIN INNER LEFT RIGHT FULL"


class FromReader(CallReader):
    """Reads FROM. relations: what can stand there now; result: the columns of the last query that ended."""

    def __init__(self, dialect: SqlDialect, relations: Relations) -> None:
        super().__init__(dialect)
        self.relations = relations
        self.result = Relation.of(())
        self.lite = dialect == "sqlite"

    def sources(self, scope: Scope, ends: Follow) -> Reading:
        """Read what FROM lists; `ends` says what may follow where nothing lacks."""
        token = yield from self._source(scope, "first", ends)
        while True:
            join: Join = "join"
            if token.keyword == ",":
                join = "list"
            elif token.keyword == "CROSS":
                yield want("JOIN")
                join = "list"
            elif token.keyword == "NATURAL":
                join = "natural"
                token = yield want("JOIN INNER LEFT RIGHT FULL")
            if token.keyword in ("LEFT", "RIGHT", "FULL"):
                token = yield want("OUTER JOIN")
            if token.keyword in ("INNER", "OUTER"):
                yield want("JOIN")
            elif not token.keyword or token.keyword not in ("JOIN", "CROSS", ","):
                return token
            token = yield from self._source(scope, join, ends)

    def _joins(self, scope: Scope) -> Want:
        """Return what may begin a further source."""
        bracket = self.depth < DEEPEST
        words = _JOINS if bracket or self._any_joinable(scope, "join") else ""
        if self._any_joinable(scope, "list") or (self.lite and bracket):
            words, marks = f"{words} CROSS", ","
        else:
            marks = ""
        columns = [column for source in scope.sources for column in source.bare]
        return want(words if len(columns) > len(set(columns)) else f"{words} NATURAL", marks)

    def _any_joinable(self, scope: Scope, join: Join) -> bool:
        tables = self.relations.by_name.items()
        return not scope.used_bare() or any(self._joinable(scope, join, *table) for table in tables)

    # -- one source

    def _source(self, scope: Scope, join: Join, ends: Follow) -> Reading:
        made, qualifier = scope.unknown()
        token = yield self._source_want(scope, join, made)
        if token.keyword == "(":
            self.depth += 1
            token = yield want("SELECT WITH")
            yield from self.query(scope.outer, lambda: want(marks=")"), token, 0, frozenset(made))
            self.depth -= 1
            name, relation = "", self.result
        else:
            name = token.name
            if name not in self.relations.by_name:
                yield want(marks=".")
                token = yield self.any_of(self.relations.schemas[name])
                name = token.name
            relation = self.relations.by_name[name]
            qualifier = next((alias for alias in self._due(scope) if scope.fits(alias, relation)), "")
        return (yield from self._alias(scope, join, name, relation, qualifier, ends))

    def _source_want(self, scope: Scope, join: Join, made: set[str]) -> Want:
        deep = (
            self.depth < DEEPEST
            and join != "natural"
            and (self.lite or join == "join" or not scope.sources or not scope.used_bare())
        )
        bracket = want(marks="(") if deep else Want()
        if made and deep and not scope.awaits_tables(made):
            return bracket
        if scope.links() >= MOST_LINKS and scope.lacking() and join != "natural":
            return bracket.also(self.any_of(frozenset(scope.awaited())))
        names = frozenset(
            name for name, relation in self.relations.by_name.items() if self._joinable(scope, join, name, relation)
        )
        for alias in self._due(scope):
            names = frozenset(name for name in names if scope.fits(alias, self.relations.by_name[name])) or names
        return bracket.also(self.any_of(names | (frozenset(self.relations.schemas) if names else frozenset())))

    def _due(self, scope: Scope) -> list[str]:
        """Return the aliases that were used and come next, or never: numbered ones whose place in FROM has been passed, and
        all, once FROM has gone on too long without what was used.
        """
        if scope.links() >= MOST_LINKS:
            return [alias for alias in scope.wanted if alias not in self.relations.by_name]
        numbered = (alias for alias in scope.wanted if _IN_PLACE.match(alias))
        return sorted(alias for alias in numbered if int(alias[1:]) <= len(scope.sources))

    def _joinable(self, scope: Scope, join: Join, name: str, relation: Relation) -> bool:
        if join == "natural" or not scope.conflicts(relation):
            return True
        nameable = not scope.source(name) or bool(self._used_aliases(scope, name, relation))
        return nameable and (self.lite or join == "join")

    def _alias(self, scope: Scope, join: Join, name: str, relation: Relation, must: str, ends: Follow) -> Reading:
        """Read a source's alias and what joins it to those before."""
        conflicts = set() if join == "natural" else scope.conflicts(relation)

        def after() -> Want:
            if conflicts:
                return want("USING")
            shared = any(scope.count(column) == 2 for column in relation.columns)
            joined = want("ON USING" if shared else "ON") if join == "join" else Want()
            if join == "join" and not self.lite:
                return joined
            return joined.also(self._joins(scope)).also(ends())

        implied, aliases = (
            self._aliases(scope, name, relation, must, implied, bool(conflicts)) for implied in (True, False)
        )
        own = name or f"\0{len(scope.sources)}"
        if must or scope.source(own) or (not name and not self.lite):
            token = yield want("AS").also(implied)
        else:
            removed = self._bind(scope, own, relation, join)
            token = yield after().also(want("AS").also(implied) if aliases.names else aliases)
            if token.keyword and token.keyword != "AS":
                return (yield from self._join_condition(scope, relation, conflicts, token, ends))
            scope.sources.pop()
            scope.restore(own, removed)
        if token.keyword == "AS":
            token = yield aliases
        self._bind(scope, token.name, relation, join)
        token = yield after()
        return (yield from self._join_condition(scope, relation, conflicts, token, ends))

    def _used_aliases(self, scope: Scope, name: str, relation: Relation) -> frozenset[str]:
        """Return the aliases that were used, and that a table can have."""
        return frozenset(alias for alias in scope.wanted if alias != name and scope.fits(alias, relation))

    def _aliases(self, scope: Scope, name: str, relation: Relation, must: str, implied: bool, merged: bool) -> Want:
        """Return the aliases that a source may have; a table that columns were named by keeps its name, or fits their alias.

        merged: only USING can follow. A model that meant ON does not find it, and would make up a name without end: none that
        was not used.
        """
        waiting: frozenset[str] | None = None
        if must:
            waiting = frozenset((must,))
        elif name and (merged or name in scope.wanted or name in scope.starred):
            waiting = self._used_aliases(scope, name, relation)
        if waiting is not None:
            return self.any_of(waiting) if waiting else Want()

        following = str(len(scope.sources) + 2)
        numbers = [source.qualifier[1:] for source in scope.sources]
        in_order = bool(numbers) and numbers == [str(number + 2) for number in range(len(numbers))]
        awaited = [alias for alias in scope.wanted if _NUMBERED.match(alias) and scope.fits(alias, relation)]

        def fits(text: str, whole: bool, quoted: str) -> bool:
            # T1 that is taken is not to become T1JOIN; where T1 was used, a table that can be it is not to be T2
            numbered = whole or text[-1:].isdigit()
            taken = scope.source(text) or (text in scope.wanted and not scope.fits(text, relation))
            if _LENGTHENED.match(text) or (
                numbered and (taken or (text[1:] == following and in_order and awaited and text not in awaited))
            ):
                return False
            known = not implied or text in scope.wanted or self.relations.may_alias(text, whole)
            return known and self._is_free(text, whole, quoted, _AFTER_SOURCES if implied else "")

        return Want(names=(fits,))

    def _bind(self, scope: Scope, qualifier: str, relation: Relation, join: Join) -> tuple[set[str] | None, bool]:
        removed = scope.add(qualifier, relation)
        if join == "natural":
            for column in relation.columns:
                if scope.count(column) > 1:
                    scope.merge(column)
        return removed

    def _join_condition(
        self, scope: Scope, relation: Relation, conflicts: set[str], token: Token, ends: Follow
    ) -> Reading:
        def follow() -> Want:
            return self._joins(scope).also(ends())

        if token.keyword == "ON":
            return (yield from self.expression(Place(scope, joins=True), follow))
        if token.keyword != "USING":
            return token
        yield want(marks="(")
        shared = frozenset(column for column in relation.columns if scope.count(column) == 2)
        listed: set[str] = set()
        while token.keyword != ")":
            token = yield self.any_of(shared - listed)
            listed.add(token.name)
            scope.merge(token.name)
            marks = ("," if shared - listed else "") + (" )" if conflicts <= listed else "")
            token = yield want(marks=marks.strip())
        return (yield follow())

    # -- names that the query makes

    def fresh(self, strings: bool = False, implied: bool = False) -> Want:
        """Return a Want of a new name; strings: also one written as a string, which SQLite takes; implied: without AS."""
        literals: frozenset[Kind] = frozenset(("string",)) if strings and self.lite else frozenset()
        meant = _AFTER_OUTPUTS if implied else ""
        return Want(names=(lambda text, whole, quoted: self._is_free(text, whole, quoted, meant),), literals=literals)

    def _is_free(self, text: str, whole: bool, quoted: str, meant: str) -> bool:
        """Whether a text is, or begins, a new name; `meant`: keywords that, begun or lengthened, would be meant by it."""
        upper = text.upper()
        if not quoted and any(
            upper.startswith(word) or (len(text) > 1 and word.startswith(upper)) for word in meant.split()
        ):
            return False
        return not whole or (bool(text) and (bool(quoted) or upper not in self.words.clauses))

    def column_list(self) -> Generator[Want, Token, list[str]]:
        """Read new names of columns up to the closing bracket."""
        names: list[str] = []
        while True:
            token = yield self.fresh()
            names.append(token.name)
            token = yield want(marks=", )")
            if token.keyword == ")":
                return names
