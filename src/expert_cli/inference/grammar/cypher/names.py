"""What the names in a Cypher query stand for: variables and where they are known, labels, types and properties.

`CypherNames` has two kinds of methods, by the words of the rules in `rules`: for a `<word>` those that may stand there
(`word_choices`, None for any name; none for a word that is always a new name) and what follows from one (`word`); for an
`@thing` what follows from it. Each takes what is known so far and returns what is known then, or None where it cannot be.
"""

from __future__ import annotations

from collections.abc import Collection

from expert_cli.inference.grammar.cypher.graph_schema import Names
from expert_cli.inference.grammar.cypher.known import (
    COMPUTED,
    NOTHING,
    OPEN,
    PATH,
    SIGNED,
    UNKNOWN,
    Known,
    Value,
    element_of,
    returned,
)
from expert_cli.inference.grammar.cypher.patterns import PatternNames
from expert_cli.inference.grammar.cypher.word_lists import (
    FIELDS,
    FUNCTIONS,
    NAMESPACES,
    NO_ARGUMENTS,
    NULLARY,
    TEMPORAL,
    TEMPORAL_FUNCTIONS,
)

_ENTITIES = ("node", "relationship", "unknown", "open")
_LITERAL = PATH


class CypherNames(PatternNames):
    """The words and things of all rules."""

    # scopes

    def mark(self, known: Known) -> Known:
        """Begin a query, in brackets or not: what is known outside of it is kept."""
        return known._replace(saved=(known.scope, known.saved))

    open_scope = mark

    def again(self, known: Known) -> Known:
        """Begin a query that is united with the one before: that one's variables are not known."""
        return known._replace(scope=known.saved[0])

    def unmark(self, known: Known) -> Known:
        """End a query: its results are known."""
        return known._replace(saved=known.saved[1])

    drop = unmark

    def close_scope(self, known: Known) -> Known:
        """Forget what was bound in brackets."""
        return known._replace(scope=known.saved[0], saved=known.saved[1], variable="")

    forget = close_scope

    def join(self, known: Known) -> Known:
        """Add what a query in brackets returned."""
        return known._replace(scope={**known.saved[0], **known.scope}, saved=known.saved[1])

    def project(self, known: Known) -> Known:
        """Begin the results that WITH goes on with: each has a name."""
        return known._replace(saved=((True, {}), known.saved))

    def project_last(self, known: Known) -> Known:
        """Begin the results of RETURN."""
        return known._replace(saved=((False, {}), known.saved))

    def everything(self, known: Known) -> Known | None:
        """Return all variables."""
        return self._also(known, known.scope) if known.scope else None

    def column(self, known: Known, word: str) -> Known:
        """Name a result."""
        return self._also(known, {word: known.value})

    def unnamed(self, known: Known) -> Known | None:
        """Take a result without a name: a variable has one, and WITH needs one."""
        if known.variable:
            return self._also(known, {known.variable: known.value})
        return None if known.saved[0][0] else known

    def sorted(self, known: Known) -> Known:
        """Let the results be known beside what they were made of: a name of both may mean either."""
        entities = {name: value for name, value in known.scope.items() if value.kind in _ENTITIES}
        return known._replace(scope={**known.scope, **known.saved[0][1], **entities})

    def projected(self, known: Known) -> Known:
        """Let the results alone be known."""
        return known._replace(scope=known.saved[0][1], saved=known.saved[1])

    def _also(self, known: Known, columns: object) -> Known:
        (naming, results), rest = known.saved
        return known._replace(saved=((naming, {**results, **columns}), rest))  # type: ignore[dict-item]

    # new variables

    def alias(self, known: Known, word: str) -> Known:
        """Name the last value."""
        return known.bind(word, known.value)

    def fresh(self, known: Known, word: str) -> Known:
        """Put the name of a variable aside until its value is read."""
        return known._replace(saved=(word, known.saved))

    def let(self, known: Known) -> Known:
        """Bind the name that was put aside to the last value."""
        name, rest = known.saved
        return known._replace(saved=rest).bind(name, known.value)

    # values

    def variable_choices(self, known: Known) -> Collection[str]:
        """Return the variables."""
        return known.scope

    def variable(self, known: Known, word: str) -> Known:
        """Take a variable."""
        return known._replace(value=known.scope[word], variable=word)

    def some_variable(self, known: Known) -> Known | None:
        """Ask for a variable."""
        return known if known.scope else None

    def entity_choices(self, known: Known) -> Collection[str]:
        """Return the variables that are nodes or relationships."""
        return [name for name, value in known.scope.items() if value.kind in _ENTITIES]

    entity = variable

    def some_entity(self, known: Known) -> Known | None:
        """Ask for a node or relationship."""
        return known if self.entity_choices(known) else None

    def is_entity(self, known: Known) -> Known | None:
        """Ask whether the last operand is the variable of a node or relationship."""
        return known if known.variable and known.value.kind in _ENTITIES else None

    def computed(self, known: Known) -> Known:
        """Note a number, a text, a time or the like."""
        return known._replace(value=COMPUTED, variable="")

    def signed(self, known: Known) -> Known:
        """Note a plus or minus: what follows is no list, and no pattern."""
        return known._replace(value=SIGNED, variable="")

    def unsigned(self, known: Known) -> Known | None:
        """Ask whether no plus or minus stands before."""
        return known if known.value is not SIGNED else None

    def literal(self, known: Known) -> Known:
        """Note a value that has no parts."""
        return known._replace(value=_LITERAL, variable="")

    path_value = literal

    def unknown(self, known: Known) -> Known:
        """Note a value of any kind."""
        return known._replace(value=UNKNOWN, variable="")

    def open(self, known: Known) -> Known:
        """Note a value from outside, with any parts."""
        return known._replace(value=OPEN, variable="")

    def element(self, known: Known) -> Known:
        """Note one of the last value's items."""
        return known._replace(value=element_of(known.value), variable="")

    def listed(self, known: Known) -> Known:
        """Note a list of the last value."""
        return known._replace(value=Value("list", of=known.value), variable="")

    # parts of values

    def has_members(self, known: Known) -> Known | None:
        """Ask whether the last value has properties."""
        choices = self.member_choices(known)
        return known if choices is None or choices else None

    def member_choices(self, known: Known) -> Names:
        """Return the last value's properties."""
        return self._members(known, known.value)

    def member(self, known: Known, _word: str) -> Known:
        """Take a property."""
        return known._replace(value=OPEN if known.value.kind == "open" else COMPUTED, variable="")

    def kept_member_choices(self, known: Known) -> Names:
        """Return the properties of the value whose map is being made."""
        return self._members(known, known.saved[0])

    def kept_member(self, known: Known, word: str) -> Known:
        """Take a property into a map."""
        return self.map_key(known, word)

    def map_key(self, known: Known, word: str) -> Known:
        """Take a key of a map."""
        return known._replace(keys=known.keys | {word})

    def has_items(self, known: Known) -> Known | None:
        """Ask whether the last value can be a list or a map."""
        return None if known.value is _LITERAL else known

    def keep(self, known: Known) -> Known:
        """Put the last value aside."""
        return known._replace(saved=(known.value, known.saved))

    def slice(self, known: Known) -> Known:
        """Note that several items of the value put aside are asked for."""
        value, rest = known.saved
        return known._replace(saved=(Value("list", of=value), rest))

    def item(self, known: Known) -> Known:
        """Take an item of the value put aside."""
        value, rest = known.saved
        return known._replace(value=element_of(value), variable="", saved=rest)

    def tested_choices(self, known: Known) -> Names:
        """Return the labels or types that the last variable can be asked for."""
        labels, types = frozenset(self.schema.labels), self.schema.types
        kind = known.scope.get(known.variable, UNKNOWN).kind
        if kind == "node":
            return labels
        every = None if types is None else frozenset(types)
        return every if kind == "relationship" or every is None else labels | every

    def tested(self, known: Known, word: str) -> Known:
        """Take a label or type that is asked for: from there on it may be one that the variable has."""
        value = known.scope.get(known.variable)
        if value is None or value.kind not in ("node", "relationship") or value.names is None:
            return known
        return known.bind(known.variable, value._replace(names=value.names | {word}))

    def _members(self, known: Known, value: Value) -> Names:
        if value.kind == "node":
            return self.schema.label_properties(value.names)
        if value.kind == "relationship":
            return self.schema.type_properties(value.names)
        if value.kind == "computed":
            return FIELDS
        if value.kind == "unknown":
            every = (self.schema.label_properties(None), self.schema.type_properties(None))
            return None if None in every else frozenset().union(*(one or () for one in every), FIELDS, known.keys)
        return None if value.kind == "open" else NOTHING

    # functions

    def function_choices(self, _known: Known) -> Collection[str]:
        """Return the functions."""
        return FUNCTIONS

    def function(self, known: Known, word: str) -> Known:
        """Begin a function's call."""
        return known._replace(saved=(word.lower(), known.saved), value=COMPUTED, variable="")

    def takes_something(self, known: Known) -> Known | None:
        """Ask whether the function may be called with an argument."""
        return known if known.saved[0] not in NO_ARGUMENTS else None

    def takes_nothing(self, known: Known) -> Known | None:
        """Ask whether the function may be called so."""
        return known if known.saved[0] in NULLARY else None

    def called(self, known: Known) -> Known:
        """Note what a function returns."""
        name, rest = known.saved
        return known._replace(value=returned(name, known.value), variable="", saved=rest)

    def namespace_choices(self, _known: Known) -> Collection[str]:
        """Return what the names of further functions begin with."""
        return NAMESPACES

    def temporal_choices(self, _known: Known) -> Collection[str]:
        """Return what has functions of its own."""
        return TEMPORAL

    def temporal_function_choices(self, _known: Known) -> Collection[str]:
        """Return such functions."""
        return TEMPORAL_FUNCTIONS
