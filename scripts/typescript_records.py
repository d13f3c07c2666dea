"""Rows over arrays of typed records: filter, order and outcome in one function, and the other things done to records."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from random import Random
from typing import Any

from json_domains import Domain, Field, Kind, key_of
from typescript_case import (
    UNDEFINED,
    Case,
    Checks,
    a_set,
    ask,
    declare,
    draw_record,
    fields_in_words,
    interface,
    literal,
    pascal,
    pick_form,
    plural,
    test_of,
    type_of,
)

Record = dict[str, Any]
Meaning = Callable[[list[Record]], Any]
STYLE = "camel"
LABELS = ("code", "title", "date", "datetime")


@dataclass(frozen=True)
class World:
    """The record type of one row: its fields by role, its name, and the records its tests use."""

    noun: str
    type: str
    fields: list[Field]
    label: str
    number: str
    choice: str
    flag: str
    records: list[Record]
    limit: float
    option: str

    def cap(self, role: str) -> str:
        """The key of a role with a capital, for names."""
        return role[0].upper() + role[1:]

    @property
    def many(self) -> str:
        """The plural as a variable name."""
        return key_of(plural(self.noun), "camel")

    @property
    def Many(self) -> str:  # noqa: N802
        """The plural inside a function name."""
        return key_of(plural(self.noun), "pascal")


def world(domain: Domain, rng: Random) -> World:
    """Draw the record type and five or six records that differ in label and number."""
    name = domain.fields[0]
    named = Field(name.words, Kind("word", {"type": "string"}, name.kind.make))
    label = rng.choice(domain.of(*LABELS) or [named])
    number, choice, flag = (rng.choice([f for f in domain.of(*k) if f.words != label.words]) for k in (("int", "num"), ("one",), ("bool",)))
    fields = rng.sample([label, number, choice, flag], 4)
    keys = [key_of(field.words, "camel") for field in (label, number, choice, flag)]
    records: dict[tuple[Any, Any], Record] = {}
    while len(records) < 4:
        record = draw_record(fields, rng)
        if all(record[keys[0]] != a and record[keys[1]] != b for a, b in records):
            records[record[keys[0]], record[keys[1]]] = record
    rows = list(records.values())
    limit = sorted(record[keys[1]] for record in rows)[rng.choice([1, 2])]
    return World(domain.noun, pascal(domain), fields, *keys, rows, limit, rng.choice(rows)[keys[2]])


def reduced(w: World, code: str, rng: Random) -> World:
    """The world with the fields that the code names, perhaps one more, so that rows stay short."""
    used = [f for f in w.fields if re.search(rf"\b{key_of(f.words, STYLE)}\b", code)]
    extra = [f for f in w.fields if f not in used]
    kept = used + extra[: 0 if len(used) > 1 and rng.random() < 0.5 else 2 - min(1, len(used))]
    keys = [key_of(f.words, STYLE) for f in kept]
    return replace(w, fields=kept, records=[{key: record[key] for key in keys} for record in w.records])


@dataclass(frozen=True)
class Part:
    """A part of a function over records: its piece of the name, its words, its code on #, its meaning."""

    name: str
    words: str
    code: str
    meaning: Callable[[list[Record]], Any]
    gives: str = ""


def selections(w: World) -> list[Part]:
    """Which records stay."""
    n, c, f = w.number, w.choice, w.flag
    limit, option = literal(w.limit), literal(w.option)

    def some(test: Callable[[Record], bool]) -> Callable[[list[Record]], list[Record]]:
        return lambda rows: [row for row in rows if test(row)]

    return [
        Part(w.cap(f), f"whose `{f}` is true", f"#.filter((item) => item.{f})", some(lambda r: r[f])),
        Part(f"Not{w.cap(f)}", f"whose `{f}` is false", f"#.filter((item) => !item.{f})", some(lambda r: not r[f])),
        Part(f"High{w.cap(n)}", f"with `{n}` of at least {limit}", f"#.filter((item) => item.{n} >= {limit})", some(lambda r: r[n] >= w.limit)),
        Part(f"Low{w.cap(n)}", f"with `{n}` below {limit}", f"#.filter((item) => item.{n} < {limit})", some(lambda r: r[n] < w.limit)),
        Part(f"By{w.cap(c)}", f"whose `{c}` is {option}", f"#.filter((item) => item.{c} === {option})", some(lambda r: r[c] == w.option)),
        Part(f"Other{w.cap(c)}", f"whose `{c}` is not {option}", f"#.filter((item) => item.{c} !== {option})", some(lambda r: r[c] != w.option)),
        Part(f"{w.cap(f)}And{w.cap(n)}", f"whose `{f}` is true and whose `{n}` is over {limit}",
             f"#.filter((item) => item.{f} && item.{n} > {limit})", some(lambda r: r[f] and r[n] > w.limit)),
    ]  # fmt: skip


def orders(w: World) -> list[Part]:
    """In which order."""
    n, k = w.number, w.label
    return [
        Part(f"By{w.cap(n)}", f"sorted by `{n}` ascending", f"[...#].sort((a, b) => a.{n} - b.{n})", lambda v: sorted(v, key=lambda r: r[n])),
        Part(f"By{w.cap(n)}Desc", f"sorted by `{n}` descending", f"[...#].sort((a, b) => b.{n} - a.{n})",
             lambda v: sorted(v, key=lambda r: r[n], reverse=True)),
        Part(f"By{w.cap(k)}", f"sorted by `{k}` with localeCompare", f"[...#].sort((a, b) => a.{k}.localeCompare(b.{k}))", lambda v: sorted(v, key=lambda r: r[k])),
    ]  # fmt: skip


def outcomes(w: World) -> list[Part]:
    """What is returned of them."""
    n, k, c = w.number, w.label, w.choice
    total = f"#.reduce((sum, item) => sum + item.{n}, 0)"
    return [
        Part(w.Many, "returns them", "#", lambda v: v, f"{w.type}[]"),
        Part(f"{w.cap(k)}s", f"returns their `{k}` values", f"#.map((item) => item.{k})", lambda v: [r[k] for r in v], "string[]"),
        Part(f"Total{w.cap(n)}", f"returns the sum of their `{n}`", total, lambda v: reduce(lambda a, r: a + r[n], v, 0), "number"),
        Part(f"{w.Many}Count", "returns how many there are", "#.length", len, "number"),
        Part(f"Max{w.cap(n)}", f"returns their largest `{n}`, 0 when there is none", f"Math.max(0, ...#.map((item) => item.{n}))",
             lambda v: max([0, *(r[n] for r in v)]), "number"),
        Part(f"{w.type}Lines", f"returns for each a string of the form `{k}: {n}`", f"#.map((item) => `${{item.{k}}}: ${{item.{n}}}`)",
             lambda v: [f"{r[k]}: {literal(r[n])}" for r in v], "string[]"),
        Part(f"{w.cap(c)}Set", f"returns a Set of their `{c}` values", f"new Set(#.map((item) => item.{c}))",
             lambda v: a_set(list(dict.fromkeys(r[c] for r in v))), f'Set<{w.type}["{c}"]>'),
        Part(f"First{w.type}", "returns the first of them or undefined", "#[0]", lambda v: v[0] if v else UNDEFINED, f"{w.type} | undefined"),
        Part(f"{w.cap(k)}List", f'returns their `{k}` values joined with ", "', f'#.map((item) => item.{k}).join(", ")', lambda v: ", ".join(r[k] for r in v), "string"),
        Part(f"{w.type}Pairs", f"returns pairs of `{k}` and `{n}`", f"#.map((item): [string, number] => [item.{k}, item.{n}])",
             lambda v: [[r[k], r[n]] for r in v], "[string, number][]"),
    ]  # fmt: skip


def of_parts(parts: Sequence[Part]) -> Meaning:
    """The meaning of parts one after the other."""
    return lambda rows: reduce(lambda value, part: part.meaning(value), parts, rows)


def chain_of(w: World, rng: Random) -> tuple[str, str, str, str, Meaning, Meaning]:
    """Name, words, result type, body and meaning of a selection, an order and an outcome, one of them perhaps left out.

    The second meaning leaves out the first step.
    """
    parts = [rng.choice(selections(w))] if rng.random() < 0.85 else []
    # An order of which only a sum or a count is left would change nothing.
    if rng.random() < 0.5 or not parts:
        parts.append(rng.choice(orders(w)))
        shown = [part for part in outcomes(w) if "[]" in part.gives or part.gives.endswith(("undefined", "string"))]
        last = rng.choice(shown)
    else:
        last = rng.choice(outcomes(w))
    ordered = parts[-1] if parts[-1].words.startswith("sorted") else None
    chosen = [part for part in parts if part is not ordered]
    words = f"takes an array of {plural(w.noun)}"
    words += f", keeps those {chosen[0].words}" if chosen else ""
    words += f", {'sorts' + ordered.words.removeprefix('sorted')} without changing the argument" if ordered else ""
    name = rng.choice(["get", "find", "list", ""]) + last.name + (parts[0].name if rng.random() < 0.6 else "")
    value = w.many
    for part in [*parts, last]:
        value = part.code.replace("#", value)
    steps = [*parts, last]

    body = value
    if len(value) > 90 and len(parts) == 2:
        middle = parts[0].code.replace("#", w.many)
        rest = last.code.replace("#", parts[1].code.replace("#", "kept"))
        body = f"const kept = {middle};\nreturn {rest};"
    return name[0].lower() + name[1:], f"{words} and {last.words}", last.gives, body, of_parts(steps), of_parts(steps[1:])


def case_of(w: World, family: str, name: str, head: str, result: str, words: str, body: str, checks: Checks, rng: Random, setup: Sequence[str] = ()) -> Case:
    """The row: the type is named in the instruction and stands before the function in the answer."""
    keyword = "interface" if rng.random() < 0.75 else "type"
    form, wish = pick_form(rng)
    what = "an interface" if keyword == "interface" else "a type"
    intro = rng.choice([
        f"Declare {what} `{w.type}` with {fields_in_words(w.fields)}.",
        f"Given {what} `{w.type}` ({fields_in_words(w.fields)}), declare it first.",
        f"Define {what} `{w.type}` {{ {'; '.join(f'{key_of(f.words, STYLE)}: {type_of(f)}' for f in w.fields)} }}.",
    ])  # fmt: skip
    instruction = " ".join(part for part in (intro, ask(f"{name}{head}: {result}", words, rng), wish) if part)
    output = interface(w.type, w.fields, keyword) + "\n\n" + declare(name, head, result, body, form)
    return Case(family, w.noun, instruction, output, test_of(checks, setup))


def setup_of(w: World) -> list[str]:
    """The test records as a typed const."""
    return [f"const rows: {w.type}[] = {literal(w.records)};"]


def selected(domain: Domain, rng: Random) -> Case | None:
    """A row that selects, orders and returns; None where the test records would not show a missing step."""
    w = world(domain, rng)
    name, words, result, body, meaning, plain = chain_of(w, rng)
    w = reduced(w, body, rng)
    rows = w.records
    if literal(meaning(rows)) in (literal(rows), literal(meaning([]))) or literal(meaning(rows)) == literal(plain(rows)):
        return None
    checks: Checks = [(f"{name}(rows)", meaning(rows)), (f"{name}(rows.slice(1, 3))", meaning(rows[1:3])), (f"{name}([])", meaning([]))]
    return case_of(w, "records", name, f"({w.many}: {rng.choice(['', 'readonly '])}{w.type}[])", result, words, body, checks, rng, setup_of(w))
