"""Rows that ask to pull fields out of free text into a given shape."""

from __future__ import annotations

import re
from random import Random

from datagen.json.case import Case, group_of, listed, phrase, some_fields, write
from datagen.json.domain_table import SCENES
from datagen.json.domains import Domain, Field, Json, Schema, draw, key_of, long_date, object_schema, parse_field

SCENE_LIST = [scene.replace("\n", " ") for scene in SCENES.strip().split("\n\n")]
ASKS = [
    "Extract {keys} from the text.",
    "Read the text and give {keys} as a JSON object.",
    "Fill {keys} from the text.",
]
LINKS = ["The {w} is {v}.", "{W}: {v}."]
ABSENT = ["photo", "fax", "nickname", "coupon"]


def _case(group: str, text: str, record: dict[str, Json], schema: Schema, rng: Random) -> Case:
    """The row of a text; what it does not say is asked for now and then, and is null."""
    told = tuple(record.values())
    if rng.random() < 0.25:
        missing = rng.choice(ABSENT)
        record, schema = {**record, missing: None}, object_schema({**schema["properties"], missing: {"type": "null"}})
        group += f", {missing}"
    keys = rng.sample(list(record), len(record))
    ask = rng.choice(ASKS).format(keys=listed([f"`{key}`" for key in keys]))
    return Case("extraction", group, ask, text, write({key: record[key] for key in keys}), schema, told)


def from_scene(scene: str, rng: Random) -> Case:
    """A row from one of the scenes: some of its values are asked for, in any order; it tells dates in words."""
    fields: list[Field] = []
    values: dict[str, Json] = {}

    def put(match: re.Match[str]) -> str:
        field = parse_field(match[1])
        fields.append(field)
        value = values[field.words] = field.kind.make(rng)
        return long_date(value) if field.kind.name == "date" else str(value)

    text = re.sub(r"\{([^}]*)\}", put, scene)
    asked = rng.sample(fields, rng.randint(2, 4))
    record = {key_of(field.words, "snake"): values[field.words] for field in asked}
    schema = object_schema({key_of(field.words, "snake"): field.kind.schema for field in asked})
    return _case(f"{scene[:20]} | {', '.join(sorted(record))}", text, record, schema, rng)


def from_domain(domain: Domain, rng: Random) -> Case:
    """A row from a text about one record of a domain, told with more fields than are asked for."""
    fields = some_fields(domain, 4, rng, without=("maybe", "bool"))
    record, schema = draw(fields, rng)
    told = []
    for field, value in zip(fields, record.values(), strict=True):
        said = phrase(field, value).removeprefix(field.words + " ").strip("()")
        links = LINKS[1:] if isinstance(value, (list, dict)) else LINKS
        told.append(rng.choice(links).format(w=field.words, W=field.words.capitalize(), v=said))
    asked = rng.sample(fields, rng.randint(2, 3))
    keys = [key_of(field.words, "snake") for field in asked]
    text, group = f"New {domain.noun}. {' '.join(told)}", group_of("text", domain, asked)
    part = object_schema({key: schema["properties"][key] for key in keys})
    return _case(group, text, {key: record[key] for key in keys}, part, rng)


def extraction(domain: Domain, rng: Random) -> Case:
    """One row of the family."""
    return from_domain(domain, rng) if rng.random() < 0.5 else from_scene(rng.choice(SCENE_LIST), rng)
