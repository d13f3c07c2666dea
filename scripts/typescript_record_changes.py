"""Tools that make something of records: changed copies, parts, strings, complaints, values under keys."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from typescript_case import Checks, literal, plural
from typescript_world import Record, Tool, World, cap


def change(w: World, rng: Random) -> Tool:
    """A copy of one record with one thing changed."""
    n, f, step, row = w.number, w.flag, rng.randint(2, 9), w.records[0]
    name, words, key, code, value = rng.choice([
        (f"toggle{cap(f)}", f"returns a copy of the {w.noun} with `{f}` negated", f, f"!item.{f}", not row.get(f)),
        (f"raise{cap(n)}", f"returns a copy with `{n}` raised by {step}", n, f"item.{n} + {step}", row.get(n, 0) + step),
        (f"double{cap(n)}", f"returns a new {w.noun} with twice the `{n}`; the argument stays as it is", n,
         f"item.{n} * 2", row.get(n, 0) * 2),
        (f"clear{cap(n)}", f"returns a copy whose `{n}` is 0", n, "0", 0),
    ])  # fmt: skip
    checks: Checks = [(f"{name}(rows[0])", {**row, key: value}), ("rows[0]", row)]
    return Tool(name, f"(item: Readonly<{w.type}>)", w.type, words, f"({{ ...item, {key}: {code} }})", checks)


def patch(w: World, rng: Random) -> Tool:
    """A Partial laid over one record."""
    n, name, value, (first, second) = w.number, f"update{w.type}", rng.randint(100, 999), w.records[:2]
    head = f"(item: {w.type}, changes: Partial<{w.type}>)"
    checks = [(f"{name}(rows[0], {{ {n}: {value} }})", {**first, n: value}), (f"{name}(rows[1], {{}})", second)]
    return Tool(
        name, head, w.type, "returns a copy of `item` with `changes` applied", "({ ...item, ...changes })", checks
    )


def patch_by_label(w: World, rng: Random) -> Tool:
    """A Partial laid over the record with a label."""
    n, k, name, value, rows = w.number, w.label, f"patch{w.title}", rng.randint(100, 999), w.records
    code = f"{w.many}.map((item) => (item.{k} === {k} ? {{ ...item, ...changes }} : item))"
    head = f"({w.many}: {w.type}[], {k}: string, changes: Partial<{w.type}>)"
    words = f"applies `changes` to the {w.noun} with the given `{k}` and returns a new array"
    call = f"{name}(rows, {literal(rows[1][k])}, {{ {n}: {value} }})"
    return Tool(name, head, f"{w.type}[]", words, code, [(call, [rows[0], {**rows[1], n: value}, *rows[2:]])])


def remove(w: World, rng: Random) -> Tool:
    """The array without the record of a label."""
    k, name, gone = w.label, f"remove{w.type}", w.records[rng.randrange(4)]
    words = f"returns the {plural(w.noun)} without the one with that `{k}`"
    checks: Checks = [(f"{name}(rows, {literal(gone[k])})", [r for r in w.records if r != gone])]
    head = f"({w.many}: readonly {w.type}[], {k}: string)"
    return Tool(name, head, f"{w.type}[]", words, f"{w.many}.filter((item) => item.{k} !== {k})", checks)


def narrow(w: World, _: Random) -> Tool:
    """A Pick of the record."""
    k, n, name, row = w.label, w.number, f"summarize{w.type}", w.records[0]
    result, words = f'Pick<{w.type}, "{k}" | "{n}">', f"returns only `{k}` and `{n}` of the {w.noun}"
    checks: Checks = [(f"{name}(rows[0])", {k: row[k], n: row[n]})]
    return Tool(name, f"(item: {w.type})", result, words, f"({{ {k}: item.{k}, {n}: item.{n} }})", checks)


def without(w: World, _: Random) -> Tool:
    """An Omit of the record."""
    n, name = w.number, f"without{cap(w.number)}"
    body = f"const {{ {n}, ...rest }} = item;\nreturn rest;"
    checks: Checks = [(f"{name}(rows[0])", {key: value for key, value in w.records[0].items() if key != n})]
    return Tool(name, f"(item: {w.type})", f'Omit<{w.type}, "{n}">', f"returns a copy without `{n}`", body, checks)


def describe(w: World, rng: Random) -> Tool:
    """One record as a string with a conditional part."""
    k, n, f, mark_last = w.label, w.number, w.flag, rng.random() < 0.5
    yes, no = rng.choice([("yes", "no"), ("on", "off"), ("+", "-")])
    mark = f'${{item.{f} ? "{yes}" : "{no}"}}'

    def line(row: Record) -> str:
        said = yes if row[f] else no
        return f"{row[k]} ({literal(row[n])}): {said}" if mark_last else f"[{said}] {row[k]} - {literal(row[n])}"

    name = f"{'describe' if mark_last else 'format'}{w.type}"
    code = f"`${{item.{k}}} (${{item.{n}}}): {mark}`" if mark_last else f"`[{mark}] ${{item.{k}}} - ${{item.{n}}}`"
    shape = f"`{k} ({n}): {yes}`" if mark_last else f"`[{yes}] {k} - {n}`"
    words = f'returns a string of the form {shape}, with "{no}" instead of "{yes}" when `{f}` is false'
    checks = [(f"{name}(rows[{i}])", line(w.records[i])) for i in range(3)]
    return Tool(name, f"(item: {w.type})", "string", words, code, checks)


def validate(w: World, rng: Random) -> Tool:
    """The complaints about one record."""
    k, n, limit, name = w.label, w.number, rng.randint(1, 9), rng.choice(["validate", "check"]) + w.type
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
    one, row, k, n = rng.random() < 0.5, w.records[0], w.label, w.number
    name = f"get{w.type}Value" if one else f"pluck{w.type}"
    head = f"<K extends keyof {w.type}>({'item' if one else 'items'}: {w.type}{'' if one else '[]'}, key: K)"
    result, code = f"{w.type}[K]{'' if one else '[]'}", "item[key]" if one else "items.map((item) => item[key])"
    words = (
        "returns the value under `key` with its exact type" if one else "returns the values under `key` of all items"
    )
    checks: Checks = [(f'{name}(rows[0], "{key}")', row[key]) for key in (k, n)]
    if not one:
        checks = [(f'{name}(rows, "{key}")', [r[key] for r in w.records]) for key in (k, n)]
    return Tool(name, head, result, words, code, checks)


def set_value(w: World, _: Random) -> Tool:
    """A copy with a value under a key."""
    row, k, n, name = w.records[0], w.label, w.number, f"set{w.type}Value"
    head = f"<K extends keyof {w.type}>(item: {w.type}, key: K, value: {w.type}[K])"
    checks = [(f'{name}(rows[0], "{n}", 77)', {**row, n: 77}), (f'{name}(rows[0], "{k}", "x")', {**row, k: "x"})]
    return Tool(name, head, w.type, "returns a copy with `value` under `key`", "({ ...item, [key]: value })", checks)


def defaults(w: World, _: Random) -> Tool:
    """A record made of a Partial and defaults."""
    zero: dict[type, Any] = {str: "", bool: False, int: 0, float: 0}
    # The choice has no neutral value: its first record's stands in.
    filled = {key: value if key == w.choice else zero[type(value)] for key, value in w.records[0].items()}
    base, name, n = ", ".join(f"{key}: {literal(value)}" for key, value in filled.items()), f"make{w.type}", w.number
    checks = [(f"{name}()", filled), (f"{name}({{ {n}: 5 }})", {**filled, n: 5})]
    words = f"fills missing fields with these defaults: {base}"
    return Tool(name, f"(fields: Partial<{w.type}> = {{}})", w.type, words, f"({{ {base}, ...fields }})", checks)


def changed_keys(w: World, _: Random) -> Tool:
    """The keys in which two records differ."""
    name, n = f"changed{w.type}Keys", w.number
    code = f"(Object.keys(before) as (keyof {w.type})[]).filter((key) => before[key] !== after[key])"
    words = "returns the keys whose values differ, in the order of `before`"
    checks: Checks = [(f"{name}(rows[0], {{ ...rows[0], {n}: -1 }})", [n]), (f"{name}(rows[0], rows[0])", [])]
    return Tool(name, f"(before: {w.type}, after: {w.type})", f"(keyof {w.type})[]", words, code, checks)


def freeze(w: World, _: Random) -> Tool:
    """A frozen copy."""
    name, words = f"freeze{w.type}", "returns a frozen copy and leaves the argument alone"
    checks: Checks = [(f"{name}(rows[0])", w.records[0]), (f"Object.isFrozen({name}(rows[0]))", True)]
    checks.append(("Object.isFrozen(rows[0])", False))
    return Tool(name, f"(item: {w.type})", f"Readonly<{w.type}>", words, "Object.freeze({ ...item })", checks)


CHANGES: list[Callable[[World, Random], Tool]] = [
    change, change, patch, patch_by_label, remove, narrow, without, describe, validate, value_of, set_value, defaults,
    changed_keys, freeze,
]  # fmt: skip
