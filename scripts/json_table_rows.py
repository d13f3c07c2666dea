"""Transformation rows over arrays of objects: filter, pluck, index, group, count, columns and rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from json_case import Case, draw_distinct, group_of, write
from json_domains import Domain, Json, Schema, key_of, object_schema

Object = dict[str, Json]
LABELS = ("title", "code", "person", "company", "street", "city")


@dataclass(frozen=True)
class Table:
    """Records with a label, a number, a choice and a boolean, known by their keys, and the schema of one record."""

    records: list[Object]
    schema: Schema
    label: str
    number: str
    choice: str
    flag: str


Outcome = tuple[str, Json, Schema, bool]


def _array(items: Schema, count: int) -> Schema:
    return {"type": "array", "items": items, "minItems": count, "maxItems": count}


def filtered(t: Table, rng: Random) -> Outcome:
    """Keep records by a condition, perhaps plucking one key afterwards."""
    option = rng.choice(t.records)[t.choice]
    tests: list[tuple[str, Callable[[Object], bool]]] = [
        (f'where `{t.choice}` is "{option}"', lambda r: bool(r[t.choice] == option)),
        (f'where `{t.choice}` is not "{option}"', lambda r: bool(r[t.choice] != option)),
        (f"where `{t.flag}` is true", lambda r: r[t.flag] is True),
        (f"where `{t.flag}` is false", lambda r: r[t.flag] is False),
    ]
    words, test = rng.choice(tests)
    kept = [record for record in t.records if test(record)]
    holds = bool(kept) and not any(test(record) for record in t.records if record not in kept)
    if rng.random() < 0.5:
        parts = _array(t.schema["properties"][t.label], len(kept))
        return f"Give the `{t.label}` of the objects {words} as an array", [r[t.label] for r in kept], parts, holds
    return f"Keep only the objects {words}", kept, _array(t.schema, len(kept)), holds


def plucked(t: Table, rng: Random) -> Outcome:
    """One key of every record."""
    key = rng.choice([t.label, t.number])
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
        result: Object = {r[t.label]: r[t.number] for r in t.records}
        words, part = f"Build an object that maps each `{t.label}` to its `{t.number}`", rest[t.number]
    else:
        result = {r[t.label]: {k: v for k, v in r.items() if k != t.label} for r in t.records}
        words, part = (
            f"Turn the array into an object keyed by `{t.label}`; drop `{t.label}` from the values",
            object_schema(rest),
        )
    return words, result, object_schema(dict.fromkeys(names, part)), list(result) == names


def grouped(t: Table, rng: Random) -> Outcome:
    """Labels or counts by the choice."""
    names = list(dict.fromkeys(record[t.choice] for record in t.records))
    if rng.random() < 0.5:
        counts = {name: sum(record[t.choice] == name for record in t.records) for name in names}
        return (
            f"Count the objects per `{t.choice}`",
            counts,
            object_schema({name: {"type": "integer", "minimum": 1} for name in names}),
            sum(counts.values()) == len(t.records),
        )
    groups = {name: [record[t.label] for record in t.records if record[t.choice] == name] for name in names}
    holds = sorted(item for group in groups.values() for item in group) == sorted(
        record[t.label] for record in t.records
    )
    shape: Schema = {"type": "array", "items": t.schema["properties"][t.label], "minItems": 1}
    return (
        f"Group the `{t.label}` values by `{t.choice}`",
        groups,
        object_schema(dict.fromkeys(names, shape)),
        holds,
    )


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


FORMS: list[Callable[[Table, Random], Outcome]] = [filtered, filtered, plucked, indexed, grouped, columns]


def of_table(domain: Domain, rng: Random) -> Case:
    """One change to an array of three small objects; what has no clear answer is marked as not holding."""
    label = rng.choice(domain.of(*LABELS) or [domain.fields[0]])
    choices = [field for field in domain.of("one") if field is not label]
    fields = [label, rng.choice(domain.of("int", "num")), rng.choice(choices), rng.choice(domain.of("bool"))]
    form = rng.choice(FORMS)
    records, schema = draw_distinct(fields, 3, rng)
    keys = [key_of(field.words, "snake") for field in fields]
    used = [keys[place] for place in ((0, 2, 3) if form is filtered else (0, 2) if form is grouped else (0, 1))]
    records = [{key: record[key] for key in used} for record in records]
    table = Table(records, object_schema({key: schema["properties"][key] for key in used}), *keys)
    words, value, shape, holds = form(table, rng)
    distinct = keys[1] not in used or len({record[keys[1]] for record in records}) == len(records)
    group = group_of("table", domain, [], words, *used)
    holds = holds and distinct
    return Case("transformation", group, f"{words}.", write(records), write(value), shape, holds=holds)
