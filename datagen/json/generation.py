"""Rows that ask for JSON from a description: objects, arrays, dotted settings, function calls."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from datagen.json.case import Case, draw_distinct, group_of, in_words, leaves, listed, phrase, some_fields, write
from datagen.json.domains import Domain, Field, Json, Schema, article, draw, key_of, object_schema

ASKS = ["Write a JSON object for {a}", "Give me JSON for {a}", "Represent {a} in JSON"]
NOTES = ["Turn these notes on {a} into a JSON object.", "Make one JSON object of these lines about {a}."]
ARRAYS = ["Write a JSON array of {n} {noun} objects: {t}.", "List these {n} {noun} records as a JSON array: {t}."]
PATHS = ["Expand these dotted paths into nested JSON.", "Write the nested JSON that these paths describe."]
VERBS = ["add", "find", "update", "delete", "check"]
CALLS = [
    "{verb} {a} with {facts}. Write the function call as JSON with `name` and `arguments`.",
    "JSON call with `name` and `arguments`: {verb} {a} with {facts}.",
]
WORDS = {2: "two", 3: "three"}


def _told(fields: list[Field], record: dict[str, Json]) -> list[str]:
    return [phrase(field, value) for field, value in zip(fields, record.values(), strict=True)]


def described(domain: Domain, rng: Random) -> Case:
    """An object told in one sentence."""
    fields = some_fields(domain, rng.randint(2, 5), rng)
    record, schema = draw(fields, rng)
    ask = rng.choice(ASKS).format(a=article(domain.noun)) + f": {'; '.join(_told(fields, record))}."
    group = group_of("described", domain, fields)
    return Case("generation", group, ask, "", write(record), schema, tuple(leaves(record)))


def noted(domain: Domain, rng: Random) -> Case:
    """An object told as a list of lines in the input."""
    fields = some_fields(domain, rng.randint(3, 5), rng, without=("object",))
    record, schema = draw(fields, rng)
    lines = [
        f"{field.words}: {'null' if value is None else in_words(value)}"
        for field, value in zip(fields, record.values(), strict=True)
    ]
    ask, group = rng.choice(NOTES).format(a=article(domain.noun)), group_of("noted", domain, fields)
    return Case("generation", group, ask, "\n".join(lines), write(record), schema, tuple(leaves(record)))


def several(domain: Domain, rng: Random) -> Case:
    """An array of two or three small objects."""
    fields = some_fields(domain, 2, rng, without=("object", "maybe", "some", "bool"))
    records, schema = draw_distinct(fields, rng.randint(2, 3), rng)
    items = "; ".join(f"({i}) {', '.join(_told(fields, record))}" for i, record in enumerate(records, 1))
    ask = rng.choice(ARRAYS).format(n=WORDS[len(records)], noun=domain.noun, t=items)
    whole: Schema = {"type": "array", "items": schema, "minItems": len(records), "maxItems": len(records)}
    group = group_of("several", domain, fields)
    return Case("generation", group, ask, "", write(records), whole, tuple(leaves(records)))


def dotted(domain: Domain, rng: Random) -> Case:
    """A nested object told by dotted paths."""
    root = key_of(domain.noun, "snake")
    fields = [*some_fields(domain, rng.randint(1, 3), rng, without=("object",)), rng.choice(domain.of("object"))]
    record, schema = draw(fields, rng)
    paths = []
    for key, value in record.items():
        inner = value.items() if isinstance(value, dict) else [("", value)]
        paths += [f"{root}.{key}{'.' + sub if sub else ''} = {write(item)}" for sub, item in inner]
    whole, group = object_schema({root: schema}), group_of("dotted", domain, fields)
    output = write({root: record})
    return Case("generation", group, rng.choice(PATHS), "\n".join(paths), output, whole, tuple(leaves(record)))


def called(domain: Domain, rng: Random) -> Case:
    """A function call for a request; the function's name is the verb and the noun."""
    verb = rng.choice(VERBS)
    fields = some_fields(domain, rng.randint(2, 3), rng, without=("object", "maybe"))
    record, schema = draw(fields, rng)
    name, facts = key_of(f"{verb} {domain.noun}", "snake"), listed(_told(fields, record))
    text = rng.choice(CALLS).format(verb=verb.capitalize(), a=article(domain.noun), facts=facts)
    whole = object_schema({"name": {"const": name}, "arguments": schema})
    group, output = group_of("called", domain, fields, verb), write({"name": name, "arguments": record})
    return Case("generation", group, text, "", output, whole, tuple(leaves(record)))


FORMS: list[Callable[[Domain, Random], Case]] = [described, described, noted, several, dotted, called]


def generation(domain: Domain, rng: Random) -> Case:
    """One row of the family."""
    return rng.choice(FORMS)(domain, rng)
