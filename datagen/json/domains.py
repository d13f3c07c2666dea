"""The worlds the JSON rows speak of: a table of domains, each a noun with typed fields, and values drawn for them."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

from datagen.json import pools as json_pools

Json = Any
Schema = dict[str, Any]


def _pool(text: str) -> list[str]:
    return text.strip().replace("|\n", "\n").replace("|", "\n").split("\n")


PEOPLE, CITIES, COMPANIES, FIRST, SECOND, STREETS, NOTES = (
    _pool(text)
    for text in (
        json_pools.PEOPLE,
        json_pools.CITIES,
        json_pools.COMPANIES,
        json_pools.FIRST,
        json_pools.SECOND,
        json_pools.STREETS,
        json_pools.NOTES,
    )
)
MONTHS = _pool("January|February|March|April|May|June|July|August|September|October|November|December")


@dataclass(frozen=True)
class Kind:
    """A type of value: its name, the schema every value fits, and how one is drawn."""

    name: str
    schema: Schema
    make: Callable[[Random], Json]
    parts: tuple[Field, ...] = ()


@dataclass(frozen=True)
class Field:
    """One field of a domain, named in plain words; the key follows from them and a style."""

    words: str
    kind: Kind


@dataclass(frozen=True)
class Domain:
    """A noun and its fields."""

    noun: str
    fields: tuple[Field, ...]

    def of(self, *kinds: str) -> list[Field]:
        """The fields of these kinds."""
        return [field for field in self.fields if field.kind.name in kinds]


def key_of(words: str, style: str) -> str:
    """Write words as a key: snake, camel, pascal or kebab."""
    parts = re.sub(r"[^a-z0-9 ]", "", words.lower()).split()
    if style in ("snake", "kebab"):
        return ("_" if style == "snake" else "-").join(parts)
    joined = "".join(part.capitalize() for part in parts)
    return joined if style == "pascal" else parts[0] + joined[len(parts[0]) :]


def object_schema(fields: dict[str, Schema]) -> Schema:
    """The schema of an object with exactly these keys."""
    return {"type": "object", "properties": fields, "required": list(fields), "additionalProperties": False}


def _text(make: Callable[[Random], str]) -> tuple[Schema, Callable[[Random], Json]]:
    return {"type": "string", "minLength": 1}, make


def _date(rng: Random) -> str:
    return f"{rng.randint(2015, 2029)}-{rng.randint(1, 12):02}-{rng.randint(1, 28):02}"


def _time(rng: Random) -> str:
    return f"{rng.randint(6, 22):02}:{rng.choice((0, 5, 10, 15, 20, 30, 40, 45, 50)):02}"


def _email(rng: Random) -> str:
    first = rng.choice(["ana", "tom", "mei", "omar", "lena", "ravi", "grace", "ivan", "nora", "kofi"])
    last = rng.choice(["", ".", "_"]) + rng.choice(["k", "w", "mail", "office"])
    return f"{first}{last}@{rng.choice(['example.com', 'example.org', 'mail.test'])}"


SIMPLE: dict[str, tuple[Schema, Callable[[Random], Json]]] = {
    "person": _text(lambda rng: rng.choice(PEOPLE)),
    "city": _text(lambda rng: rng.choice(CITIES)),
    "company": _text(lambda rng: rng.choice(COMPANIES)),
    "title": _text(lambda rng: f"{rng.choice(FIRST)} {rng.choice(SECOND)}"),
    "note": _text(lambda rng: rng.choice(NOTES)),
    "street": _text(lambda rng: f"{rng.randint(1, 180)} {rng.choice(STREETS)}"),
    "bool": ({"type": "boolean"}, lambda rng: rng.random() < 0.5),
    "date": ({"type": "string", "format": "date"}, _date),
    "time": ({"type": "string", "pattern": "^[0-2][0-9]:[0-5][0-9]$"}, _time),
    "datetime": (
        {"type": "string", "format": "date-time"},
        lambda rng: f"{_date(rng)}T{_time(rng)}:00Z",
    ),
    "email": ({"type": "string", "format": "email"}, _email),
    "url": (
        {"type": "string", "format": "uri"},
        lambda rng: f"https://example.com/{rng.choice(SECOND).lower()}/{rng.randint(2, 99)}",
    ),
    "phone": _text(lambda rng: f"+{rng.randint(20, 99)} {rng.randint(100, 999)} {rng.randint(1000, 9999)}"),
}


def _plain(number: float) -> Json:
    return int(number) if number == int(number) else number


def _numbers(name: str, args: list[str]) -> Kind:
    low, high = int(args[0]), int(args[1])
    limits: Schema = {"type": "integer" if name in ("int", "ints") else "number", "minimum": low, "maximum": high}
    if name == "int":
        return Kind(name, limits, lambda rng: rng.randint(low, high))
    if name == "num":
        return Kind(name, limits, lambda rng: _plain(rng.randint(low * 20, high * 20) / 20))
    schema: Schema = {"type": "array", "items": limits, "minItems": 2, "maxItems": 5}
    return Kind(name, schema, lambda rng: [rng.randint(low, high) for _ in range(rng.randint(2, 4))])


def _choices(name: str, options: list[str]) -> Kind:
    schema: Schema = {"type": "string", "enum": options}
    if name == "one":
        return Kind(name, schema, lambda rng: rng.choice(options))
    many: Schema = {"type": "array", "items": schema, "minItems": 1, "uniqueItems": True}
    return Kind(name, many, lambda rng: rng.sample(options, rng.randint(2, min(3, len(options)))))


def _nested(text: str) -> Kind:
    parts = tuple(parse_field(part) for part in text.strip("{}").split(" & "))
    schema = object_schema({key_of(part.words, "snake"): part.kind.schema for part in parts})
    return Kind("object", schema, lambda rng: {part.words: part.kind.make(rng) for part in parts}, parts)


def parse_kind(text: str) -> Kind:
    """Read one kind of the table: `int 1 9`, `one red,blue`, `?date` (may be null), `{name:person & city:city}`."""
    if text.startswith("{"):
        return _nested(text)
    if text.startswith("?"):
        inner = parse_kind(text[1:])
        schema: Schema = {"anyOf": [inner.schema, {"type": "null"}]}
        return Kind("maybe", schema, lambda rng: None if rng.random() < 0.5 else inner.make(rng), (Field("", inner),))
    name, _, rest = text.partition(" ")
    if name in ("int", "num", "ints"):
        return _numbers(name, rest.split())
    if name in ("one", "some"):
        return _choices(name, rest.split(","))
    if name == "code":
        pattern = f"^{rest}-[0-9]{{4}}$"
        return Kind("code", {"type": "string", "pattern": pattern}, lambda rng: f"{rest}-{rng.randint(1000, 9999)}")
    return Kind(name, *SIMPLE[name])


def parse_field(text: str) -> Field:
    """Read `words:kind`."""
    words, _, kind = text.strip().partition(":")
    return Field(words, parse_kind(kind))


def parse_domains(table: str) -> list[Domain]:
    """Read a table: blocks parted by blank lines, the noun on a line, then its fields parted by semicolons."""
    domains = []
    for block in table.strip().split("\n\n"):
        noun, fields = block.split("\n", 1)
        domains.append(Domain(noun.strip(), tuple(parse_field(text) for text in fields.replace("\n", " ").split(";"))))
    return domains


def draw(fields: list[Field], rng: Random) -> tuple[dict[str, Json], Schema]:
    """Draw a record of these fields, its keys in snake_case, and the schema it fits."""
    record: dict[str, Json] = {}
    schemas: dict[str, Schema] = {}
    for field in fields:
        key = key_of(field.words, "snake")
        if field.kind.name == "object":
            record[key], schemas[key] = draw(list(field.kind.parts), rng)
        else:
            record[key], schemas[key] = field.kind.make(rng), field.kind.schema
    return record, object_schema(schemas)


def article(noun: str) -> str:
    """The noun with its article."""
    return f"{'an' if noun[0] in 'aeiou' else 'a'} {noun}"


def long_date(text: str) -> str:
    """2024-03-09 as 9 March 2024."""
    year, month, day = text.split("-")
    return f"{int(day)} {MONTHS[int(month) - 1]} {year}"
