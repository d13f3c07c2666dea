"""Rules of words as a network: from every place in a rule, the words that may come next.

        MATCH      (        name      )
    0 --------> 1 -----> 2 -------> 3 -----> 4         a rule that another one uses is entered by keeping where to go on

Every way from a place to a next word is found once: which rules it enters, which things it notes or asks on its way.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

_PARTS = re.compile(r"'[^']*'|<\w+>|@\w+|\w+|[\[\](){}|]")
_RULE = re.compile(r"^(\w+): (.*(?:\n .*)*)", re.MULTILINE)

Step = int | str
"""On the way to a word: a place to come back to, or the name of something to note or ask."""


class Arc(NamedTuple):
    """A word that may come next, what is on the way to it, and the place after it."""

    steps: tuple[Step, ...]
    word: str
    target: int


class Place:
    """What may follow at one place."""

    def __init__(self, arcs: list[Arc], ends: list[tuple[Step, ...]]) -> None:
        """Take the next words, and what is on the ways to the end of the rule."""
        self.arcs = arcs
        self.ends = ends
        self.exact: dict[str, list[Arc]] = defaultdict(list)
        self.begun: dict[str, list[Arc]] = defaultdict(list)
        self.decided = [arc for arc in arcs if arc.word[0] == "<" and len(arc.word) > 2]
        for arc in arcs:
            if arc in self.decided:
                continue
            self.exact[arc.word].append(arc)
            for length in range(1, len(arc.word) + 1):
                self.begun[arc.word[:length]].append(arc)
        self.exact.default_factory = self.begun.default_factory = None


class RuleNetwork:
    """The rules of a language; the first is the whole text."""

    def __init__(self, rules: str) -> None:
        """Read rules, as `rules` describes them. Raises KeyError for a rule that is not there."""
        self._edges: list[list[tuple[str, int]]] = []
        self._places: dict[int, Place] = {}
        self._starts: dict[str, int] = {}
        self._ends: set[int] = set()
        bodies = dict(_RULE.findall(rules))
        self._starts = {name: self._new() for name in bodies}
        for name, body in bodies.items():
            parts = _PARTS.findall(body)
            end = self._new()
            self._ends.add(end)
            self._either(parts[::-1], self._starts[name], end)
        self.start = next(iter(self._starts.values()))

    def place(self, number: int) -> Place:
        """Return what may follow at a place."""
        if number not in self._places:
            arcs: list[Arc] = []
            ends: list[tuple[Step, ...]] = []
            self._walk(number, (), arcs, ends)
            self._places[number] = Place(arcs, ends)
        return self._places[number]

    def names(self) -> Iterator[str]:
        """Yield the words that names decide on, as <word>, and the things to note or ask, as @thing."""
        yield from (label for edges in self._edges for label, _ in edges if re.match(r"<\w|@", label))

    def _walk(self, number: int, steps: tuple[Step, ...], arcs: list[Arc], ends: list[tuple[Step, ...]]) -> None:
        if number in self._ends:
            ends.append(steps)
        for label, target in self._edges[number]:
            if not label:
                self._walk(target, steps, arcs, ends)
            elif label[0] == "@":
                self._walk(target, (*steps, label[1:]), arcs, ends)
            elif label in self._starts:
                rule = self.place(self._starts[label])
                arcs += [Arc((*steps, target, *arc.steps), arc.word, arc.target) for arc in rule.arcs]
                for way in rule.ends:
                    self._walk(target, (*steps, *way), arcs, ends)
            else:
                arcs.append(Arc(steps, label.strip("'"), target))

    def _new(self) -> int:
        self._edges.append([])
        return len(self._edges) - 1

    def _either(self, parts: list[str], start: int, end: int) -> None:
        """Read alternatives up to a closing bracket; parts: the next one last."""
        here = start
        while parts and parts[-1] not in "])}":
            part = parts.pop()
            if part == "|":
                self._edges[here].append(("", end))
                here = start
                continue
            after = self._new()
            if part in "[({":
                self._bracket(part, parts, here, after)
            else:
                self._edges[here].append((part, after))
            here = after
        self._edges[here].append(("", end))

    def _bracket(self, kind: str, parts: list[str], here: int, after: int) -> None:
        first = self._new()
        self._edges[here].append(("", first))
        if kind == "{":  # around again from its end, and on from its beginning
            inside = self._new()
            self._either(parts, inside, first)
            self._edges[first] += [("", inside), ("", after)]
        else:
            self._either(parts, first, after)
            if kind == "[":
                self._edges[here].append(("", after))
        parts.pop()
