"""Whether a text can become a Cypher query that names nothing but what the graph has."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from functools import cache
from typing import Any, NamedTuple

from expert_cli.inference.grammar.cypher.graph_schema import GraphSchema
from expert_cli.inference.grammar.cypher.known import Known
from expert_cli.inference.grammar.cypher.names import CypherNames
from expert_cli.inference.grammar.cypher.network import Arc, Place, RuleNetwork, Step
from expert_cli.inference.grammar.cypher.rules import RULES
from expert_cli.inference.grammar.cypher.word_lists import NEW_NAMES, RESERVED
from expert_cli.inference.grammar.cypher.words import Word, is_whole, quoted, read_word, unquoted

Stack = Any
"""The places to come back to, the last one first: (place, stack), None for none."""
_KINDS = {"<number>": ("number",), "<integer>": ("number",), "<string>": ("string",), "<parameter>": ("parameter",)}
_CASELESS = frozenset(["<function>", "<namespace>", "<temporal>", "<temporal_function>"])


class Reading(NamedTuple):
    """One way to understand a text: where it stands in the rules, and what is known."""

    place: Place
    stack: Stack
    known: Known


class Point(NamedTuple):
    """After a word: the ways to understand the text up to there, and whether it may end."""

    end: int
    readings: tuple[Reading, ...]
    whole: bool
    last: str = ""


@cache
def _network() -> RuleNetwork:
    return RuleNetwork(RULES)


class CypherChecker:
    """Reads a query as it is written. What was read of the last viable text is kept: a longer one costs what is new."""

    def __init__(self, schema: GraphSchema) -> None:
        """Take what the graph may hold."""
        names = CypherNames(schema)
        self._network = _network()
        self._steps: dict[str, Callable[[Known], Known | None]] = {}
        self._choices: dict[str, Callable[[Known], Collection[str] | None]] = {}
        self._takes: dict[str, Callable[[Known, str], Known | None]] = {}
        for label in self._network.names():
            name = label.strip("<@>")
            if label[0] == "@":
                self._steps[name] = getattr(names, name)
            elif label not in _KINDS:
                self._choices[label] = getattr(names, f"{name}_choices", lambda _known: None)
                self._takes[label] = getattr(names, name, lambda known, _word: known)
        self._text = ""
        self._points = [self._point(0, "", [(self._network.start, None, Known())])]

    def viable(self, text: str) -> bool:
        """Whether the text can become a query."""
        return self._read(text) is not None

    def complete(self, text: str) -> bool:
        """Whether the text is a query."""
        word = self._read(text)
        if word is None:
            return False
        point = self._points[-1]
        if word.kind == "comment":
            return word.text.startswith("//") and point.whole
        if word.open and word.kind != "blank":
            after = self._after(point, word) if is_whole(word) else None
            return after is not None and after.whole
        return point.whole

    def _read(self, text: str) -> Word | None:
        """Return the last word where the text is viable."""
        points = self._kept(text)
        at, word = points[-1].end, Word("blank", "", len(text), False)
        while at < len(text):
            found = read_word(text, at)
            if found is None:
                return None
            word = found
            if word.open:
                if not self._may_begin(points[-1], word, at):
                    return None
                break
            if word.kind != "blank":
                after = None if _runs_on(points[-1], word, at) else self._after(points[-1], word)
                if after is None:
                    return None
                points.append(after)
            at = word.end
        self._text, self._points = text, points
        return word

    def _kept(self, text: str) -> list[Point]:
        """Return what was read of the text before: up to two characters before another one, which end the last word."""
        if text.startswith(self._text):
            return self._points[:]
        same = next((n for n, (old, new) in enumerate(zip(self._text, text, strict=False)) if old != new), len(text))
        return [point for point in self._points if not point.end or point.end + 2 <= same]

    def _may_begin(self, point: Point, word: Word, at: int) -> bool:
        """Whether a word that the text ends in may stand there, or one that begins with it."""
        if word.kind in ("comment", "blank"):
            return True
        if _runs_on(point, word, at):
            return False
        if word.text == "/":
            return True  # a comment
        if word.kind == "number" and word.text.endswith("."):
            before = self._after(point, Word("number", word.text[:-1], at, False))
            if before is not None and self._may_begin(before, Word("mark", "..", at, True), at):
                return True
        return any(self._begins(arc, known, word) for arc, known in self._possible(point, word))

    def _possible(self, point: Point, word: Word) -> Iterator[tuple[Arc, Known]]:
        """Yield the next words of the rules that one may be the beginning of, and what is known on the way there."""
        for reading in point.readings:
            begun = reading.place.begun.get(word.text.upper(), ()) if word.kind in ("word", "mark") else ()
            for arc in (*begun, *(() if word.kind == "mark" else reading.place.decided)):
                known = self._walk(arc.steps, reading.known)
                if known is not None:
                    yield arc, known

    def _begins(self, arc: Arc, known: Known, word: Word) -> bool:
        if arc.word in _KINDS:
            return word.kind in _KINDS[arc.word] and (arc.word != "<integer>" or word.text.isdigit())
        if arc.word not in self._takes:
            return True
        if word.kind not in ("word", "name"):
            return False
        choices = self._choices[arc.word](known)
        if choices is None:
            return True
        if arc.word in NEW_NAMES:
            choices = [choice for choice in choices if self._takes[arc.word](known, choice) is not None]
        text = word.text.lower() if arc.word in _CASELESS else word.text
        if word.kind == "name":
            return any(quoted(choice).startswith(text) for choice in choices)
        return any(choice.startswith(text) for choice in choices)

    def _after(self, point: Point, word: Word) -> Point | None:
        """Read a whole word."""
        key = word.text.upper() if word.kind in ("word", "mark") else ""
        found = []
        for reading in point.readings:
            for arc in (*reading.place.exact.get(key, ()), *(() if word.kind == "mark" else reading.place.decided)):
                known = self._walk(arc.steps, reading.known)
                known = known if known is None else self._taken(arc, known, word)
                if known is not None:
                    stack = reading.stack
                    for step in arc.steps:
                        if isinstance(step, int):
                            stack = (step, stack)
                    found.append((arc.target, stack, known))
        return self._point(word.end, word.kind, found) if found else None

    def _taken(self, arc: Arc, known: Known, word: Word) -> Known | None:
        if arc.word in _KINDS:
            fits = word.kind in _KINDS[arc.word] and (arc.word != "<integer>" or word.text.isdigit())
            return known if fits else None
        if arc.word not in self._takes:
            return known
        if word.kind not in ("word", "name"):
            return None
        if word.kind == "word" and arc.word in NEW_NAMES and word.text.upper() in RESERVED:
            return None
        name = word.text if word.kind == "word" else unquoted(word.text)
        choices = self._choices[arc.word](known)
        if choices is not None and (name.lower() if arc.word in _CASELESS else name) not in choices:
            return None
        return self._takes[arc.word](known, name)

    def _walk(self, steps: tuple[Step, ...], known: Known) -> Known | None:
        """Return what is known after noting or asking what stands on the way."""
        for step in steps:
            if isinstance(step, str):
                noted = self._steps[step](known)
                if noted is None:
                    return None
                known = noted
        return known

    def _point(self, end: int, last: str, found: list[tuple[int, Stack, Known]]) -> Point:
        """Return all places that a word leads to: its own, and those behind the rules that may end there."""
        readings: list[Reading] = []
        whole = False
        while found:
            number, stack, known = found.pop()
            place = self._network.place(number)
            readings.append(Reading(place, stack, known))
            for way in place.ends:
                ended = self._walk(way, known)
                if ended is not None:
                    whole = whole or stack is None
                    found += [] if stack is None else [(stack[0], stack[1], ended)]
        return Point(end, tuple(readings), whole, last)


def _runs_on(point: Point, word: Word, at: int) -> bool:
    """Whether a word or number follows a number without a blank."""
    return point.last == "number" and point.end == at and word.kind in ("word", "number", "name")
