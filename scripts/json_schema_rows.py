"""Rows that ask for a JSON Schema, from a description or from an example, with values it must accept and refuse."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from json_case import STYLES, Case, join, listed, pick_layout, some_fields, write
from json_domains import Domain, Field, Json, Schema, article, draw, key_of

DIALECT = "https://json-schema.org/draft/2020-12/schema"
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
    good = field.kind.make(rng)
    n = rng.randint(1, 4)
    long = rng.choice([40, 60, 80, 120])
    options = [
        Rule("a string", {"type": "string"}, good, (7, None)),
        Rule("a non-empty string", {"type": "string", "minLength": 1}, good, ("", 7)),
        Rule(f"a string of at least {n + 1} characters", {"type": "string", "minLength": n + 1}, good, ("x" * n,)),
        Rule(
            f"a string of at most {long} characters", {"type": "string", "maxLength": long}, good, ("x" * (long + 1), 3)
        ),
    ]
    return rng.choice(options)


def _number(field: Field, rng: Random) -> Rule:
    kind = str(field.kind.schema["type"])
    low, high = field.kind.schema["minimum"], field.kind.schema["maximum"]
    good, noun = field.kind.make(rng), "an integer" if kind == "integer" else "a number"
    return rng.choice([
        Rule(noun, {"type": kind}, good, ("12", True)),
        Rule(f"{noun} of at least {low}", {"type": kind, "minimum": low}, good, (low - 1, "1")),
        Rule(f"{noun} from {low} to {high}", {"type": kind, "minimum": low, "maximum": high}, good, (low - 1, high + 1)),
        Rule(f"{noun} of at most {high}", {"type": kind, "maximum": high}, good, (high + 1, None)),
        Rule(f"{noun} below {high + 1}", {"type": kind, "exclusiveMaximum": high + 1}, good, (high + 1,)),
        Rule(f"{noun} greater than {low - 1}", {"type": kind, "exclusiveMinimum": low - 1}, good, (low - 1,)),
        Rule("a positive multiple of 5", {"type": kind, "exclusiveMinimum": 0, "multipleOf": 5}, 35, (0, 7)),
    ])  # fmt: skip


def _list(field: Field, rng: Random) -> Rule:
    good = field.kind.make(rng)
    if field.kind.name == "ints":
        return Rule("an array of integers", {"type": "array", "items": {"type": "integer"}}, good, ([1, "2"], 4))
    options = field.kind.schema["items"]["enum"]
    strings: Schema = {"type": "array", "items": {"type": "string"}}
    return rng.choice([
        Rule("an array of strings", strings, good, ([1], "a")),
        Rule("an array of unique strings", {**strings, "uniqueItems": True}, good, (["a", "a"], [1])),
        Rule("a non-empty array of strings", {**strings, "minItems": 1}, good, ([], [1])),
        Rule("an array of at most 5 strings", {**strings, "maxItems": 5}, good, (list("abcdef"),)),
        Rule(f"an array of {listed(options, 'or')}", {"type": "array", "items": {"enum": options}}, good, (["?"],)),
    ])  # fmt: skip


def _nested(field: Field, rng: Random) -> Rule:
    style = "camel"
    parts = [(key_of(part.words, style), rule_for(part, rng)) for part in field.kind.parts]
    names = [key for key, _ in parts]
    schema = {"type": "object", "properties": {key: rule.schema for key, rule in parts}, "required": names}
    good = {key: rule.good for key, rule in parts}
    words = f"an object with the required keys {listed([f'`{key}` ({rule.words})' for key, rule in parts])}"
    return Rule(words, schema, good, ({}, {**good, names[0]: parts[0][1].bad[0]}, "x"))


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
        if rng.random() < 0.5:
            return Rule(f"one of {listed(options, 'or')}", {"enum": options}, good, ("?", None))
        return Rule(f"a string, one of {listed(options, 'or')}", {"type": "string", "enum": options}, good, ("?", 0))
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


ASKS = [
    "Write a JSON Schema for {a}.",
    "I need a JSON Schema that describes {a}.",
    "Give me the JSON Schema of {a} object.",
    "Define {a} as a JSON Schema.",
    "Create a draft 2020-12 JSON Schema for {a}.",
    "Produce a JSON Schema to validate {a}.",
]
CLOSED = ["No other properties are allowed.", "Forbid additional properties.", "Reject unknown keys."]
EXAMPLE_ASKS = [
    "Write a JSON Schema for objects like this one.",
    "Infer a JSON Schema from the example.",
    "Derive the JSON Schema of this {noun} from the sample below.",
    "Which JSON Schema describes this {noun}?",
    "Generate a JSON Schema that this document satisfies.",
]
EXAMPLE_RULES = [
    "Every key is required and no other key is allowed.",
    "All properties are required; no additional properties.",
    "Require all keys, forbid others.",
]


def _alone(value: Json) -> Json:
    return [value]


def from_description(domain: Domain, rng: Random) -> Case:
    """A schema told key by key, some keys optional, now and then an array of such objects."""
    style = rng.choice(STYLES)
    rules = [
        (key_of(field.words, style), rule_for(field, rng)) for field in some_fields(domain, rng.randint(1, 4), rng)
    ]
    required = [key for key, _ in rules if rng.random() < 0.7] or [rules[0][0]]
    told = [f"`{key}` is {rule.words}{'' if key in required else ' (optional)'}" for key, rule in rules]
    schema: Schema = {"type": "object", "properties": {key: rule.schema for key, rule in rules}, "required": required}
    good = {key: rule.good for key, rule in rules}
    refuses: list[Json] = [{**good, key: value} for key, rule in rules for value in rule.bad]
    refuses += [{key: value for key, value in good.items() if key != name} for name in required]
    ends = [
        "Properties not marked optional are required." if len(required) < len(rules) else "All properties are required."
    ]
    if rng.random() < 0.4:
        schema["additionalProperties"] = False
        refuses.append({**good, "extraKey": 1})
        ends.append(rng.choice(CLOSED))
    asked, accepts = article(domain.noun), [good, {key: good[key] for key in required}]
    if rng.random() < 0.15:
        schema = {"type": "array", "items": schema, "minItems": 1}
        asked = f"a non-empty array of {domain.noun} objects"
        accepts, refuses = [*map(_alone, accepts)], [[], *map(_alone, refuses)]
    if rng.random() < 0.25:
        schema = {"$schema": DIALECT, **schema}
        ends.append("Start with $schema (draft 2020-12).")
    layout, wish = pick_layout(rng)
    form = rng.choice(["; ".join(told) + ".", "\n" + "\n".join(f"- {line}" for line in told) + "\n"])
    text = join(rng.choice(ASKS).format(a=asked), form, *ends, wish).replace(" \n", "\n").replace("\n ", "\n")
    return Case(
        "schema", domain.noun, text, "", write(schema, layout), OUTCOME, accepts=tuple(accepts), refuses=tuple(refuses)
    )


def inferred(value: Json) -> Schema:
    """The schema of an example: types only, objects closed and with all their keys."""
    if isinstance(value, dict):
        parts = {key: inferred(item) for key, item in value.items()}
        return {"type": "object", "properties": parts, "required": list(parts), "additionalProperties": False}
    if isinstance(value, list):
        return {"type": "array", "items": inferred(value[0])}
    names = {bool: "boolean", int: "integer", float: "number", str: "string"}
    return {"type": names[type(value)]}


def from_example(domain: Domain, rng: Random) -> Case:
    """A schema inferred from one object, then tried on a second drawing and on broken copies."""
    style = rng.choice(STYLES)
    fields = some_fields(domain, rng.randint(2, 4), rng, without=("maybe", "num"))
    record, _ = draw(fields, style, rng)
    second, _ = draw(fields, style, rng)
    refuses: list[Json] = [{key: item for key, item in record.items() if key != name} for name in record]
    refuses += [{**record, name: None} for name in record] + [{**record, "extraKey": 1}]
    layout, wish = pick_layout(rng)
    text = join(rng.choice(EXAMPLE_ASKS).format(noun=domain.noun), rng.choice(EXAMPLE_RULES), wish)
    schema = inferred(record)
    return Case(
        "schema",
        domain.noun,
        text,
        write(record, "line"),
        write(schema, layout),
        OUTCOME,
        accepts=(record, second),
        refuses=tuple(refuses),
    )


Pattern = tuple[str, Schema, list[Json], list[Json]]


def _value_pattern(domain: Domain, rng: Random) -> Pattern:
    field = rng.choice([field for field in domain.fields if field.kind.name not in ("object", "maybe")])
    rule, number = rule_for(field, rng), rng.choice(["integer", "boolean"])
    words, good, bad = rule.words, rule.good, rule.bad[0]
    item = 3 if number == "integer" else True
    form = rng.randrange(4)
    if form == 0:
        schema: Schema = {"type": "object", "additionalProperties": rule.schema}
        return f"an object used as a map: any key, every value is {words}", schema, [{"a": good}, {}], [{"a": bad}, []]
    if form == 1:
        schema = {"type": "array", "prefixItems": [rule.schema, {"type": number}], "items": False, "minItems": 2}
        what = f"an array with exactly two items, first {words}, then {article(number)}"
        return what, schema, [[good, item]], [[good], [bad, item], [good, item, item]]
    if form == 2:
        schema = {"oneOf": [rule.schema, {"type": "null"}]}
        return f"a value that is either {words} or null (use oneOf)", schema, [good, None], [[{}], {"a": 1}]
    return f"a single value, the {field.words} of {article(domain.noun)}: {words}", rule.schema, [good], list(rule.bad)


def _object_pattern(domain: Domain, rng: Random) -> Pattern:
    other, choice = domain.of("int", "num")[0], domain.of("one")[0]
    field = rng.choice(
        [field for field in domain.fields if field.kind.name not in ("object", "maybe") and field != other]
    )
    key, rule, count = key_of(field.words, "camel"), rule_for(field, rng), key_of(other.words, "camel")
    options, number = choice.kind.schema["enum"], other.kind.schema["type"]
    words, good, bad = rule.words, rule.good, rule.bad[0]
    form = rng.randrange(3)
    if form == 0:
        part = {"$ref": f"#/$defs/{key}"}
        schema: Schema = {
            "type": "object",
            "properties": {"before": part, "after": part},
            "required": ["before", "after"],
        }
        schema["$defs"] = {key: rule.schema}
        what = f"an object with the required keys `before` and `after`; both refer to one definition `{key}` in $defs: "
        refuses = [{"before": good}, {"before": good, "after": bad}]
        return what + words, schema, [{"before": good, "after": good}], refuses
    if form == 1:
        schema = {"type": "object", "properties": {key: rule.schema, count: {"type": number}}}
        schema["dependentRequired"] = {key: [count]}
        what = f"an object where `{key}` is {words} and `{count}` is {article(number)}, both optional"
        what += f", but `{key}` requires `{count}` (use dependentRequired)"
        return what, schema, [{}, {key: good, count: 2}, {count: 2}], [{key: good}, {count: "2"}]
    schema = {
        "type": "object",
        "properties": {"kind": {"const": options[0]}, key: rule.schema},
        "required": ["kind", key],
    }
    what = f'an object with the required keys `kind`, always "{options[0]}", and `{key}`, {words}'
    refuses = [{"kind": options[1], key: good}, {"kind": options[0], key: bad}, {key: good}]
    return what, schema, [{"kind": options[0], key: good}], refuses


def from_pattern(domain: Domain, rng: Random) -> Case:
    """A schema that uses one of the less common words: prefixItems, oneOf, $defs, dependentRequired, const."""
    what, schema, accepts, refuses = rng.choice([_value_pattern, _object_pattern])(domain, rng)
    layout, wish = pick_layout(rng)
    ask = rng.choice(
        [
            "Write a JSON Schema for {w}.",
            "Give a JSON Schema that describes {w}.",
            "JSON Schema, please: {w}.",
            "How do I write {w} as a JSON Schema?",
        ]
    ).format(w=what)
    return Case(
        "schema",
        domain.noun,
        join(ask, wish),
        "",
        write(schema, layout),
        OUTCOME,
        accepts=tuple(accepts),
        refuses=tuple(refuses),
    )


def schema_row(domain: Domain, rng: Random) -> Case:
    """One row of the family."""
    return rng.choice([from_description, from_description, from_example, from_pattern])(domain, rng)
