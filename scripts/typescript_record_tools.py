"""Rows for what else is done to typed records: group, index, change, summarise, compare, check."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from json_domains import Domain
from typescript_case import UNDEFINED, Case, Checks, a_map, literal, plural
from typescript_records import Record, World, case_of, reduced, setup_of, world


@dataclass(frozen=True)
class Tool:
    """A function over records: all a row needs; `$` in texts has been filled already."""

    name: str
    head: str
    result: str
    words: str
    body: str
    checks: Checks


def _groups(w: World, value: Callable[[list[Record]], Any]) -> dict[str, Any]:
    names = dict.fromkeys(record[w.choice] for record in w.records)
    return {name: value([r for r in w.records if r[w.choice] == name]) for name in names}


def group_by(w: World, rng: Random) -> Tool:
    """Records by choice, as a Map or a plain object."""
    c, items, groups = w.choice, w.many, _groups(w, list)
    if rng.random() < 0.5:
        body = f"const groups = new Map<string, {w.type}[]>();\nfor (const item of {items}) {{\n"
        body += f"  const group = groups.get(item.{c});\n  if (group) group.push(item);\n  else groups.set(item.{c}, [item]);\n}}\nreturn groups;"
        return Tool(f"group{w.Many}By{w.cap(c)}", f"({items}: {w.type}[])", f"Map<string, {w.type}[]>",
                    f"groups {plural(w.noun)} by `{c}` in a Map", body, [(f"group{w.Many}By{w.cap(c)}(rows)", a_map(groups))])
    body = f"const groups: Record<string, {w.type}[]> = {{}};\nfor (const item of {items}) {{\n"
    body += f"  (groups[item.{c}] ??= []).push(item);\n}}\nreturn groups;"
    return Tool(f"{w.many}By{w.cap(c)}", f"({items}: {w.type}[])", f"Record<string, {w.type}[]>",
                f"groups {plural(w.noun)} by `{c}` into a plain object of arrays", body, [(f"{w.many}By{w.cap(c)}(rows)", groups)])


def tally(w: World, rng: Random) -> Tool:
    """Counts or totals per choice."""
    c, n = w.choice, w.number
    added, what, value = rng.choice([
        ("1", f"how many {plural(w.noun)} each `{c}` has", len),
        (f"item.{n}", f"the total `{n}` of each `{c}`", lambda rows: sum(row[n] for row in rows)),
    ])  # fmt: skip
    name = f"{'count' if added == '1' else 'total' + w.cap(n)}By{w.cap(c)}"
    body = f"const result = new Map<string, number>();\nfor (const item of {w.many}) {{\n"
    body += f"  result.set(item.{c}, (result.get(item.{c}) ?? 0) + {added});\n}}\nreturn result;"
    return Tool(name, f"({w.many}: readonly {w.type}[])", "Map<string, number>", f"returns a Map with {what}", body,
                [(f"{name}(rows)", a_map(_groups(w, value))), (f"{name}([])", a_map({}))])


def index(w: World, rng: Random) -> Tool:
    """A Map from label to record or number."""
    k, n = w.label, w.number
    if rng.random() < 0.5:
        name = f"index{w.Many}"
        return Tool(name, f"({w.many}: {w.type}[])", f"Map<string, {w.type}>", f"returns a Map from each `{k}` to its {w.noun}",
                    f"new Map({w.many}.map((item) => [item.{k}, item]))", [(f"{name}(rows)", a_map({r[k]: r for r in w.records}))])
    name = f"{n}By{w.cap(k)}"
    return Tool(name, f"({w.many}: {w.type}[])", "Record<string, number>", f"returns an object that maps each `{k}` to its `{n}`",
                f"Object.fromEntries({w.many}.map((item) => [item.{k}, item.{n}]))", [(f"{name}(rows)", {r[k]: r[n] for r in w.records})])


def find(w: World, rng: Random) -> Tool:
    """One record by its label, with undefined, null or an error where there is none."""
    k, hit = w.label, w.records[rng.randrange(4)]
    name = f"find{w.type}"
    head, call = f"({w.many}: {w.type}[], {k}: string)", f"{name}(rows, {literal(hit[k])})"
    code = f"{w.many}.find((item) => item.{k} === {k})"
    if rng.random() < 0.5:
        return Tool(name, head, f"{w.type} | undefined", f"returns the {w.noun} with the given `{k}`, undefined when there is none",
                    code, [(call, hit), (f'{name}(rows, "none")', UNDEFINED)])
    return Tool(name, head, f"{w.type} | null", f"returns the {w.noun} with the given `{k}`, or null",
                f"{code} ?? null", [(call, hit), (f'{name}(rows, "none")', None)])


def change(w: World, rng: Random) -> Tool:
    """A copy of one record with something changed."""
    n, f, row = w.number, w.flag, w.records[0]
    number, on = row.get(n, 0), row.get(f)
    step = rng.randint(2, 9)
    name, head, words, body, result = rng.choice([
        (f"toggle{w.cap(f)}", f"(item: {w.type})", f"returns a copy of the {w.noun} with `{f}` negated", f"({{ ...item, {f}: !item.{f} }})", {**row, f: not on}),
        (f"raise{w.cap(n)}", f"(item: Readonly<{w.type}>)", f"returns a copy with `{n}` raised by {step}", f"({{ ...item, {n}: item.{n} + {step} }})", {**row, n: number + step}),
        (f"double{w.cap(n)}", f"(item: {w.type})", f"returns a new {w.noun} with twice the `{n}`; the argument stays as it is", f"({{ ...item, {n}: item.{n} * 2 }})", {**row, n: number * 2}),
        (f"clear{w.cap(n)}", f"(item: {w.type})", f"returns a copy whose `{n}` is 0", f"({{ ...item, {n}: 0 }})", {**row, n: 0}),
    ])  # fmt: skip
    checks: Checks = [(f"{name}(rows[0])", result), ("rows[0]", row)]
    return Tool(name, head, w.type, words, body, checks)


def patch(w: World, rng: Random) -> Tool:
    """A Partial laid over one record, or over the one with a label."""
    n, k, first, second = w.number, w.label, *w.records[:2]
    value = rng.randint(100, 999)
    if rng.random() < 0.5:
        name = f"update{w.type}"
        return Tool(name, f"(item: {w.type}, changes: Partial<{w.type}>)", w.type, "returns a copy of `item` with `changes` applied",
                    "({ ...item, ...changes })", [(f"{name}(rows[0], {{ {n}: {value} }})", {**first, n: value}), (f"{name}(rows[1], {{}})", second)])
    name = f"patch{w.Many}"
    body = f"{w.many}.map((item) => (item.{k} === {k} ? {{ ...item, ...changes }} : item))"
    return Tool(name, f"({w.many}: {w.type}[], {k}: string, changes: Partial<{w.type}>)", f"{w.type}[]",
                f"applies `changes` to the {w.noun} with the given `{k}` and returns a new array", body,
                [(f"{name}(rows, {literal(second[k])}, {{ {n}: {value} }})", [first, {**second, n: value}, *w.records[2:]])])


def split(w: World, rng: Random) -> Tool:
    """Two arrays, by the flag or by a limit."""
    f, n = w.flag, w.number
    name, head, test, words, call, yes = rng.choice([
        (f"partitionBy{w.cap(f)}", f"({w.many}: {w.type}[])", f"item.{f}", f"whose `{f}` is true", "rows", lambda r: r[f]),
        (f"splitBy{w.cap(n)}", f"({w.many}: {w.type}[], limit: number)", f"item.{n} >= limit", f"with `{n}` of at least `limit`",
         f"rows, {literal(w.limit)}", lambda r: r[n] >= w.limit),
    ])  # fmt: skip
    body = f"const yes: {w.type}[] = [];\nconst no: {w.type}[] = [];\nfor (const item of {w.many}) ({test} ? yes : no).push(item);\nreturn [yes, no];"
    parts = [[r for r in w.records if yes(r)], [r for r in w.records if not yes(r)]]
    return Tool(name, head, f"[{w.type}[], {w.type}[]]", f"returns a pair: the {plural(w.noun)} {words}, and the rest", body, [(f"{name}({call})", parts)])


def remove(w: World, rng: Random) -> Tool:
    """The array without some records."""
    k, n, gone = w.label, w.number, w.records[rng.randrange(4)]
    if rng.random() < 0.5:
        name = f"remove{w.type}"
        return Tool(name, f"({w.many}: readonly {w.type}[], {k}: string)", f"{w.type}[]", f"returns the {plural(w.noun)} without the one with that `{k}`",
                    f"{w.many}.filter((item) => item.{k} !== {k})", [(f"{name}(rows, {literal(gone[k])})", [r for r in w.records if r != gone])])
    name = f"top{w.Many}"
    best = sorted(w.records, key=lambda r: r[n], reverse=True)
    return Tool(name, f"({w.many}: readonly {w.type}[], count: number)", f"{w.type}[]", f"returns the `count` {plural(w.noun)} with the largest `{n}`, largest first",
                f"[...{w.many}].sort((a, b) => b.{n} - a.{n}).slice(0, count)", [(f"{name}(rows, 2)", best[:2]), (f"{name}(rows, 0)", [])])


def narrow(w: World, rng: Random) -> Tool:
    """A Pick or an Omit of the record."""
    k, n, row = w.label, w.number, w.records[0]
    if rng.random() < 0.5:
        name = f"summarize{w.type}"
        return Tool(name, f"(item: {w.type})", f'Pick<{w.type}, "{k}" | "{n}">', f"returns only `{k}` and `{n}` of the {w.noun}",
                    f"({{ {k}: item.{k}, {n}: item.{n} }})", [(f"{name}(rows[0])", {k: row[k], n: row[n]})])
    name = f"without{w.cap(n)}"
    body = f"const {{ {n}, ...rest }} = item;\nreturn rest;"
    return Tool(name, f"(item: {w.type})", f'Omit<{w.type}, "{n}">', f"returns a copy without `{n}`", body,
                [(f"{name}(rows[0])", {key: value for key, value in row.items() if key != n})])


def describe(w: World, rng: Random) -> Tool:
    """One record as a string with a conditional part."""
    k, n, f = w.label, w.number, w.flag
    yes, no = rng.choice([("yes", "no"), ("on", "off"), ("+", "-")])
    name, code, made = rng.choice([
        (f"describe{w.type}", f'`${{item.{k}}} (${{item.{n}}}): ${{item.{f} ? "{yes}" : "{no}"}}`', lambda r: f"{r[k]} ({literal(r[n])}): {yes if r[f] else no}"),
        (f"format{w.type}", f'`[${{item.{f} ? "{yes}" : "{no}"}}] ${{item.{k}}} - ${{item.{n}}}`', lambda r: f"[{yes if r[f] else no}] {r[k]} - {literal(r[n])}"),
    ])  # fmt: skip
    shape = f"`{k} ({n}): {yes}`" if name.startswith("d") else f"`[{yes}] {k} - {n}`"
    return Tool(name, f"(item: {w.type})", "string", f'returns a string of the form {shape}, with "{no}" instead of "{yes}" when `{f}` is false', code,
                [(f"{name}(rows[{i}])", made(w.records[i])) for i in range(3)])


def validate(w: World, rng: Random) -> Tool:
    """The complaints about one record."""
    k, n, limit = w.label, w.number, rng.randint(1, 9)
    name = rng.choice(["validate", "check"]) + w.type
    body = f'const errors: string[] = [];\nif (item.{k} === "") errors.push("{k} is empty");\n'
    body += f'if (item.{n} < {limit}) errors.push("{n} is too small");\nreturn errors;'
    words = f'returns the errors of a {w.noun}: "{k} is empty" for an empty `{k}`, "{n} is too small" for a `{n}` below {limit}'
    row = "{ ...rows[0], "
    return Tool(name, f"(item: {w.type})", "string[]", words, body, [
        (f"{name}({row}{n}: 50 }})", []), (f"{name}({row}{n}: 0 }})", [f"{n} is too small"]),
        (f'{name}({row}{n}: {limit}, {k}: "" }})', [f"{k} is empty"]),
    ])  # fmt: skip


def compare(w: World, rng: Random) -> Tool:
    """A comparator for sort."""
    n, c, f = w.number, w.choice, w.flag
    name, body, words, key = rng.choice([
        (f"by{w.cap(c)}Then{w.cap(n)}", f"a.{c}.localeCompare(b.{c}) || a.{n} - b.{n}", f"by `{c}` (localeCompare), then by `{n}` ascending",
         lambda r: (r[c].lower(), r[n])),
        (f"{f}First", f"Number(b.{f}) - Number(a.{f}) || a.{n} - b.{n}", f"with `{f}` true first, then by `{n}` ascending", lambda r: (not r[f], r[n])),
        (f"by{w.cap(n)}Descending", f"b.{n} - a.{n}", f"by `{n}` descending", lambda r: -r[n]),
    ])  # fmt: skip
    return Tool(name, f"(a: {w.type}, b: {w.type})", "number", f"is a comparator for Array.prototype.sort that orders {plural(w.noun)} {words}", body,
                [(f"[...rows].sort({name})", sorted(w.records, key=key))])


def question(w: World, rng: Random) -> Tool:
    """A yes or no over all records, the limit a parameter."""
    n, f, limit = w.number, w.flag, literal(w.limit)
    name, code, words, yes = rng.choice([
        (f"anyOver{w.cap(n)}", f"{w.many}.some((item) => item.{n} > limit)", f"tells whether any {w.noun} has a `{n}` above `limit`", lambda v, x: any(r[n] > x for r in v)),
        (f"allWithin{w.cap(n)}", f"{w.many}.every((item) => item.{n} <= limit)", f"tells whether every `{n}` is at most `limit`", lambda v, x: all(r[n] <= x for r in v)),
        (f"every{w.cap(f)}Over", f"{w.many}.every((item) => !item.{f} || item.{n} > limit)", f"tells whether every {w.noun} with `{f}` true has a `{n}` above `limit`",
         lambda v, x: all(not r[f] or r[n] > x for r in v)),
    ])  # fmt: skip
    return Tool(name, f"({w.many}: {w.type}[], limit: number)", "boolean", words, code,
                [(f"{name}(rows, {x})", yes(w.records, y)) for x, y in ((limit, w.limit), ("-1", -1), ("999999", 999999))])


TOOLS: Sequence[Callable[[World, Random], Tool]] = [
    group_by, tally, index, find, change, patch, split, remove, narrow, describe, validate, compare, question,
]  # fmt: skip


def tool(domain: Domain, rng: Random) -> Case:
    """One row; fields that neither code nor tests name stay out of the type."""
    w = world(domain, rng)
    maker, seed = rng.choice(TOOLS), rng.getrandbits(32)
    first = maker(w, Random(seed))
    w = reduced(w, f"{first.body} {first.head} {first.result} {first.words}", rng)
    made = maker(w, Random(seed))
    return case_of(w, "record tool", made.name, made.head, made.result, made.words, made.body, made.checks, rng, setup_of(w))
