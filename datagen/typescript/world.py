"""The record type a row is about: its fields by role, the records its tests use, and the row made of a function."""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any

from datagen.json.domains import Domain, Field, Json, Kind, key_of
from datagen.typescript.case import (
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
    plural,
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
    rows: list[Record] = []
    while len(rows) < 4:
        record = draw_record(roles, rng)
        if all(record[key] != row[key] for row in rows for key in keys[:2]):
            rows.append(record)
    limit = sorted(record[keys[1]] for record in rows)[rng.choice([1, 2])]
    option = rng.choice(rows)[keys[2]]
    return World(domain.noun, pascal(domain), roles, keys[0], keys[1], keys[2], keys[3], rows, limit, option)


# Of each record of `near_limit`: how far its number is from the limit, its flag, and whether its option is the world's.
NEAR = [
    (2, False, True),
    (-1, True, False),
    (0, True, True),
    (1, True, False),
    (-2, False, True),
    (9, True, True),
    (30, False, False),
]


def near_limit(w: World) -> World:
    """The world with other records, whose numbers lie on both sides of the limit; no label and no number comes twice.

    What they hold beside that is drawn from the first records, so that they change nothing but the tests.
    """
    rng, rows = Random(zlib.crc32(literal(w.records).encode())), list[Record]()
    choices: list[Json] = next(
        (field.kind.schema["enum"] for field in w.fields if key_of(field.words, STYLE) == w.choice), []
    )
    others = [choice for choice in choices if choice != w.option]
    for offset, flag, is_option in NEAR:
        for _ in range(100):
            record = draw_record(w.fields, rng)
            record |= {key: value for key, value in ((w.number, w.limit + offset), (w.flag, flag)) if key in record}
            if w.choice in record:
                record[w.choice] = w.option if is_option or not others else rng.choice(others)
            if all(w.label not in record or record[w.label] != row[w.label] for row in rows):
                rows.append(record)
                break
    return replace(w, records=rows)


def reduced(w: World, code: str) -> World:
    """The world with the fields that the code names, two at least, so that rows stay short."""
    used = [field for field in w.fields if re.search(rf"\b{key_of(field.words, STYLE)}\b", code)]
    extra = [field for field in w.fields if field not in used][: max(0, 2 - len(used))]
    kept = [field for field in w.fields if field in used or field in extra]
    keys = [key_of(field.words, STYLE) for field in kept]
    return replace(w, fields=kept, records=[{key: record[key] for key in keys} for record in w.records])


def case_of(w: World, family: str, form: str, tool: Tool, rng: Random) -> Case:
    """The row: the type is told in the instruction and stands before the function in the answer."""
    intro = f"Declare an interface `{w.type}` with {fields_in_words(w.fields)}."
    asked = ask(f"{tool.name}{tool.head}: {tool.result}", tool.words, rng)
    given = {"rows": w.records, "more": near_limit(w).records}
    output = f"{interface(w.type, w.fields)}\n\n{declare(tool.name, tool.head, tool.result, tool.body)}"
    test = assertions(tool.checks, [f"const {name}: {w.type}[] = {literal(rows)};" for name, rows in given.items()])
    group = " | ".join([form, w.noun, *(field.words for field in w.fields)])
    return Case(family, group, f"{intro} {asked}", output, test)


def tool_row(makers: Sequence[Callable[[World, Random], Tool]], domain: Domain, rng: Random) -> Case:
    """A row for one of the tools; fields that neither code nor tests name stay out of the type where two are left."""
    w, maker, seed = world(domain, rng), rng.choice(makers), rng.getrandbits(32)
    first = maker(w, Random(seed))
    named = [first.body, first.head, first.words, *(expression for expression, _ in first.checks)]
    w = reduced(w, " ".join(named))
    tool, wide = maker(w, Random(seed)), maker(near_limit(w), Random(seed))
    checks = [(re.sub(r"\brows\b", "more", expression), value) for expression, value in wide.checks]
    return case_of(w, "record tools", maker.__name__, replace(tool, checks=[*tool.checks, *checks]), rng)
