"""What patterns say about names: which labels, types and properties they may hold, and what their variables are bound to."""

from __future__ import annotations

from collections.abc import Collection

from expert_cli.inference.grammar.cypher.graph_schema import Direction, GraphSchema, Names, Step
from expert_cli.inference.grammar.cypher.known import (
    NODE,
    OPEN,
    PATH,
    RELATIONSHIP,
    UNKNOWN,
    Chain,
    Known,
    Link,
    Part,
    Value,
)


class PatternNames:
    """The words and things of the rules from `patterns` to `types_not`, see `names`."""

    def __init__(self, schema: GraphSchema) -> None:
        """Take what the graph may hold."""
        self.schema = schema

    # whole patterns

    def chain(self, known: Known) -> Known:
        """Begin a pattern."""
        return known._replace(saved=(known.chain, known.saved), chain=Chain())

    def tested_pattern(self, known: Known) -> Known:
        """Begin a pattern that is part of an expression."""
        return known._replace(saved=(known.chain, known.saved), chain=Chain(closed=True))

    def unchain(self, known: Known) -> Known:
        """End a pattern."""
        return known._replace(chain=known.saved[0], saved=known.saved[1])

    def loose(self, known: Known) -> Known:
        """Go on behind a pattern in brackets."""
        return known._replace(chain=Chain())

    def path(self, known: Known, word: str) -> Known:
        """Bind a path."""
        return known.bind(word, PATH)

    # nodes

    def node(self, known: Known, word: str) -> Known | None:
        """Take a node's variable: a new one, or one that can be a node here."""
        bound = known.scope.get(word, UNKNOWN)
        if bound.kind not in ("node", "unknown", "open") or (known.chain.closed and word not in known.scope):
            return None
        if bound.kind == "node" and _never(self._ways(known, bound.names)):
            return None
        return _with_part(known, known.chain.part._replace(name=word))

    def node_choices(self, known: Known) -> Collection[str] | None:
        """Return the variables that may stand here: None for any."""
        return known.scope if known.chain.closed else None

    relationship_choices = node_choices

    def labelling(self, known: Known) -> Known | None:
        """Ask whether any label may stand here."""
        return known if self.label_choices(known) else None

    def label_choices(self, known: Known) -> Names:
        """Return the labels that may stand here: at first those that the relationship leads to, and the node may have."""
        every = frozenset(self.schema.labels)
        part, before = known.chain.part, known.scope.get(known.chain.part.name, UNKNOWN)
        if part.joined == "and" and part.stated and not part.negated:
            return self.schema.beside(part.stated)
        if part.negated or part.joined or part.stated:
            return every
        if before.kind == "node" and before.stated and before.names is not None:
            every = self.schema.beside(before.names)
        return frozenset(label for label in every if not _never(self._ways(known, frozenset([label]))))

    def label(self, known: Known, word: str) -> Known:
        """Take a label."""
        return _with_name(known, word)

    def bound(self, known: Known) -> Known:
        """Bind the node's variable."""
        name = known.chain.part.name
        if not name:
            return known
        before, labels = known.scope.get(name, UNKNOWN), self._labels(known)
        stated = bool(known.chain.part.stated) or (before.kind == "node" and before.stated)
        if known.chain.part.stated and before.kind == "node" and before.stated:
            labels = _union(labels, before.names)
        return known.bind(name, NODE._replace(names=labels, stated=stated))

    def reached(self, known: Known) -> Known:
        """End a node: what it is says more about the relationship and the node before it."""
        chain, labels = known.chain, self._labels(known)
        if chain.link is not None:
            known = self._bind_relationship(known, labels)
            before = known.scope.get(chain.left_name)
            ways = None if chain.link.repeated else self._ways(known, labels)
            if ways and before is not None and before.kind == "node" and not before.stated:
                narrowed = before._replace(names=frozenset(start for start, _, _ in ways))
                known = known.bind(chain.left_name, narrowed)
        return known._replace(chain=Chain(left=labels, left_name=chain.part.name, closed=chain.closed))

    # relationships

    def leftward(self, known: Known) -> Known:
        """Begin a relationship against its direction."""
        return _begun(known, "<")

    def undirected(self, known: Known) -> Known:
        """Begin a relationship whose direction is not seen yet."""
        return _begun(known, "-")

    def rightward(self, known: Known) -> Known | None:
        """Turn the relationship's direction."""
        return self._turned(known, ">")

    def either(self, known: Known) -> Known | None:
        """Let the relationship have either direction: <-[]->."""
        return self._turned(known, "-")

    def linked(self, known: Known) -> Known:
        """End a relationship; a node follows."""
        chain = known.chain
        link = (chain.link or Link())._replace(part=chain.part)
        known = known._replace(chain=chain._replace(link=link, on_link=False, part=Part()))
        return self._bind_relationship(known, None)

    def related(self, known: Known) -> Known:
        """Bind the relationship's variable, for what is asked of it inside its brackets."""
        part = known.chain.part
        if not part.name:
            return known
        return known.bind(part.name, RELATIONSHIP._replace(names=self._types(known), stated=True))

    def repeated(self, known: Known) -> Known:
        """Let the relationship be walked several times."""
        chain = known.chain
        return known._replace(chain=chain._replace(link=(chain.link or Link())._replace(repeated=True)))

    def relationship(self, known: Known, word: str) -> Known | None:
        """Take a relationship's variable: a new one, or one that can be a relationship here."""
        bound = known.scope.get(word, UNKNOWN)
        if bound.kind == "list" and isinstance(bound.of, Value) and bound.of.kind == "relationship":
            bound = bound.of
        if bound.kind not in ("relationship", "unknown", "open") or (known.chain.closed and word not in known.scope):
            return None
        return _with_part(known, known.chain.part._replace(name=word))

    def typing(self, known: Known) -> Known | None:
        """Ask whether any type may stand here."""
        choices = self.type_choices(known)
        return known if choices is None or choices else None

    def type_choices(self, known: Known) -> Names:
        """Return the types that may stand here: at first those that lead away from the node before."""
        if self.schema.types is None:
            return None
        every = frozenset(self.schema.types)
        part = known.chain.part
        if part.negated or part.joined or part.stated:
            return every
        left, direction = known.chain.left, (known.chain.link or Link()).direction
        return frozenset(name for name in every if not _never(self.schema.steps(left, frozenset([name]), direction)))

    def type(self, known: Known, word: str) -> Known:
        """Take a relationship type."""
        return _with_name(known, word)

    # both

    def other(self, known: Known) -> Known:
        """Note that another label or type follows, which may take its place: it may be any."""
        return _with_part(known, known.chain.part._replace(joined="or"))

    def both(self, known: Known) -> Known:
        """Note that another label follows: one that the same node may have."""
        return _with_part(known, known.chain.part._replace(joined="and"))

    def negated(self, known: Known) -> Known:
        """Note that a label or type is left out: the others may be any."""
        return _with_part(known, known.chain.part._replace(negated=True))

    def key_choices(self, known: Known) -> Names:
        """Return the properties of the node or relationship that is being read."""
        if known.chain.on_link:
            return self.schema.type_properties(self._types(known))
        return self.schema.label_properties(self._labels(known))

    def key(self, known: Known, _word: str) -> Known:
        """Take a property in a pattern's map."""
        return known

    # what follows from what is read

    def _turned(self, known: Known, direction: Direction) -> Known | None:
        chain = known.chain
        if _never(self.schema.steps(chain.left, _stated_types(known, chain.part), direction)):
            return None
        return known._replace(chain=chain._replace(link=(chain.link or Link())._replace(direction=direction)))

    def _ways(self, known: Known, labels: Names) -> frozenset[Step] | None:
        """Return the ways along the link, or the last of several, to a node of the labels; None where any is possible."""
        chain = known.chain
        if chain.link is None or chain.on_link:
            return None
        types = _stated_types(known, chain.link.part)
        if not chain.link.repeated:
            return self.schema.steps(chain.left, types, chain.link.direction, labels)
        ways = self.schema.steps(None, types, chain.link.direction, labels)
        here = self.schema.steps(chain.left, None, "-", None)
        if ways is None or here is None or chain.left is None:
            return None
        # none or several: it can be a node like the first
        return ways | {(start, "", start) for start, _, _ in here if labels is None or start in labels}

    def _labels(self, known: Known) -> Names:
        """Return which labels the node that is being read may have."""
        part = known.chain.part
        if part.stated and not part.negated:
            return part.stated
        ways = self._ways(known, None)
        bound = known.scope.get(part.name)
        if bound is not None and bound.kind == "node":
            if bound.stated or ways is None:
                return bound.names
            ways = self._ways(known, bound.names)
            return bound.names if ways is None else frozenset(end for _, _, end in ways)
        return None if ways is None or part.negated else frozenset(end for _, _, end in ways)

    def _types(self, known: Known) -> Names:
        """Return which types the relationship that is being read may have."""
        types = _stated_types(known, known.chain.part)
        if types is not None:
            return types
        link = known.chain.link
        ways = self.schema.steps(known.chain.left, None, link.direction) if link is not None else None
        if ways is None or known.chain.part.negated:
            return None
        return frozenset(type_ for _, type_, _ in ways)

    def _bind_relationship(self, known: Known, labels: Names) -> Known:
        link = known.chain.link
        if link is None or not link.part.name:
            return known
        types = _stated_types(known, link.part)
        if types is None and not link.repeated and not link.part.negated:
            ways = self._ways(known, labels)
            types = None if ways is None else frozenset(type_ for _, type_, _ in ways)
        value = RELATIONSHIP._replace(names=types)
        return known.bind(link.part.name, Value("list", of=value) if link.repeated else value)


def _begun(known: Known, direction: Direction) -> Known:
    return known._replace(chain=known.chain._replace(link=Link(direction), on_link=True, part=Part()))


def _stated_types(known: Known, part: Part) -> Names:
    if part.stated and not part.negated:
        return part.stated
    bound = known.scope.get(part.name, OPEN)
    return bound.names if bound.kind == "relationship" and bound.stated else None


def _with_part(known: Known, part: Part) -> Known:
    return known._replace(chain=known.chain._replace(part=part))


def _with_name(known: Known, word: str) -> Known:
    part = known.chain.part
    return _with_part(known, part._replace(stated=part.stated | {word}))


def _union(names: Names, others: Names) -> Names:
    return None if names is None or others is None else names | others


def _never(ways: frozenset[Step] | None) -> bool:
    return ways is not None and not ways
