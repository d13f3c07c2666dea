"""Rows that ask for a JSON Schema, from a description or from an example, with values it must accept and refuse."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from datagen.json.case import Case, group_of, listed, some_fields, write
from datagen.json.domains import Domain, Field, Json, Schema, article, draw, key_of

OUTCOME: Schema = {
    "type": "object",
    "anyOf": [{"required": [word]} for word in ("type", "enum", "oneOf", "$ref", "const")],
}


@dataclass(frozen=True)
class Rule:
    """A constraint in words, its schema, a value it accepts and values it refuses."""

    words: str
    schema: Schema
    good: Json
    bad: tuple[Json, ...]


def _string(field: Field, rng: Random) -> Rule:
    good, long = field.kind.make(rng), rng.randint(40, 90)
    return rng.choice([
        Rule("a string", {"type": "string"}, good, (7, None)),
        Rule("a non-empty string", {"type": "string", "minLength": 1}, good, ("", 7)),
        Rule(f"a string of at most {long} characters", {"type": "string", "maxLength": long}, good, ("x" * (long + 1),)),
    ])  # fmt: skip


def _number(field: Field, rng: Random) -> Rule:
    kind = str(field.kind.schema["type"])
    good, noun = field.kind.make(rng), "an integer" if kind == "integer" else "a number"
    low, high = max(0, int(good) - rng.randint(0, 9)), int(good) + rng.randint(1, 40)
    return rng.choice([
        Rule(noun, {"type": kind}, good, ("12", True)),
        Rule(f"{noun} of at least {low}", {"type": kind, "minimum": low}, good, (low - 1, "1")),
        Rule(f"{noun} of at most {high}", {"type": kind, "maximum": high}, good, (high + 1, None)),
    ])  # fmt: skip


def _list(field: Field, rng: Random) -> Rule:
    good = field.kind.make(rng)
    if field.kind.name == "ints":
        return Rule("an array of integers", {"type": "array", "items": {"type": "integer"}}, good, ([1, "2"], 4))
    strings: Schema = {"type": "array", "items": {"type": "string"}}
    return rng.choice([
        Rule("an array of strings", strings, good, ([1], "a")),
        Rule("a non-empty array of strings", {**strings, "minItems": 1}, good, ([], [1])),
    ])  # fmt: skip


def _nested(field: Field, rng: Random) -> Rule:
    good = {key_of(part.words, "snake"): part.kind.make(rng) for part in field.kind.parts}
    parts = {key: inferred(value) for key, value in good.items()}
    words = listed([f"`{key}` ({article(part['type'])})" for key, part in parts.items()])
    schema = {"type": "object", "properties": parts}
    return Rule(f"an object with {words}", schema, good, ({**good, next(iter(good)): None}, "x"))


def _nullable(field: Field, rng: Random) -> Rule:
    inner = field.kind.parts[0]
    kind = str(inner.kind.schema["type"])
    return Rule(
        f"{article(kind)} or null", {"type": [kind, "null"]}, rng.choice([None, inner.kind.make(rng)]), (True, [])
    )


def rule_for(field: Field, rng: Random) -> Rule:
    """A constraint that suits the kind of the field."""
    name, schema, good = field.kind.name, field.kind.schema, field.kind.make(rng)
    if name == "bool":
        return Rule("a boolean", {"type": "boolean"}, good, ("yes", 1))
    if name == "one":
        options = schema["enum"]
        return Rule(f"one of {listed(options, 'or')}", {"enum": options}, good, ("?", None))
    if name == "code":
        pattern = schema["pattern"]
        return Rule(f"a string matching {pattern}", {"type": "string", "pattern": pattern}, good, ("abc", good + "0"))
    if name in ("date", "email", "url", "datetime"):
        form = schema["format"]
        return Rule(f"a string in {form} format", {"type": "string", "format": form}, good, ("not a value", 5))
    makers: dict[str, Callable[[Field, Random], Rule]] = {
        "int": _number, "num": _number, "some": _list, "ints": _list, "object": _nested, "maybe": _nullable,
    }  # fmt: skip
    return makers.get(name, _string)(field, rng)


ASKS = ["Write a JSON Schema for {a}:", "Give me the JSON Schema of {a}:"]
EXAMPLE_ASKS = ["Infer a JSON Schema from the example.", "Write a JSON Schema for objects like this one."]


def from_description(domain: Domain, rng: Random) -> Case:
    """A schema told key by key, some keys required."""
    fields = some_fields(domain, rng.randint(1, 3), rng)
    rules = [(key_of(field.words, "snake"), rule_for(field, rng)) for field in fields]
    required = [key for key, _ in rules if rng.random() < 0.7] or [rules[0][0]]
    told = "; ".join(f"`{key}` is {rule.words}" for key, rule in rules)
    schema: Schema = {"type": "object", "properties": {key: rule.schema for key, rule in rules}, "required": required}
    good = {key: rule.good for key, rule in rules}
    refuses: list[Json] = [{**good, key: value} for key, rule in rules for value in rule.bad]
    refuses += [{key: value for key, value in good.items() if key != name} for name in required]
    accepts = (good, {key: good[key] for key in required})
    text = f"{rng.choice(ASKS).format(a=article(domain.noun))} {told}. Required: {', '.join(f'`{key}`' for key in required)}."
    group = group_of("description", domain, fields, *sorted(re.sub(r"\d+", "#", rule.words) for _, rule in rules))
    return Case("schema", group, text, "", write(schema), OUTCOME, accepts=accepts, refuses=tuple(refuses))


def inferred(value: Json) -> Schema:
    """The schema of an example: types only, objects with all their keys."""
    if isinstance(value, dict):
        parts = {key: inferred(item) for key, item in value.items()}
        return {"type": "object", "properties": parts, "required": list(parts)}
    if isinstance(value, list):
        return {"type": "array", "items": inferred(value[0])}
    names = {bool: "boolean", int: "integer", float: "number", str: "string"}
    return {"type": names[type(value)]}


def from_example(domain: Domain, rng: Random) -> Case:
    """A schema inferred from one object, then tried on a second drawing and on broken copies."""
    fields = some_fields(domain, rng.randint(2, 3), rng, without=("maybe", "num", "object"))
    record, _ = draw(fields, rng)
    second, _ = draw(fields, rng)
    refuses: list[Json] = [{key: item for key, item in record.items() if key != name} for name in record]
    refuses += [{**record, name: None} for name in record]
    text, group = rng.choice(EXAMPLE_ASKS) + " All keys are required.", group_of("example", domain, fields)
    accepts, output = (record, second), write(inferred(record))
    return Case("schema", group, text, write(record), output, OUTCOME, accepts=accepts, refuses=tuple(refuses))


def _pattern(domain: Domain, rng: Random) -> tuple[str, Schema, list[Json], list[Json]]:
    field = rng.choice([field for field in domain.fields if field.kind.name not in ("object", "maybe", "some", "ints")])
    rule, key, options = rule_for(field, rng), key_of(field.words, "snake"), domain.of("one")[0].kind.schema["enum"]
    words, good, bad, form = rule.words, rule.good, rule.bad[0], rng.randrange(4)
    if form == 0:
        schema: Schema = {"type": "object", "additionalProperties": rule.schema}
        return f"an object used as a map: any key, every value is {words}", schema, [{"a": good}, {}], [{"a": bad}, []]
    if form == 1:
        schema = {"oneOf": [rule.schema, {"type": "null"}]}
        return f"a value that is either {words} or null (use oneOf)", schema, [good, None], [[{}], {"a": 1}]
    if form == 2:
        schema = {"type": "array", "items": rule.schema, "maxItems": 5}
        return f"an array of at most 5 items, each {words}", schema, [[good], []], [[good] * 6, [bad], good]
    schema = {
        "type": "object",
        "properties": {"kind": {"const": options[0]}, key: rule.schema},
        "required": ["kind", key],
    }
    what = f'an object with the required keys `kind`, always "{options[0]}", and `{key}`, {words}'
    refuses = [{"kind": options[1], key: good}, {"kind": options[0], key: bad}, {key: good}]
    return what, schema, [{"kind": options[0], key: good}], refuses


def from_pattern(domain: Domain, rng: Random) -> Case:
    """A schema that is no plain list of keys: a map, a value or null, an array, a key with one value."""
    what, schema, accepts, refuses = _pattern(domain, rng)
    text, group = f"Write a JSON Schema for {what}.", f"pattern | {what}"
    output = write(schema)
    return Case("schema", group, text, "", output, OUTCOME, accepts=tuple(accepts), refuses=tuple(refuses))


def schema_row(domain: Domain, rng: Random) -> Case:
    """One row of the family."""
    return rng.choice([from_description, from_description, from_example, from_pattern, from_pattern])(domain, rng)
