"""Tools that make something of records: changed copies, parts, strings, complaints, values under keys."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from datagen.typescript.case import Checks, literal, plural
from datagen.typescript.world import Tool, World, cap


def change(w: World, rng: Random) -> Tool:
    """A copy of one record with one thing changed."""
    n, f, step = w.number, w.flag, rng.randint(2, 9)
    forms: list[tuple[str, str, str, str, Callable[[Any], Any]]] = [
        (f"toggle{cap(f)}", f"returns a copy of the {w.noun} with `{f}` negated", f, f"!item.{f}", lambda old: not old),
        (f"raise{cap(n)}", f"returns a copy with `{n}` raised by {step}", n, f"item.{n} + {step}", lambda old: old + step),
        (f"double{cap(n)}", f"returns a new {w.noun} with twice the `{n}`; the argument stays as it is", n,
         f"item.{n} * 2", lambda old: old * 2),
        (f"clear{cap(n)}", f"returns a copy whose `{n}` is 0", n, "0", lambda _: 0),
    ]  # fmt: skip
    name, words, key, code, changed = rng.choice(forms)
    checks: Checks = []
    for i, row in enumerate(w.records[:3]):
        checks.append((f"{name}(rows[{i}])", {**row, key: changed(row[key]) if key in row else None}))
        checks.append((f"rows[{i}]", row))
    return Tool(name, f"(item: {w.type})", w.type, words, f"({{ ...item, {key}: {code} }})", checks)


def patch(w: World, rng: Random) -> Tool:
    """A Partial laid over one record."""
    n, name, value, (first, second) = w.number, f"update{w.type}", rng.randint(100, 999), w.records[:2]
    head = f"(item: {w.type}, changes: Partial<{w.type}>)"
    checks = [(f"{name}(rows[0], {{ {n}: {value} }})", {**first, n: value}), (f"{name}(rows[1], {{}})", second)]
    checks += [("rows[0]", first), (f"{name}(rows[1], rows[0])", first)]
    return Tool(
        name, head, w.type, "returns a copy of `item` with `changes` applied", "({ ...item, ...changes })", checks
    )


def remove(w: World, rng: Random) -> Tool:
    """The array without the record of a label."""
    k, name, gone = w.label, f"remove{w.type}", w.records[rng.randrange(4)]
    words = f"returns the {plural(w.noun)} without the one with that `{k}`"
    checks: Checks = [(f"{name}(rows, {literal(gone[k])})", [r for r in w.records if r != gone])]
    checks += [(f'{name}(rows, "none")', w.records), ("rows", w.records)]
    head = f"({w.many}: {w.type}[], {k}: string)"
    return Tool(name, head, f"{w.type}[]", words, f"{w.many}.filter((item) => item.{k} !== {k})", checks)


def narrow(w: World, _: Random) -> Tool:
    """A Pick of the record."""
    k, n, name, row = w.label, w.number, f"summarize{w.type}", w.records[0]
    result, words = f'Pick<{w.type}, "{k}" | "{n}">', f"returns only `{k}` and `{n}` of the {w.noun}"
    checks: Checks = [(f"{name}(rows[0])", {k: row[k], n: row[n]})]
    checks.append((f"rows.map((row) => {name}(row))", [{k: r[k], n: r[n]} for r in w.records]))
    return Tool(name, f"(item: {w.type})", result, words, f"({{ {k}: item.{k}, {n}: item.{n} }})", checks)


def without(w: World, _: Random) -> Tool:
    """An Omit of the record."""
    n, name = w.number, f"without{cap(w.number)}"
    body = f"const {{ {n}, ...rest }} = item;\nreturn rest;"
    checks: Checks = [
        (f"{name}(rows[0])", {key: value for key, value in w.records[0].items() if key != n}),
        ("rows[0]", w.records[0]),
    ]
    return Tool(name, f"(item: {w.type})", f'Omit<{w.type}, "{n}">', f"returns a copy without `{n}`", body, checks)


def describe(w: World, _: Random) -> Tool:
    """One record as a string with a conditional part."""
    k, n, f, name = w.label, w.number, w.flag, f"describe{w.type}"
    code = f'`${{item.{k}}} (${{item.{n}}}): ${{item.{f} ? "yes" : "no"}}`'
    words = f'returns a string of the form `{k} ({n}): yes`, with "no" instead of "yes" when `{f}` is false'
    lines = [f"{row[k]} ({literal(row[n])}): {'yes' if row[f] else 'no'}" for row in w.records]
    checks: Checks = [(f"{name}(rows[{i}])", line) for i, line in enumerate(lines)]
    return Tool(name, f"(item: {w.type})", "string", words, code, checks)


def validate(w: World, rng: Random) -> Tool:
    """The complaints about one record."""
    k, n, limit, name = w.label, w.number, rng.randint(1, 9), f"validate{w.type}"
    body = f'const errors: string[] = [];\nif (item.{k} === "") errors.push("{k} is empty");\n'
    body += f'if (item.{n} < {limit}) errors.push("{n} is too small");\nreturn errors;'
    words = f'returns the errors of a {w.noun}: "{k} is empty" for an empty `{k}`, '
    words += f'"{n} is too small" for a `{n}` below {limit}'
    cases: list[tuple[str, list[str]]] = [
        (f"{n}: {limit}", []), (f"{n}: {limit - 1}", [f"{n} is too small"]), (f'{n}: 50, {k}: ""', [f"{k} is empty"]),
        (f'{n}: 0, {k}: ""', [f"{k} is empty", f"{n} is too small"]),
    ]  # fmt: skip
    checks: Checks = [(f"{name}({{ ...rows[0], {fields} }})", errors) for fields, errors in cases]
    return Tool(name, f"(item: {w.type})", "string[]", words, body, checks)


def value_of(w: World, rng: Random) -> Tool:
    """The value under a key, of one record or of all, with its exact type."""
    one, k, n = rng.random() < 0.5, w.label, w.number
    name = f"get{w.type}Value" if one else f"pluck{w.type}"
    head = f"<K extends keyof {w.type}>({'item' if one else 'items'}: {w.type}{'' if one else '[]'}, key: K)"
    result, code = f"{w.type}[K]{'' if one else '[]'}", "item[key]" if one else "items.map((item) => item[key])"
    words = (
        "returns the value under `key` with its exact type" if one else "returns the values under `key` of all items"
    )
    checks: Checks = [(f'{name}(rows[{i}], "{key}")', r[key]) for i, r in enumerate(w.records[:2]) for key in (k, n)]
    if not one:
        checks = [(f'{name}(rows, "{key}")', [r[key] for r in w.records]) for key in (k, n)]
    return Tool(name, head, result, words, code, checks)


def set_value(w: World, _: Random) -> Tool:
    """A copy with a value under a key."""
    (row, other), k, n, name = w.records[:2], w.label, w.number, f"set{w.type}Value"
    head = f"<K extends keyof {w.type}>(item: {w.type}, key: K, value: {w.type}[K])"
    checks = [(f'{name}(rows[0], "{n}", 77)', {**row, n: 77}), (f'{name}(rows[0], "{k}", "x")', {**row, k: "x"})]
    checks += [(f'{name}(rows[1], "{n}", 0)', {**other, n: 0}), ("rows[0]", row)]
    return Tool(name, head, w.type, "returns a copy with `value` under `key`", "({ ...item, [key]: value })", checks)


CHANGES: list[Callable[[World, Random], Tool]] = [
    change, change, patch, remove, narrow, without, describe, validate, value_of, set_value,
]  # fmt: skip
