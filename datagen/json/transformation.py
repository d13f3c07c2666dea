"""Rows that ask to reshape JSON as told; every answer is looked at a second time by a rule that does not build it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random

from datagen.json.case import Case, group_of, listed, some_fields, write
from datagen.json.domains import Domain, Json, Schema, draw, object_schema

Object = dict[str, Json]


@dataclass(frozen=True)
class Step:
    """A change in words, the outcome, its schema, and whether the second look agrees."""

    words: str
    value: Json
    schema: Schema
    holds: bool


def _pick(value: Object, schema: Schema, rng: Random) -> Step:
    keys = rng.sample(list(value), rng.randint(1, len(value) - 1))
    gone = [key for key in value if key not in keys]
    kept = {key: value[key] for key in value if key in keys}
    words = rng.choice([f"Keep only {named(keys)}", f"Remove {named(gone)}"])
    parts = {key: schema["properties"][key] for key in kept}
    return Step(
        words,
        kept,
        object_schema(parts),
        {**{k: value[k] for k in gone}, **kept} == value and not set(gone) & set(kept),
    )


def _rename(value: Object, schema: Schema, rng: Random) -> Step:
    olds = rng.sample(list(value), rng.randint(1, min(2, len(value))))
    news = dict(zip(olds, rng.sample(["id", "label", "info", "main", "ref"], len(olds)), strict=True))
    told = listed([f"`{old}` to `{new}`" for old, new in news.items()])
    renamed = {news.get(key, key): item for key, item in value.items()}
    parts = {news.get(key, key): part for key, part in schema["properties"].items()}
    return Step(f"Rename {told}", renamed, object_schema(parts), list(renamed.values()) == list(value.values()))


def _flatten(value: Object, schema: Schema, rng: Random) -> Step:
    mark, name = rng.choice([(".", "dots"), ("/", "slashes")])
    flat: Object = {}
    parts: dict[str, Schema] = {}
    for key, item in value.items():
        inner = item if isinstance(item, dict) else {"": item}
        for sub, leaf in inner.items():
            path = key + mark + sub if sub else key
            flat[path] = leaf
            parts[path] = schema["properties"][key]["properties"][sub] if sub else schema["properties"][key]
    back = all((value[path] if path in value else _at(value, path, mark)) == leaf for path, leaf in flat.items())
    return Step(
        f"Flatten it, key parts joined with {name}",
        flat,
        object_schema(parts),
        back and not any(isinstance(item, dict) for item in flat.values()),
    )


def _at(value: Object, path: str, mark: str) -> Json:
    return next(
        (
            item[path[len(key + mark) :]]
            for key, item in value.items()
            if isinstance(item, dict) and path.startswith(key + mark)
        ),
        None,
    )


def _entries(value: Object, schema: Schema, _: Random) -> Step:
    a, b = "key", "value"
    pairs = [{a: key, b: item} for key, item in value.items()]
    whole: Schema = {
        "type": "array",
        "minItems": len(value),
        "maxItems": len(value),
        "items": object_schema({a: {"enum": list(schema["properties"])}, b: {}}),
    }
    return Step(
        f"List the entries as an array of objects with `{a}` and `{b}`",
        pairs,
        whole,
        {pair[a]: pair[b] for pair in pairs} == value,
    )


def _wrap(value: Object, schema: Schema, rng: Random) -> Step:
    inner = rng.choice(["data", "payload", "item", "result"])
    return Step(f"Wrap the object under the key `{inner}`", {inner: value}, object_schema({inner: schema}), True)


def _set(value: Object, schema: Schema, rng: Random) -> Step:
    new, item = rng.choice(
        [("checked", True), ("version", 2), ("source", "import"), ("archived", False), ("parent", None), ("links", [])]
    )
    if rng.random() < 0.5:
        new, item = rng.choice(list(value)), None
    changed = {**value, new: item}
    parts = {**schema["properties"], new: {"const": item}}
    return Step(
        f"Set `{new}` to {write(item)}",
        changed,
        object_schema(parts),
        {**changed, **{k: v for k, v in value.items() if k != new}} == changed,
    )


ObjectStep = Callable[[Object, Schema, Random], Step]
OBJECT_STEPS: list[ObjectStep] = [
    _pick, _pick, _rename, _entries, _wrap, _set, _flatten,
]  # fmt: skip
EDITS = [_pick, _rename, _set]


def named(keys: list[str]) -> str:
    """`a`, `b` and `c`."""
    return listed([f"`{key}`" for key in keys])


def edit(domain: Domain, rng: Random) -> Case:
    """One change that keeps the rest of an object as it is."""
    return of_object(domain, rng, EDITS)


def of_object(domain: Domain, rng: Random, steps: Sequence[ObjectStep] = OBJECT_STEPS) -> Case:
    """One change to a single object."""
    fields = some_fields(domain, rng.randint(2, 4), rng, without=("object", "maybe"))
    maker = rng.choice(steps)
    if maker is _flatten:
        fields[0] = rng.choice(domain.of("object"))
    record, schema = draw(fields, rng)
    step = maker(record, schema, rng)
    group = group_of("object", domain, fields, maker.__name__)
    holds = step.holds and step.value != record
    return Case("transformation", group, f"{step.words}.", write(record), write(step.value), step.schema, holds=holds)
