"""Rows over arrays of typed records: a selection, an order and an outcome in one function."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from random import Random
from typing import Any

from datagen.json.domains import Domain
from datagen.typescript.case import UNDEFINED, Case, Checks, a_set, literal, plural
from datagen.typescript.world import Meaning, Record, Tool, World, cap, case_of, near_limit, reduced, world


@dataclass(frozen=True)
class Part:
    """A part of a function over records: its piece of the name, its words, its code on #, its meaning."""

    name: str
    words: str
    code: str
    meaning: Meaning
    gives: str = ""


def _keep(name: str, words: str, condition: str, test: Callable[[Record], bool]) -> Part:
    code = f"#.filter((item) => {condition})"
    return Part(name, words, code, lambda rows: [row for row in rows if test(row)])


def selections(w: World) -> list[Part]:
    """Which records stay."""
    n, c, f, x, o = w.number, w.choice, w.flag, w.limit, w.option
    limit, option = literal(x), literal(o)
    both = f"whose `{f}` is true and whose `{n}` is over {limit}"
    return [
        _keep(cap(f), f"whose `{f}` is true", f"item.{f}", lambda r: bool(r[f])),
        _keep(f"Not{cap(f)}", f"whose `{f}` is false", f"!item.{f}", lambda r: not r[f]),
        _keep(f"High{cap(n)}", f"with `{n}` of at least {limit}", f"item.{n} >= {limit}", lambda r: bool(r[n] >= x)),
        _keep(f"Low{cap(n)}", f"with `{n}` below {limit}", f"item.{n} < {limit}", lambda r: bool(r[n] < x)),
        _keep(f"By{cap(c)}", f"whose `{c}` is {option}", f"item.{c} === {option}", lambda r: bool(r[c] == o)),
        _keep(f"Other{cap(c)}", f"whose `{c}` is not {option}", f"item.{c} !== {option}", lambda r: bool(r[c] != o)),
        _keep(f"{cap(f)}And{cap(n)}", both, f"item.{f} && item.{n} > {limit}", lambda r: bool(r[f] and r[n] > x)),
    ]


def _sort(name: str, words: str, comparison: str, key: Callable[[Record], Any], down: bool = False) -> Part:
    code = f"[...#].sort((a, b) => {comparison})"
    return Part(name, f"sorts by {words}", code, lambda rows: sorted(rows, key=key, reverse=down))


def orders(w: World) -> list[Part]:
    """In which order."""
    n, k = w.number, w.label
    return [
        _sort(f"By{cap(n)}", f"`{n}` ascending", f"a.{n} - b.{n}", lambda r: r[n]),
        _sort(f"By{cap(n)}Desc", f"`{n}` descending", f"b.{n} - a.{n}", lambda r: r[n], down=True),
        _sort(f"By{cap(k)}", f"`{k}` with localeCompare", f"a.{k}.localeCompare(b.{k})", lambda r: r[k]),
    ]


def _each(name: str, words: str, code: str, value: Callable[[Record], Any], gives: str, typed: str = "") -> Part:
    parameter = f"(item){typed}"
    return Part(name, words, f"#.map({parameter} => {code})", lambda rows: [value(row) for row in rows], gives)


def lists(w: World) -> list[Part]:
    """What is returned of them when the order shows."""
    n, k = w.number, w.label
    pair, line = "[string, number]", f"`${{item.{k}}}: ${{item.{n}}}`"
    joined = f'#.map((item) => item.{k}).join(", ")'
    return [
        Part(w.title, "returns them", "#", lambda v: v, f"{w.type}[]"),
        _each(f"{cap(k)}s", f"returns their `{k}` values", f"item.{k}", lambda r: r[k], "string[]"),
        _each(f"{w.type}Lines", f"returns for each a string of the form `{k}: {n}`", line,
              lambda r: f"{r[k]}: {literal(r[n])}", "string[]"),
        _each(f"{w.type}Pairs", f"returns pairs of `{k}` and `{n}`", f"[item.{k}, item.{n}]",
              lambda r: [r[k], r[n]], f"{pair}[]", f": {pair}"),
        Part(f"First{w.type}", "returns the first of them or undefined", "#[0]",
             lambda v: v[0] if v else UNDEFINED, f"{w.type} | undefined"),
        Part(f"{cap(k)}List", f'returns their `{k}` values joined with ", "', joined,
             lambda v: ", ".join(r[k] for r in v), "string"),
    ]  # fmt: skip


def sums(w: World) -> list[Part]:
    """What is returned of them when the order does not matter."""
    n, c = w.number, w.choice
    largest = f"Math.max(0, ...#.map((item) => item.{n}))"
    return [
        Part(f"Total{cap(n)}", f"returns the sum of their `{n}`", f"#.reduce((sum, item) => sum + item.{n}, 0)",
             lambda v: reduce(lambda total, r: total + r[n], v, 0), "number"),
        Part(f"{w.title}Count", "returns how many there are", "#.length", len, "number"),
        Part(f"Max{cap(n)}", f"returns their largest `{n}`, 0 when there is none", largest,
             lambda v: max([0, *(r[n] for r in v)]), "number"),
        Part(f"{cap(c)}Set", f"returns a Set of their `{c}` values", f"new Set(#.map((item) => item.{c}))",
             lambda v: a_set(list(dict.fromkeys(r[c] for r in v))), f'Set<{w.type}["{c}"]>'),
    ]  # fmt: skip


def of_parts(parts: Sequence[Part]) -> Meaning:
    """The meaning of parts one after the other."""
    return lambda rows: reduce(lambda value, part: part.meaning(value), parts, rows)


def choose(w: World, rng: Random) -> tuple[Part | None, Part | None, Part]:
    """A selection, an order and an outcome; one of the first two is perhaps left out."""
    chosen = rng.choice(selections(w)) if rng.random() < 0.85 else None
    ordered = rng.choice(orders(w)) if rng.random() < 0.5 or chosen is None else None
    return chosen, ordered, rng.choice(lists(w) if ordered else lists(w) + sums(w))


def written(w: World, steps: Sequence[Part]) -> str:
    """The body: one expression."""
    value = w.many
    for step in steps:
        value = step.code.replace("#", value)
    return value


def selected(domain: Domain, rng: Random) -> Case | None:
    """One row; None where the test records would not show a missing step."""
    w = world(domain, rng)
    chosen, ordered, last = choose(w, rng)
    steps = [step for step in (chosen, ordered, last) if step is not None]
    body = written(w, steps)
    w = reduced(w, body)
    rows, meaning, shorter = w.records, of_parts(steps), of_parts(steps[1:])
    if literal(meaning(rows)) in (literal(rows), literal(meaning([])), literal(shorter(rows))):
        return None
    name = "get" + last.name + (steps[0].name if len(steps) > 1 else "")
    words = f"takes an array of {plural(w.noun)}" + (f", keeps those {chosen.words}" if chosen else "")
    words += f", {ordered.words} without changing the argument" if ordered else ""
    checks: Checks = [(f"{name}(rows)", meaning(rows)), (f"{name}(rows.slice(1, 3))", meaning(rows[1:3]))]
    checks.append((f"{name}([])", meaning([])))
    more = near_limit(w).records
    checks += [(f"{name}(more)", meaning(more)), (f"{name}([...more].reverse())", meaning(more[::-1]))]
    checks.append((f"more.map((item) => {name}([item]))", [meaning([row]) for row in more]))
    checks += [("more", more)] if ordered else []
    head = f"({w.many}: {w.type}[])"
    tool = Tool(name, head, last.gives, f"{words} and {last.words}", body, checks)
    return case_of(w, "records", "+".join(step.name for step in steps), tool, rng)
