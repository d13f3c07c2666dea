"""What a graph may hold: labels, relationship types and where they lead."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

Names = frozenset[str] | None
"""Some of the names; None: any."""
Direction = Literal["<", ">", "-"]
Step = tuple[str, str, str]
"""A label, a relationship type, and the label that it leads to."""


@dataclass(frozen=True)
class GraphSchema:
    """The labels and relationship types with their properties, None where these are not told; types: None likewise.

    relationships: (label, type, label), in the direction of the relationship. They are seldom all that there are where nodes
    have several labels. So a label or a type that stands in none of them may be anywhere, and labels that one type leads to
    from one label, or leads from to one label, may be labels of one node.
    """

    labels: Mapping[str, Names]
    types: Mapping[str, Names] | None
    relationships: frozenset[Step]
    _known: dict[tuple[Names, Names, Direction, Names], frozenset[Step] | None] = field(
        default_factory=dict, repr=False, compare=False
    )

    def steps(self, starts: Names, types: Names, direction: Direction, ends: Names = None) -> frozenset[Step] | None:
        """Return the ways to walk along one relationship, as (label before, type, label behind); None where it cannot be told.

        direction: ">" with the relationship, "<" against it, "-" either.
        """
        key = (starts, types, direction, ends)
        if key not in self._known:
            self._known[key] = self._steps(*key)
        return self._known[key]

    def label_properties(self, labels: Names) -> Names:
        """Return the properties that nodes of any of the labels may have."""
        return _together(self.labels, labels)

    def type_properties(self, types: Names) -> Names:
        """Return the properties that relationships of any of the types may have."""
        return None if self.types is None else _together(self.types, types)

    def beside(self, labels: frozenset[str]) -> frozenset[str]:
        """Return the labels that a node with one of these may have."""
        groups = self._groups
        if not labels <= groups.keys():
            return frozenset(self.labels)
        return frozenset().union(*(groups[label] for label in labels), self.labels.keys() - groups.keys())

    def _steps(self, starts: Names, types: Names, direction: Direction, ends: Names) -> frozenset[Step] | None:
        typed = {type_ for _, type_, _ in self.relationships}
        groups = self._groups
        if not (starts or frozenset()) | (ends or frozenset()) <= groups.keys() or not (types or frozenset()) <= typed:
            return None
        starts, ends = (
            None if names is None else frozenset().union(*(groups[name] for name in names)) for names in (starts, ends)
        )
        ways = {way for way in self.relationships if direction != "<"}
        ways |= {(end, type_, start) for start, type_, end in self.relationships if direction != ">"}
        found = frozenset(
            (start, type_, end)
            for start, type_, end in ways
            if (starts is None or start in starts)
            and (types is None or type_ in types)
            and (ends is None or end in ends)
        )
        return found if found or types else None

    @cached_property
    def _groups(self) -> dict[str, frozenset[str]]:
        """The labels that may be of one node, for each that stands in a relationship."""
        sides: dict[tuple[str, str, bool], set[str]] = defaultdict(set)
        for start, type_, end in self.relationships:
            sides[start, type_, True].add(end)
            sides[end, type_, False].add(start)
        groups: dict[str, frozenset[str]] = {}
        for side in sides.values():
            group = frozenset(side).union(*(groups.get(label, ()) for label in side))
            groups |= dict.fromkeys(group, group)
        return groups


def _together(properties: Mapping[str, Names], of: Names) -> Names:
    every = [properties.get(name, frozenset()) for name in (properties if of is None else of)]
    known = [one for one in every if one is not None]
    return frozenset().union(*known) if len(known) == len(every) else None
