"""Rows that ask for JSON from a description: objects, arrays, dotted settings, calls and computed values."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from random import Random

from json_case import (
    STYLE_NAMES,
    STYLES,
    Case,
    draw_distinct,
    in_words,
    join,
    leaves,
    listed,
    phrase,
    pick_layout,
    some_fields,
    write,
)
from json_domains import Domain, Json, Schema, article, draw, key_of, object_schema

ASKS = [
    "Write a JSON object for {a}",
    "Create JSON for {a}",
    "Give me a JSON object describing {a}",
    "I need {a} as JSON:",
    "Represent {a} in JSON:",
    "Generate a JSON record for {a}",
    "Produce a JSON object: {a}",
]
NOTES = [
    "Turn these notes into a JSON object with {style} keys.",
    "Write the list below as one JSON object ({style} keys).",
    "Convert the following {noun} details to JSON. Keys in {style}.",
    "Make a JSON object from these lines, {style} keys.",
]
NAMES = ["apple", "river", "stone", "cloud", "museum", "tea", "garden", "violin", "map", "harbor", "zebra", "ink"]
CALLS = [
    "Please {verb} {a} with {facts}.",
    "{verb} {a}: {facts}.",
    "I want to {verb} {a} ({facts}).",
    "Could you {verb} {a} with {facts}?",
]
CALL_RULES = [
    "Answer with the function call as a JSON object with the keys name and arguments.",
    "Write the call as JSON: {name, arguments}.",
    "Return the matching function call as JSON with `name` and `arguments`.",
    "",
]
WORDS = {2: "two", 3: "three", 1: "one"}


def described(domain: Domain, rng: Random) -> Case:
    """An object told in one sentence, the key style named."""
    style, (layout, wish) = rng.choice(STYLES), pick_layout(rng)
    fields = some_fields(domain, rng.randint(2, 5), rng)
    record, schema = draw(fields, style, rng)
    facts = [phrase(field, value, rng, quote=True) for field, value in zip(fields, record.values(), strict=True)]
    ask = rng.choice(ASKS).format(a=article(domain.noun)) + f" with {listed(facts)}."
    rule = rng.choice(["Use {} keys.", "Keys in {}.", "The keys are the words in {}.", "Key style: {}."]).format(
        STYLE_NAMES[style]
    )
    return Case(
        "generation", domain.noun, join(ask, rule, wish), "", write(record, layout), schema, tuple(leaves(record))
    )


def noted(domain: Domain, rng: Random) -> Case:
    """An object told as a list of lines in the input."""
    style, (layout, wish) = rng.choice(STYLES), pick_layout(rng)
    fields = some_fields(domain, rng.randint(3, 6), rng, without=("object",))
    record, schema = draw(fields, style, rng)
    mark, colon = rng.choice(["- ", "* ", "", "• "]), rng.choice([": ", " = ", " - "])
    lines = []
    for field, value in zip(fields, record.values(), strict=True):
        said = "null" if value is None else in_words(field.kind.name, value, rng)
        lines.append(f"{mark}{field.words}{colon}{said}")
    ask = rng.choice(NOTES).format(style=STYLE_NAMES[style], noun=domain.noun)
    return Case(
        "generation",
        domain.noun,
        join(ask, wish),
        "\n".join(lines),
        write(record, layout),
        schema,
        tuple(leaves(record)),
    )


def keyed(domain: Domain, rng: Random) -> Case:
    """An object whose keys are spelt out."""
    style, (layout, wish) = rng.choice(STYLES), pick_layout(rng)
    fields = some_fields(domain, rng.randint(2, 4), rng)
    record, schema = draw(fields, style, rng)
    told = [f"`{key}`: {write(value, 'line')}" for key, value in record.items()]
    ask = rng.choice(
        [
            "Build a JSON object for {a} with these keys and values: {t}.",
            "Put these into one JSON object for {a}: {t}.",
            "{a}, please, as a JSON object: {t}.",
            "Assemble a JSON object ({a}) from {t}.",
        ]
    )
    text = ask.format(a=article(domain.noun), t="; ".join(told))
    return Case(
        "generation",
        domain.noun,
        join(text[0].upper() + text[1:], wish),
        "",
        write(record, layout),
        schema,
        tuple(leaves(record)),
    )


def several(domain: Domain, rng: Random) -> Case:
    """An array of two or three small objects."""
    style, (layout, wish) = rng.choice(STYLES), pick_layout(rng)
    fields = some_fields(domain, rng.randint(2, 3), rng, without=("object", "maybe", "some", "bool"))
    records, schema = draw_distinct(fields, style, rng.randint(2, 3), rng)
    told = [", ".join(phrase(f, v, rng) for f, v in zip(fields, record.values(), strict=True)) for record in records]
    count, items = WORDS[len(records)], "; ".join(f"({i}) {t}" for i, t in enumerate(told, 1))
    ask = rng.choice(
        [
            "Write a JSON array of {n} objects, one for each {noun}: {t}.",
            "List these {n} {noun} records as a JSON array: {t}.",
            "Create an array with {n} {noun} objects: {t}.",
        ]
    ).format(n=count, noun=domain.noun, t=items)
    whole: Schema = {"type": "array", "items": schema, "minItems": len(records), "maxItems": len(records)}
    rule = f"Use {STYLE_NAMES[style]} keys."
    return Case(
        "generation", domain.noun, join(ask, rule, wish), "", write(records, layout), whole, tuple(leaves(records))
    )


def dotted(domain: Domain, rng: Random) -> Case:
    """A nested object told by dotted paths."""
    style, (layout, wish) = rng.choice(["snake", "camel"]), pick_layout(rng)
    root = key_of(domain.noun, style)
    fields = [*some_fields(domain, rng.randint(1, 3), rng, without=("object",)), rng.choice(domain.of("object"))]
    record, schema = draw(fields, style, rng)
    paths = []
    for key, value in record.items():
        inner = value.items() if isinstance(value, dict) else [("", value)]
        paths += [f"{root}.{key}{'.' + sub if sub else ''} = {write(item, 'line')}" for sub, item in inner]
    ask = rng.choice(
        [
            "Write the nested JSON object that these dotted paths describe.",
            "Expand these settings into nested JSON.",
            "Each line is a path and its value. Build the JSON object.",
            "Turn the dotted keys below into a nested JSON object.",
        ]
    )
    return Case(
        "generation",
        domain.noun,
        join(ask, wish),
        "\n".join(paths),
        write({root: record}, layout),
        object_schema({root: schema}),
        tuple(leaves(record)),
    )


def called(domain: Domain, rng: Random) -> Case:
    """A function call for a request, the functions described in the input."""
    verb = rng.choice(["add", "find", "update", "book", "export", "register", "check"])
    style = rng.choice(["snake", "camel"])
    fields = some_fields(domain, rng.randint(2, 3), rng, without=("object", "maybe", "note"))
    record, schema = draw(fields, style, rng)
    name = key_of(f"{verb} {domain.noun}", style)
    params = {}
    for field, (key, part) in zip(fields, schema["properties"].items(), strict=True):
        params[key] = {"type": part["type"], "description": f"The {field.words}."}
    function = {
        "name": name,
        "description": f"{verb.capitalize()} {article(domain.noun)}.",
        "parameters": {"type": "object", "properties": params, "required": list(params)},
    }
    other = {
        "name": key_of(f"delete {domain.noun}", style),
        "description": f"Delete {article(domain.noun)}.",
        "parameters": {"type": "object", "properties": {"id": {"type": "integer"}}, "required": ["id"]},
    }
    functions = [function] if rng.random() < 0.6 else rng.sample([function, other], 2)
    facts = listed([phrase(f, v, rng) for f, v in zip(fields, record.values(), strict=True)])
    text = rng.choice(CALLS).format(verb=verb, a=article(domain.noun), facts=facts)
    whole = object_schema({"name": {"const": name}, "arguments": schema})
    rule = rng.choice(CALL_RULES)
    return Case(
        "generation",
        domain.noun,
        join(text[0].upper() + text[1:], rule),
        write(functions, "line"),
        write({"name": name, "arguments": record}, "line"),
        whole,
        tuple(leaves(record)),
    )


def _table(rng: Random) -> tuple[str, Json, Schema]:
    n, step, start = rng.randint(3, 7), rng.randint(2, 12), rng.randint(1, 30)
    numbers = [start + i * step for i in range(n)]
    key = rng.choice(["values", "steps", "marks", "ticks"])
    whole: Schema = {"type": "array", "items": {"type": "integer"}, "minItems": n, "maxItems": n}
    text = f"{n} numbers that start at {start} and grow by {step}"
    if rng.random() < 0.5:
        return f"Write a JSON array of {text}.", numbers, whole
    return f"Write a JSON object whose key `{key}` holds {text}.", {key: numbers}, object_schema({key: whole})


def _lengths(rng: Random) -> tuple[str, Json, Schema]:
    words = rng.sample(NAMES, rng.randint(2, 5))
    what, of = rng.choice(
        [("its length", len), ("its first letter", lambda w: w[0]), ("the word in capitals", str.upper)]
    )
    part = {"type": "integer"} if of is len else {"type": "string"}
    return (
        f"Make a JSON object that maps each of the words {listed(words)} to {what}.",
        {word: of(word) for word in words},
        object_schema(dict.fromkeys(words, part)),
    )


def _grid(rng: Random) -> tuple[str, Json, Schema]:
    rows, columns, fill = rng.randint(2, 4), rng.randint(2, 4), rng.choice([0, 1, None, False, "", "."])
    cell = {"const": fill}
    whole = {
        "type": "array",
        "minItems": rows,
        "maxItems": rows,
        "items": {"type": "array", "items": cell, "minItems": columns, "maxItems": columns},
    }
    return (
        f"Write a {rows} by {columns} grid as nested JSON arrays, every cell {write(fill, 'line')}.",
        [[fill] * columns] * rows,
        whole,
    )


def computed(domain: Domain, rng: Random) -> Case:
    """A value that follows from a rule, sometimes under a key of the domain."""
    makers: list[Callable[[Random], tuple[str, Json, Schema]]] = [_table, _lengths, _grid]
    text, value, schema = rng.choice(makers)(rng)
    layout, wish = pick_layout(rng)
    group = text
    if rng.random() < 0.6:
        group = domain.noun
        key = key_of(domain.noun, "camel")
        text = f"{text} Put the result under the key `{key}` of an outer object."
        value, schema = {key: value}, object_schema({key: schema})
    return Case("generation", group, join(text, wish), "", write(value, layout), schema)


FORMS: list[Callable[[Domain, Random], Case]] = [
    described,
    described,
    noted,
    keyed,
    several,
    dotted,
    called,
    called,
    computed,
]


def generation(domain: Domain, rng: Random) -> Case:
    """One row of the family; a date told in words asks for its ISO form."""
    case = rng.choice(FORMS)(domain, rng)
    text = case.instruction + case.input
    days = [
        leaf for leaf in leaves(list(case.told)) if isinstance(leaf, str) and re.fullmatch(r"\d{4}-\d\d-\d\d", leaf)
    ]
    if all(day in text for day in days):
        return case
    return replace(
        case, instruction=join(case.instruction, rng.choice(["Dates as YYYY-MM-DD.", "Write dates in ISO form."]))
    )
