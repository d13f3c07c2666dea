"""Transformation rows over arrays of objects: pluck, index, columns and rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from datagen.json.case import Case, draw_distinct, group_of, write
from datagen.json.domains import Domain, Json, Schema, key_of, object_schema

Object = dict[str, Json]
LABELS = ("title", "code", "person", "company", "street", "city")


@dataclass(frozen=True)
class Table:
    """Records with a label and a value, known by their keys, and the schema of one record."""

    records: list[Object]
    schema: Schema
    label: str
    value: str


Outcome = tuple[str, Json, Schema, bool]


def _array(items: Schema, count: int) -> Schema:
    return {"type": "array", "items": items, "minItems": count, "maxItems": count}


def plucked(t: Table, rng: Random) -> Outcome:
    """One key of every record."""
    key = rng.choice([t.label, t.value])
    words = f"Make an array of the `{key}` values"
    result = [record[key] for record in t.records]
    return (
        words,
        result,
        _array(t.schema["properties"][key], len(t.records)),
        all(r[key] == v for r, v in zip(t.records, result, strict=True)),
    )


def indexed(t: Table, rng: Random) -> Outcome:
    """An object keyed by the label, the label dropped from the records or only one value kept."""
    names = [str(record[t.label]) for record in t.records]
    rest = {key: part for key, part in t.schema["properties"].items() if key != t.label}
    if rng.random() < 0.4:
        result: Object = {r[t.label]: r[t.value] for r in t.records}
        words, part = f"Build an object that maps each `{t.label}` to its `{t.value}`", rest[t.value]
    else:
        result = {r[t.label]: {k: v for k, v in r.items() if k != t.label} for r in t.records}
        words, part = (
            f"Turn the array into an object keyed by `{t.label}`; drop `{t.label}` from the values",
            object_schema(rest),
        )
    return words, result, object_schema(dict.fromkeys(names, part)), list(result) == names


def columns(t: Table, rng: Random) -> Outcome:
    """A column-wise object, or a header with rows."""
    keys, count = list(t.records[0]), len(t.records)
    parts = t.schema["properties"]
    if rng.random() < 0.5:
        result = {key: [record[key] for record in t.records] for key in keys}
        holds = [dict(zip(result, row, strict=True)) for row in zip(*result.values(), strict=True)] == t.records
        words = "Convert the array to columns: one array of values per key"
        return words, result, object_schema({key: _array(parts[key], count) for key in keys}), holds
    rows = [[record[key] for key in keys] for record in t.records]
    holds = [dict(zip(keys, row, strict=True)) for row in rows] == t.records
    shape = object_schema({"columns": _array({"enum": keys}, len(keys)), "rows": _array(_array({}, len(keys)), count)})
    return 'Rewrite it as {"columns": [...], "rows": [[...]]}', {"columns": keys, "rows": rows}, shape, holds


FORMS: list[Callable[[Table, Random], Outcome]] = [plucked, indexed, columns]


def of_table(domain: Domain, rng: Random) -> Case:
    """One change to an array of three small objects; labels that are not distinct leave no clear answer."""
    label = rng.choice(domain.of(*LABELS))
    value = rng.choice([field for field in domain.of("int", "num", "one", "bool") if field is not label])
    records, schema = draw_distinct([label, value], 3, rng)
    table = Table(records, schema, key_of(label.words, "snake"), key_of(value.words, "snake"))
    words, answer, shape, holds = rng.choice(FORMS)(table, rng)
    group = group_of("table", domain, [label, value], words)
    return Case("transformation", group, f"{words}.", write(records), write(answer), shape, holds=holds)
