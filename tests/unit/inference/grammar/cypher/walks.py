"""Finds endings of a query that a checker lets stand: a viable text without one would leave a model nothing to say."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache

from expert_cli.inference.grammar.cypher.checker import CypherChecker
from expert_cli.inference.grammar.cypher.network import Arc, RuleNetwork
from expert_cli.inference.grammar.cypher.rules import RULES

REFUSED = {"unnamed", "takes_nothing"}  # what names often refuse on the way to an end
FREE = {"<number>": "1", "<integer>": "1", "<string>": "'a'", "<parameter>": "$p"}


@cache
def _rules() -> tuple[RuleNetwork, dict[int, int]]:
    """The rules, and from each place how many words its rule needs to its end at least."""
    network, far = RuleNetwork(RULES), dict[int, int]()
    while True:
        before = dict(far)
        for number in range(len(network._edges)):
            place = network.place(number)
            ways = [0] if any(not REFUSED & set(way) for way in place.ends) else []
            for arc in (arc for arc in place.arcs if not REFUSED & set(arc.steps)):
                behind = [arc.target, *(step for step in arc.steps if isinstance(step, int))]
                ways += [1 + sum(far[one] for one in behind)] if all(one in far for one in behind) else []
            if ways:
                far[number] = min(ways)
        if far == before:
            return network, far


def _next_words(checker: CypherChecker, begun: str) -> Iterator[tuple[int, str]]:
    """Yield next words, and how many words an ending needs from each at least."""
    _, far = _rules()
    for reading in checker._points[-1].readings:
        outer, stack = 0, reading.stack
        while stack is not None:
            outer, stack = outer + far.get(stack[0], 9), stack[1]
        for arc in reading.place.arcs:
            known = checker._walk(arc.steps, reading.known)
            if known is not None:
                inner = far.get(arc.target, 9) + sum(far.get(step, 9) for step in arc.steps if isinstance(step, int))
                yield from ((outer + inner, word) for word in _words(checker, arc, known, begun))


def _words(checker: CypherChecker, arc: Arc, known: object, begun: str) -> list[str]:
    if arc.word in FREE:
        return [FREE[arc.word]]
    if arc.word not in checker._takes:
        return [arc.word]
    choices = checker._choices[arc.word](known)  # type: ignore[arg-type]
    return ["zz"] if choices is None else sorted(one for one in choices if one.upper().startswith(begun.upper()))[:3]


def ending(schema: object, text: str, tries: int = 400) -> str | None:
    """Return the text with a short ending, None where none was found."""
    checker = CypherChecker(schema)  # type: ignore[arg-type]
    assert checker.viable(text), text
    agenda = [(0, 0, text)]
    seen: set[str] = set()
    while agenda and tries:
        tries -= 1
        agenda.sort(reverse=True)
        _, depth, one = agenda.pop()
        if checker.complete(one):
            return one
        checker.viable(one)
        end = checker._points[-1].end
        begun = re.sub(r"^(?:\s|//[^\n]*\n|/\*.*?\*/)*", "", one[end:], flags=re.DOTALL)
        if begun[:1] in ("'", '"', "`") or begun.startswith(("/*", "//")):  # what closes it is enough, or nearly
            names = [f"`{word}`" for _, word in _next_words(checker, "")]
            closed = [begun + ending for ending in (begun[:1], "x" + begun[:1], begun[:1] * 2, "*/", "\n")] + names
            following = [(0, one[: len(one) - len(begun)] + word + " ") for word in closed]
        else:
            following = [
                (rest, one[: len(one) - len(begun)] + begun + word[len(begun) :] + " ")
                for rest, word in _next_words(checker, begun)
                if word.upper().startswith(begun.upper())
            ]
            following += [(0, one + more) for more in ("1 ", "z ", " ", ".") if begun]
        for rest, longer in following:
            if longer not in seen and checker.viable(longer):
                seen.add(longer)
                agenda.append((rest + depth + 1, depth + 1, longer))
    return None
