"""Rows that ask to pull fields out of free text into a given shape."""

from __future__ import annotations

import re
from random import Random

from json_case import Case, join, listed, phrase, pick_layout, some_fields, write
from json_domain_table import SCENES
from json_domains import Domain, Field, Json, Schema, draw, key_of, long_date, object_schema, parse_field

SCENE_LIST = [scene.replace("\n", " ") for scene in SCENES.strip().split("\n\n")]
ASKS = [
    "Extract {keys} from the text.",
    "Read the text and fill {keys}.",
    "Pull {keys} out of this message as a JSON object.",
    "Return a JSON object with {keys}.",
    "Give me {keys} from the following as JSON.",
    "Parse this into JSON with {keys}.",
    "Which values does the text give for {keys}? Answer as a JSON object.",
]
SHAPES = [
    "Extract the data into this shape: {shape}",
    "Fill this template from the text: {shape}",
    "Answer with JSON of this form: {shape}",
    "Use exactly these keys and types: {shape}",
    "Return JSON that fits {shape} and nothing else.",
]
OPENERS = ["", "", "Hello all, ", "Quick note: ", "FYI: ", "From the log: ", "As discussed, "]
LINKS = ["The {w} is {v}.", "{W}: {v}.", "Noted: {w} {v}.", "{W} is {v}.", "It says {v} for the {w}."]
LISTS = ["{W}: {v}.", "The {w} are {v}.", "Noted for {w}: {v}."]
ABSENT = ["photo", "fax", "nickname", "middle name", "warranty", "coupon", "tax id", "homepage"]


def _shape(schema: Schema, as_schema: bool) -> str:
    parts = schema["properties"]
    if as_schema:
        small = {key: {"type": part.get("type", "string")} for key, part in parts.items()}
        return write({"type": "object", "properties": small, "required": list(small)}, "line")
    return write({key: part.get("type", "string") for key, part in parts.items()}, "line")


def ask_for(keys: dict[str, Json], schema: Schema, missing: str, rng: Random) -> str:
    """The question: the keys by name, a template, or a schema; dates and absent values explained where they occur."""
    if missing:
        schema = object_schema({**schema["properties"], missing: {"type": ["string", "null"]}})
    named = listed([f"`{key}`" for key in schema["properties"]])
    form = rng.random()
    if form < 0.55:
        ask = rng.choice(ASKS).format(keys=named)
    else:
        ask = rng.choice(SHAPES).format(shape=_shape(schema, as_schema=form > 0.9))
    dates = any("date" in str(part.get("format")) for part in schema["properties"].values())
    nulls = missing and rng.choice(
        ["Use null for what the text does not say.", "Missing values are null.", "Unknown means null."]
    )
    day = rng.choice(["Dates as YYYY-MM-DD.", "Write dates in ISO form."]) if dates and keys else ""
    return join(ask, day, nulls)


def _case(group: str, text: str, record: dict[str, Json], schema: Schema, rng: Random) -> Case:
    missing = ""
    if rng.random() < 0.2:
        missing = key_of(rng.choice(ABSENT), "snake" if any("_" in key for key in record) else "camel")
    layout, wish = pick_layout(rng)
    ask = join(ask_for(record, schema, missing, rng), wish)
    told = tuple(record.values())
    if missing:
        record, schema = {**record, missing: None}, object_schema({**schema["properties"], missing: {"type": "null"}})
    return Case("extraction", group, ask, text, write(record, layout), schema, told)


def from_scene(scene: str, rng: Random) -> Case:
    """A row from one of the scenes: some of its values are asked for, in any order."""
    fields: list[Field] = []
    values: dict[str, Json] = {}

    def put(match: re.Match[str]) -> str:
        field = parse_field(match[1])
        fields.append(field)
        value = values[field.words] = field.kind.make(rng)
        return long_date(value) if field.kind.name == "date" and rng.random() < 0.5 else str(value)

    text = re.sub(r"\{([^}]*)\}", put, scene)
    style = rng.choice(["snake", "camel"])
    asked = rng.sample(fields, rng.randint(2, min(5, len(fields))))
    record = {key_of(field.words, style): values[field.words] for field in asked}
    schema = object_schema({key_of(field.words, style): field.kind.schema for field in asked})
    return _case(scene[:40], rng.choice(OPENERS) + text, record, schema, rng)


def from_domain(domain: Domain, rng: Random) -> Case:
    """A row from a text about one record of a domain, told with more fields than are asked for."""
    style = rng.choice(["snake", "camel", "camel", "kebab"])
    fields = some_fields(domain, rng.randint(4, 6), rng, without=("maybe", "bool"))
    record, schema = draw(fields, style, rng)
    told = []
    for field, value in zip(fields, record.values(), strict=True):
        said = phrase(field, value, rng).removeprefix(field.words + " ").removeprefix("with ").strip("()")
        words, links = (
            field.words,
            LISTS if isinstance(value, list) else LISTS[:1] if isinstance(value, dict) else LINKS,
        )
        told.append(rng.choice(links).format(w=words, W=words[0].upper() + words[1:], v=said))
    rng.shuffle(told)
    keys = rng.sample(list(record), rng.randint(2, 4))
    opening = rng.choice(
        [f"About the {domain.noun}. ", f"New {domain.noun}. ", f"{domain.noun.capitalize()} entry. ", ""]
    )
    part = object_schema({key: schema["properties"][key] for key in keys})
    return _case(domain.noun, opening + " ".join(told), {key: record[key] for key in keys}, part, rng)


def extraction(domain: Domain, rng: Random) -> Case:
    """One row of the family."""
    return from_domain(domain, rng) if rng.random() < 0.5 else from_scene(rng.choice(SCENE_LIST), rng)
