"""The record type a row is about: its fields by role, the records its tests use, and the row made of a function."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any

from json_domains import Domain, Field, Kind, key_of
from typescript_case import (
    Case,
    Checks,
    ask,
    assertions,
    declare,
    draw_record,
    fields_in_words,
    interface,
    literal,
    pascal,
    pick_form,
    plural,
    type_of,
)

Record = dict[str, Any]
Meaning = Callable[[list[Record]], Any]
STYLE = "camel"
LABELS = ("code", "title", "date", "datetime")


@dataclass(frozen=True)
class World:
    """A record type: label, number, choice and flag are the keys of its fields by role."""

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

    @property
    def many(self) -> str:
        """The plural as a variable name."""
        return key_of(plural(self.noun), STYLE)

    @property
    def title(self) -> str:
        """The plural inside a function name."""
        return key_of(plural(self.noun), "pascal")


def cap(key: str) -> str:
    """The key with a capital, for names."""
    return key[0].upper() + key[1:]


@dataclass(frozen=True)
class Tool:
    """A function over records: all that a row needs of it."""

    name: str
    head: str
    result: str
    words: str
    body: str
    checks: Checks


def world(domain: Domain, rng: Random) -> World:
    """Draw the record type and four records that differ in label and number."""
    name = domain.fields[0]
    label = rng.choice(domain.of(*LABELS) or [Field(name.words, Kind("word", {"type": "string"}, name.kind.make))])
    number, choice, flag = (
        rng.choice([field for field in domain.of(*kinds) if field.words != label.words])
        for kinds in (("int", "num"), ("one",), ("bool",))
    )
    roles = [label, number, choice, flag]
    keys = [key_of(field.words, STYLE) for field in roles]
    fields = rng.sample(roles, 4)
    rows: list[Record] = []
    while len(rows) < 4:
        record = draw_record(fields, rng)
        if all(record[key] != row[key] for row in rows for key in keys[:2]):
            rows.append(record)
    limit = sorted(record[keys[1]] for record in rows)[rng.choice([1, 2])]
    option = rng.choice(rows)[keys[2]]
    return World(domain.noun, pascal(domain), fields, keys[0], keys[1], keys[2], keys[3], rows, limit, option)


def reduced(w: World, code: str, rng: Random) -> World:
    """The world with the fields that the code names, perhaps one more, so that rows stay short."""
    used = [field for field in w.fields if re.search(rf"\b{key_of(field.words, STYLE)}\b", code)]
    extra = [field for field in w.fields if field not in used]
    kept = used + extra[: 0 if len(used) > 1 and rng.random() < 0.5 else 2 - min(1, len(used))]
    keys = [key_of(field.words, STYLE) for field in kept]
    return replace(w, fields=kept, records=[{key: record[key] for key in keys} for record in w.records])


def case_of(w: World, family: str, tool: Tool, rng: Random) -> Case:
    """The row: the type is told in the instruction and stands before the function in the answer."""
    keyword, what = rng.choice([("interface", "an interface")] * 3 + [("type", "a type")])
    form, wish = pick_form(rng)
    members = "; ".join(f"{key_of(field.words, STYLE)}: {type_of(field)}" for field in w.fields)
    intro = rng.choice([
        f"Declare {what} `{w.type}` with {fields_in_words(w.fields)}.",
        f"Given {what} `{w.type}` ({fields_in_words(w.fields)}), declare it first.",
        f"Define {what} `{w.type}` {{ {members} }}.",
    ])  # fmt: skip
    asked = ask(f"{tool.name}{tool.head}: {tool.result}", tool.words, rng)
    output = interface(w.type, w.fields, keyword) + "\n\n"
    output += declare(tool.name, tool.head, tool.result, tool.body, form)
    rows = f"const rows: {w.type}[] = {literal(w.records)};"
    test = assertions(tool.checks, [rows])
    return Case(family, w.noun, " ".join(part for part in (intro, asked, wish) if part), output, test)


def tool_row(makers: Sequence[Callable[[World, Random], Tool]], domain: Domain, rng: Random) -> Case:
    """A row for one of the tools; fields that neither code nor tests name stay out of the type as a rule."""
    w, maker, seed = world(domain, rng), rng.choice(makers), rng.getrandbits(32)
    first = maker(w, Random(seed))
    named = [first.body, first.head, first.words, *(expression for expression, _ in first.checks)]
    w = reduced(w, " ".join(named), rng)
    return case_of(w, "record tools", maker(w, Random(seed)), rng)
