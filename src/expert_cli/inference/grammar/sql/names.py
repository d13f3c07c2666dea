"""Names in expressions of SQL: columns, with their table or without, and calls; what may stand where an operand begins."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from expert_cli.inference.grammar.sql.relations import may_make
from expert_cli.inference.grammar.sql.scope import Scope
from expert_cli.inference.grammar.sql.tokens import Follow, Reading, Token, Want, want
from expert_cli.inference.grammar.sql.words import SqlDialect, usable, words_of

DEEPEST = 8
"""As many brackets, CASEs and calls may stand in one another."""

CONSTANTS = "NULL TRUE FALSE CURRENT_DATE CURRENT_TIME CURRENT_TIMESTAMP"


class Place(NamedTuple):
    """Where an expression stands: in which SELECT, and whether aggregates and windows may stand there.

    nested: within an aggregate's brackets: whether another one was found there. own: a column without a table must be of this
    SELECT's own FROM, as what a subquery lists and sums up is. joins: in ON, which FROM goes on after.
    """

    scope: Scope
    aggregates: bool = False
    windows: bool = False
    nested: list[bool] | None = None
    own: bool = False
    joins: bool = False


class NameReader:
    """Reads names. column: of the last expression, the name of the column that it is, else ""; width: of how many values it is;
    star: of `q.*`, q.
    """

    def __init__(self, dialect: SqlDialect) -> None:
        self.dialect = dialect
        self.words = words_of(dialect)
        self.depth = 0
        self.column = ""
        self.width = 1
        self.star: str | None = None
        words = self.words
        self._operators = Want((words.operators,), (words.operator_marks,))
        self._shallow_operators = Want((words.operators - {"IN"},), (words.operator_marks,))
        lite = dialect == "sqlite"
        # SQLite takes "x" for a string where no column is called so: let it be one where a value is compared with.
        self._strings = Want(names=(lambda _text, _whole, quoted: quoted == '"',)) if lite else Want()
        deep = f"NOT CASE CAST EXISTS {CONSTANTS}" + ("" if lite else " ARRAY")
        self._operands = want(deep, "( + - ~", "number", "string")
        self._flat_operands = want(f"NOT {CONSTANTS}", "+ - ~", "number", "string")

    # -- what may stand

    def operand_want(self, place: Place) -> Want:
        """Return what an operand may begin with."""
        deep = self.depth < DEEPEST
        base = self._operands if deep else self._flat_operands
        calls = self.words.calls(place.aggregates, place.windows) if deep else frozenset[str]()
        return base._replace(names=(self.names(place),), calls=calls)

    def names(self, place: Place) -> Callable[[str, bool, str], bool]:
        """Return what tells the columns and qualifiers that may stand at a place."""
        scope = place.scope

        def known(text: str, whole: bool, quoted: str) -> bool:
            if self.made(place, text, whole) or (
                self.makes_names(place) and 0 < len(text) < 4 and (quoted or text.isalpha())
            ):
                return not whole or bool(quoted) or text.upper() not in self.words.clauses
            if whole:
                known = scope.has_bare(text, place.own) or scope.has_qualifier(text, True)
                return known or text.upper() in self.words.literal_types
            begun = (name for names in scope.bare_names(place.own) for name in names if name.startswith(text))
            if any((quoted or usable(name, self.words.reserved)) and scope.has_bare(name, place.own) for name in begun):
                return True
            return scope.has_qualifier(text, False) or any(
                name.startswith(text.upper()) for name in self.words.literal_types
            )

        return known

    def makes_names(self, place: Place) -> bool:
        """Whether a name may stand that no table has: a subquery in FROM, which follows, can make what an aggregate sums up."""
        return place.nested is not None and self.precedes_from(place)

    def made(self, place: Place, text: str, whole: bool) -> bool:
        """Whether a text is, or begins, such a name."""
        letter = whole and len(text) == 1 and self.precedes_from(place)
        return letter or (self.makes_names(place) and may_make(place.scope.relations, text, whole))

    def precedes_from(self, place: Place) -> bool:
        """Whether a FROM can follow, and begin with a subquery."""
        return place.scope.opens() and not place.scope.sources and self.depth < DEEPEST

    def any_of(self, names: frozenset[str]) -> Want:
        """Return a Want of known names."""

        def known(text: str, whole: bool, quoted: str) -> bool:
            if whole:
                return text in names
            return any(name.startswith(text) and (quoted or usable(name, self.words.reserved)) for name in names)

        return Want(names=(known,))

    # -- reading

    def _named(self, place: Place, token: Token, after: Follow, star: Follow | None) -> Reading:
        """Read a column, with or without its table, or a call."""
        name, scope = token.name, place.scope
        made = self.made(place, name, True)
        plain = token.quoted or usable(name, self.words.reserved)
        bare = plain and (made or scope.has_bare(name, place.own))
        record = scope.use_bare(name, place.own) if bare else None
        self.column = name if bare else ""
        if token.quoted and not bare and not scope.has_qualifier(name, True):
            return (yield after())
        options = after() if bare else Want()
        typed = not token.quoted and name.upper() in self.words.literal_types
        if not token.quoted and self.depth < DEEPEST and name in self.words.calls(place.aggregates, place.windows):
            options = options.also(want(marks="("))
        if plain and (scope.has_qualifier(name, True) or (self.makes_names(place) and len(name) < 4)):
            options = options.also(want(marks="."))
        if typed:
            options = options.also(want("", "", "string"))
        following = yield options
        if following.keyword not in ("(", ".") and following.kind != "string":
            self.column = name
            return following
        if record:
            record.discard(name)
        if following.kind == "string":
            return (yield after())
        if following.keyword == "(":
            return (yield from self.call(place, name, after))
        return (yield from self._qualified(place, name, after, star))

    def _qualified(self, place: Place, qualifier: str, after: Follow, star: Follow | None) -> Reading:
        scope = place.scope
        options = self.any_of(scope.columns(qualifier))
        if self.makes_names(place) and qualifier not in scope.relations.by_name:
            options = options.also(Want(names=(lambda text, whole, _: self.made(place, text, whole),)))
        if star and (scope.source(qualifier) or (scope.opens() and any(scope.candidates(qualifier)))):
            options = options.also(want(marks="*"))
        token = yield options
        if token.keyword == "*" and star:
            if not scope.source(qualifier):
                scope.starred.add(qualifier)
            self.star = qualifier
            return (yield star())
        scope.use_column(qualifier, token.name)
        self.column = token.name
        following = yield after()
        self.column = token.name
        return following

    # -- by those who know queries

    def query(
        self, outer: Scope | None, follow: Follow, first: Token, width: int, must: frozenset[str] = frozenset()
    ) -> Reading:
        """Read a query, of whose tokens the first was read; see `QueryReader`."""
        raise NotImplementedError

    def call(self, place: Place, name: str, after: Follow) -> Reading:
        """Read a call, of which the opening bracket was read; see `CallReader`."""
        raise NotImplementedError
