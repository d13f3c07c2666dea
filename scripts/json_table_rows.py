"""Transformation rows over arrays of objects: filter, sort, pluck, index, group, count, sum, columns and rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from random import Random

from json_case import Case, draw_distinct, join, pick_layout, write
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


def _filter(t: Table, rng: Random) -> tuple[str, list[Object], bool]:
    limit, option = rng.choice(t.records)[t.number], rng.choice(t.records)[t.choice]
    tests: list[tuple[str, Callable[[Object], bool]]] = [
        (f"whose `{t.number}` is at least {limit}", lambda r: bool(r[t.number] >= limit)),
        (f"with `{t.number}` of {limit} or less", lambda r: bool(r[t.number] <= limit)),
        (f'where `{t.choice}` is "{option}"', lambda r: bool(r[t.choice] == option)),
        (f'where `{t.choice}` is not "{option}"', lambda r: bool(r[t.choice] != option)),
        (f"where `{t.flag}` is true", lambda r: r[t.flag] is True),
        (f"where `{t.flag}` is false", lambda r: r[t.flag] is False),
    ]
    words, test = rng.choice(tests)
    kept = [record for record in t.records if test(record)]
    left = list(t.records)
    for record in kept:
        left.remove(record)
    return words, kept, bool(kept) and not any(test(record) for record in left)


def filtered(t: Table, rng: Random) -> Outcome:
    """Keep or remove records by a condition, perhaps plucking one key afterwards."""
    words, kept, holds = _filter(t, rng)
    if rng.random() < 0.4:
        return (
            f"Give the `{t.label}` of the objects {words} as an array",
            [r[t.label] for r in kept],
            _array(t.schema["properties"][t.label], len(kept)),
            holds,
        )
    if rng.random() < 0.3:
        left = [record for record in t.records if record not in kept]
        return f"Remove the objects {words}", left, _array(t.schema, len(left)), holds and bool(left)
    return f"Keep only the objects {words}", kept, _array(t.schema, len(kept)), holds


def ordered(t: Table, rng: Random) -> Outcome:
    """Sort by the number or the label."""
    key, down = rng.choice([t.number, t.number, t.label]), rng.random() < 0.5
    result = sorted(t.records, key=lambda record: record[key], reverse=down)
    pairs = list(pairwise(result))
    holds = result != t.records and all((a[key] > b[key]) if down else (a[key] < b[key]) for a, b in pairs)
    way = "descending" if down else "ascending"
    if rng.random() < 0.3:
        words = f"Sort by `{key}` {way} and keep only `{t.label}` and `{t.number}`"
        parts = {k: t.schema["properties"][k] for k in (t.label, t.number)}
        return (
            words,
            [{k: r[k] for k in r if k in parts} for r in result],
            _array(object_schema(parts), len(result)),
            holds,
        )
    words = rng.choice([f"Sort the array by `{key}`, {way}", f"Order the objects by `{key}` ({way})"])
    return words, result, _array(t.schema, len(result)), holds


def plucked(t: Table, rng: Random) -> Outcome:
    """One key of every record."""
    key = rng.choice([t.label, t.number, t.choice])
    words = rng.choice([f"Make an array of the `{key}` values", f"Extract `{key}` from every object into an array"])
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
            rng.choice(
                [f"Count the objects per `{t.choice}`", f"How many objects has each `{t.choice}`? Answer as an object"]
            ),
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
        rng.choice(
            [
                f"Group the `{t.label}` values by `{t.choice}`",
                f"Make an object from each `{t.choice}` to an array of its `{t.label}` values",
            ]
        ),
        groups,
        object_schema(dict.fromkeys(names, shape)),
        holds,
    )


def summed(t: Table, rng: Random) -> Outcome:
    """Count with the smallest or largest number."""
    numbers = [record[t.number] for record in t.records]
    name, pick = rng.choice([("min", min), ("max", max)])
    value = pick(numbers)
    holds = value == sorted(numbers)[0 if name == "min" else -1]
    part = t.schema["properties"][t.number]
    if rng.random() < 0.4:
        best = next(record for record in t.records if record[t.number] == value)
        return (
            f"Return only the object with the {'smallest' if name == 'min' else 'largest'} `{t.number}`",
            best,
            t.schema,
            holds,
        )
    return (
        f'Summarise the array as {{"count": number of objects, "{name}": {name} of `{t.number}`}}',
        {"count": len(numbers), name: value},
        object_schema({"count": {"const": len(t.records)}, name: part}),
        holds,
    )


def columns(t: Table, rng: Random) -> Outcome:
    """A column-wise object, or a header with rows."""
    keys, count = list(t.records[0]), len(t.records)
    parts = t.schema["properties"]
    if rng.random() < 0.5:
        result = {key: [record[key] for record in t.records] for key in keys}
        holds = [dict(zip(result, row, strict=True)) for row in zip(*result.values(), strict=True)] == t.records
        words = rng.choice(
            [
                "Convert the array to columns: one array of values per key",
                "Transpose it into an object of arrays, one per key",
            ]
        )
        return words, result, object_schema({key: _array(parts[key], count) for key in keys}), holds
    rows = [[record[key] for key in keys] for record in t.records]
    holds = [dict(zip(keys, row, strict=True)) for row in rows] == t.records
    shape = object_schema({"columns": _array({"enum": keys}, len(keys)), "rows": _array(_array({}, len(keys)), count)})
    return 'Rewrite it as {"columns": [...], "rows": [[...]]}', {"columns": keys, "rows": rows}, shape, holds


def numbered(t: Table, rng: Random) -> Outcome:
    """An id put first, counted from a start."""
    start, key = rng.choice([1, 1, 0, 10, 100]), rng.choice(["id", "index", "position"])
    result = [{key: n, **record} for n, record in enumerate(t.records, start)]
    shape = _array(object_schema({key: {"type": "integer", "minimum": start}, **t.schema["properties"]}), len(result))
    return (
        f"Add a first key `{key}` to every object, counting from {start}",
        result,
        shape,
        [r[key] - start for r in result] == list(range(len(t.records))),
    )


FORMS: list[Callable[[Table, Random], Outcome]] = [
    filtered,
    filtered,
    ordered,
    plucked,
    indexed,
    grouped,
    summed,
    columns,
    numbered,
]


def of_table(domain: Domain, rng: Random) -> Case:
    """One change to an array of two to four small objects; what has no clear answer is marked as not holding."""
    style = rng.choice(["snake", "camel"])
    label = rng.choice(domain.of(*LABELS) or [domain.fields[0]])
    choices = [field for field in domain.of("one") if field is not label]
    fields = [label, rng.choice(domain.of("int", "num")), rng.choice(choices), rng.choice(domain.of("bool"))]
    form = rng.choice(FORMS)
    records, schema = draw_distinct(fields, style, rng.randint(3, 4) if form is not numbered else 2, rng)
    keys = [key_of(field.words, style) for field in fields]
    used = keys if form is filtered else keys[:3]
    records = [{key: record[key] for key in used} for record in records]
    table = Table(records, object_schema({key: schema["properties"][key] for key in used}), *keys)
    words, value, shape, holds = form(table, rng)
    layout, wish = pick_layout(rng)
    distinct = len({record[keys[1]] for record in records}) == len(records)
    return Case(
        "transformation",
        domain.noun,
        join(words + ".", wish),
        write(records, "line"),
        write(value, layout),
        shape,
        holds=holds and distinct,
    )
