"""Rows that ask to reshape JSON as told; every answer is looked at a second time by a rule that does not build it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from json_case import Case, join, listed, pick_layout, some_fields, write
from json_domains import Domain, Json, Schema, draw, key_of, object_schema

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
    words = rng.choice(
        [
            f"Keep only the keys {named(keys)}",
            f"Drop every key except {named(keys)}",
            f"Remove {named(gone)}",
            f"Delete the keys {named(gone)}",
        ]
    )
    parts = {key: schema["properties"][key] for key in kept}
    return Step(
        words,
        kept,
        object_schema(parts),
        {**{k: value[k] for k in gone}, **kept} == value and not set(gone) & set(kept),
    )


def _rename(value: Object, schema: Schema, rng: Random) -> Step:
    olds = rng.sample(list(value), rng.randint(1, min(2, len(value))))
    news = dict(
        zip(olds, rng.sample(["id", "label", "info", "main", "ref", "entry", "detail"], len(olds)), strict=True)
    )
    told = listed([f"`{old}` to `{new}`" for old, new in news.items()])
    renamed = {news.get(key, key): item for key, item in value.items()}
    parts = {news.get(key, key): part for key, part in schema["properties"].items()}
    words = rng.choice([f"Rename {told}", f"Change the key {told}" if len(olds) == 1 else f"Change the keys {told}"])
    return Step(words, renamed, object_schema(parts), list(renamed.values()) == list(value.values()))


def _recase(value: Object, schema: Schema, rng: Random) -> Step:
    style, name = rng.choice(
        [("snake", "snake_case"), ("pascal", "PascalCase"), ("kebab", "kebab-case"), ("camel", "camelCase")]
    )

    def again(item: Json) -> Json:
        return (
            {key_of(_spaced(key), style): again(part) for key, part in item.items()} if isinstance(item, dict) else item
        )

    def shape(part: Schema) -> Schema:
        inner = part.get("properties")
        return (
            part
            if inner is None
            else object_schema({key_of(_spaced(key), style): shape(sub) for key, sub in inner.items()})
        )

    changed = again(value)
    words = rng.choice([f"Convert all keys to {name}", f"Rewrite every key in {name}", f"Use {name} for the keys"])
    same = [_spaced(key) for key in changed] == [_spaced(key) for key in value]
    return Step(words, changed, shape(schema), same)


def _spaced(key: str) -> str:
    out = "".join(f" {c}" if c.isupper() else c for c in key.replace("_", " ").replace("-", " "))
    return " ".join(out.lower().split())


def _flatten(value: Object, schema: Schema, rng: Random) -> Step:
    mark, name = rng.choice([(".", "dots"), ("_", "underscores"), ("/", "slashes")])
    flat: Object = {}
    parts: dict[str, Schema] = {}
    for key, item in value.items():
        inner = item if isinstance(item, dict) else {"": item}
        for sub, leaf in inner.items():
            path = key + mark + sub if sub else key
            flat[path] = leaf
            parts[path] = schema["properties"][key]["properties"][sub] if sub else schema["properties"][key]
    words = rng.choice(
        [
            f"Flatten the nested object; join the key parts with {name}",
            f"Make it one level deep, paths joined by `{mark}`",
        ]
    )
    back = all((value[path] if path in value else _at(value, path, mark)) == leaf for path, leaf in flat.items())
    return Step(words, flat, object_schema(parts), back and not any(isinstance(item, dict) for item in flat.values()))


def _at(value: Object, path: str, mark: str) -> Json:
    return next(
        (
            item[path[len(key + mark) :]]
            for key, item in value.items()
            if isinstance(item, dict) and path.startswith(key + mark)
        ),
        None,
    )


def _gather(value: Object, schema: Schema, rng: Random) -> Step:
    keys = rng.sample(list(value), rng.randint(1, len(value) - 1))
    keys = [key for key in value if key in keys]
    home = rng.choice(["details", "meta", "data", "extra"])
    rest = {key: item for key, item in value.items() if key not in keys}
    moved = {**rest, home: {key: value[key] for key in keys}}
    parts = schema["properties"]
    shape = object_schema({**{key: parts[key] for key in rest}, home: object_schema({key: parts[key] for key in keys})})
    words = rng.choice(
        [
            f"Move {named(keys)} into a nested object `{home}` at the end",
            f"Put {named(keys)} under a new last key `{home}`",
        ]
    )
    return Step(words, moved, shape, {**moved, **moved[home]} == {**value, home: moved[home]})


def _entries(value: Object, schema: Schema, rng: Random) -> Step:
    a, b = rng.choice([("key", "value"), ("name", "value"), ("field", "content")])
    pairs = [{a: key, b: item} for key, item in value.items()]
    whole: Schema = {
        "type": "array",
        "minItems": len(value),
        "maxItems": len(value),
        "items": object_schema({a: {"enum": list(schema["properties"])}, b: {}}),
    }
    words = rng.choice(
        [
            f"Turn the object into an array of {{{a}, {b}}} objects",
            f"List the entries as an array of objects with `{a}` and `{b}`",
        ]
    )
    return Step(words, pairs, whole, {pair[a]: pair[b] for pair in pairs} == value)


def _strings(value: Object, schema: Schema, rng: Random) -> Step:
    changed = {key: str(item) if type(item) in (int, float) else item for key, item in value.items()}
    parts = {
        key: {"type": "string"} if type(value[key]) in (int, float) else part
        for key, part in schema["properties"].items()
    }
    words = rng.choice(["Turn every top-level number into a string", "Write the numbers at the top level as strings"])
    return Step(
        words,
        changed,
        object_schema(parts),
        all(changed[k] == value[k] or float(changed[k]) == value[k] for k in value),
    )


def _nulls(value: Object, schema: Schema, rng: Random) -> Step:
    if rng.random() < 0.5:
        kept = {key: item for key, item in value.items() if item is not None}
        parts = {key: part for key, part in schema["properties"].items() if key in kept}
        return Step(
            rng.choice(["Remove the keys whose value is null", "Drop all null fields"]),
            kept,
            object_schema(parts),
            None not in kept.values() and len(kept) + list(value.values()).count(None) == len(value),
        )
    stand = rng.choice(["n/a", "unknown", "", 0])
    filled = {key: stand if item is None else item for key, item in value.items()}
    parts = {key: {"const": stand} if value[key] is None else part for key, part in schema["properties"].items()}
    return Step(
        f"Replace null by {write(stand, 'line')}",
        filled,
        object_schema(parts),
        [k for k, v in filled.items() if v != value[k]] == [k for k, v in value.items() if v is None],
    )


def _wrap(value: Object, schema: Schema, rng: Random) -> Step:
    inner, count = rng.choice(["data", "payload", "item", "result"]), len(value)
    if rng.random() < 0.5:
        return Step(f"Wrap the object under the key `{inner}`", {inner: value}, object_schema({inner: schema}), True)
    return Step(
        f'Wrap it as {{"ok": true, "{inner}": the object, "keys": the number of its keys}}',
        {"ok": True, inner: value, "keys": count},
        object_schema({"ok": {"const": True}, inner: schema, "keys": {"const": len(schema["properties"])}}),
        True,
    )


def _set(value: Object, schema: Schema, rng: Random) -> Step:
    new, item = rng.choice(
        [("checked", True), ("version", 2), ("source", "import"), ("archived", False), ("parent", None), ("links", [])]
    )
    if rng.random() < 0.5:
        new, item = rng.choice(list(value)), None
    changed = {**value, new: item}
    parts = {**schema["properties"], new: {"const": item}}
    words = rng.choice([f"Set `{new}` to {write(item, 'line')}", f"Give `{new}` the value {write(item, 'line')}"])
    return Step(
        words, changed, object_schema(parts), {**changed, **{k: v for k, v in value.items() if k != new}} == changed
    )


OBJECT_STEPS: list[Callable[[Object, Schema, Random], Step]] = [
    _pick, _pick, _rename, _recase, _gather, _entries, _strings, _nulls, _wrap, _set,
]  # fmt: skip


def named(keys: list[str]) -> str:
    """`a`, `b` and `c`."""
    return listed([f"`{key}`" for key in keys])


def of_object(domain: Domain, rng: Random) -> Case:
    """One or two changes to a single object."""
    style = rng.choice(["snake", "camel"])
    fields = some_fields(domain, rng.randint(2, 4), rng, without=("object", "maybe"))
    step_makers = [rng.choice(OBJECT_STEPS)]
    if rng.random() < 0.35:
        step_makers = [_flatten]
        fields[0] = rng.choice(domain.of("object"))
    elif step_makers[0] is _nulls:
        fields[0] = domain.of("maybe")[0]
    elif step_makers[0] is _strings:
        fields = [domain.of("int", "num")[0], *[field for field in fields if field not in domain.of("int", "num")]]
    record, schema = draw(fields, style, rng)
    start = record
    if step_makers[0] not in (_entries, _wrap) and rng.random() < 0.35:
        step_makers.append(
            rng.choice([step for step in (_wrap, _rename, _set, _entries) if step is not step_makers[0]])
        )
    words, holds = [], True
    for maker in step_makers:
        step = maker(record, schema, rng)
        record, schema, holds = step.value, step.schema, holds and step.holds
        words.append(step.words)
    told = words[0] if len(words) == 1 else f"{words[0]}, then {words[1][0].lower()}{words[1][1:]}"
    layout, wish = pick_layout(rng)
    return Case(
        "transformation",
        domain.noun,
        join(told + ".", wish),
        write(start, rng.choice(["line", "line", "two"])),
        write(record, layout),
        schema,
        holds=holds and record != start,
    )
