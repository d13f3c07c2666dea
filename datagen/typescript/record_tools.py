"""Tools that look at an array of records: group, count, index, find, ask, order, take the best."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from datagen.typescript.case import UNDEFINED, a_map, literal, plural
from datagen.typescript.world import Record, Tool, World, cap


def _groups(w: World, value: Callable[[list[Record]], Any]) -> dict[str, Any]:
    names = dict.fromkeys(record[w.choice] for record in w.records)
    return {name: value([r for r in w.records if r[w.choice] == name]) for name in names}


GROUP_OBJECT = """const groups: Record<string, $type[]> = {};
for (const item of $many) {
  (groups[item.$key] ??= []).push(item);
}
return groups;"""


def group_by(w: World, _: Random) -> Tool:
    """Records by choice, as a plain object."""
    body = GROUP_OBJECT.replace("$type", w.type).replace("$many", w.many).replace("$key", w.choice)
    name, words = f"{w.many}By{cap(w.choice)}", f"groups {plural(w.noun)} by `{w.choice}` into a plain object of arrays"
    checks = [(f"{name}(rows)", _groups(w, list))]
    return Tool(name, f"({w.many}: {w.type}[])", f"Record<string, {w.type}[]>", words, body, checks)


def tally(w: World, rng: Random) -> Tool:
    """Counts or totals per choice."""
    c, n, count = w.choice, w.number, rng.random() < 0.5
    pairs = _groups(w, len if count else lambda rows: sum(row[n] for row in rows))
    what = f"how many {plural(w.noun)} each `{c}` has" if count else f"the total `{n}` of each `{c}`"
    name = f"{'count' if count else 'total' + cap(n)}By{cap(c)}"
    body = f"const result = new Map<string, number>();\nfor (const item of {w.many}) {{\n"
    body += (
        f"  result.set(item.{c}, (result.get(item.{c}) ?? 0) + {'1' if count else f'item.{n}'});\n}}\nreturn result;"
    )
    return Tool(name, f"({w.many}: {w.type}[])", "Map<string, number>", f"returns a Map with {what}", body,
                [(f"{name}(rows)", a_map(pairs)), (f"{name}([])", a_map({}))])  # fmt: skip


def index_map(w: World, _: Random) -> Tool:
    """A Map from label to record."""
    k, name = w.label, f"index{w.title}"
    code = f"new Map({w.many}.map((item) => [item.{k}, item]))"
    words = f"returns a Map from each `{k}` to its {w.noun}"
    checks = [(f"{name}(rows)", a_map({r[k]: r for r in w.records}))]
    return Tool(name, f"({w.many}: {w.type}[])", f"Map<string, {w.type}>", words, code, checks)


def index_numbers(w: World, _: Random) -> Tool:
    """A plain object from label to number."""
    k, n, name = w.label, w.number, f"{w.number}By{cap(w.label)}"
    code = f"Object.fromEntries({w.many}.map((item) => [item.{k}, item.{n}]))"
    words = f"returns an object that maps each `{k}` to its `{n}`"
    checks = [(f"{name}(rows)", {r[k]: r[n] for r in w.records})]
    return Tool(name, f"({w.many}: {w.type}[])", "Record<string, number>", words, code, checks)


def find(w: World, rng: Random) -> Tool:
    """One record by its label, undefined where there is none."""
    k, hit, name = w.label, w.records[rng.randrange(4)], f"find{w.type}"
    code, words = (
        f"{w.many}.find((item) => item.{k} === {k})",
        f"returns the {w.noun} with the given `{k}` or undefined",
    )
    checks = [(f"{name}(rows, {literal(hit[k])})", hit), (f'{name}(rows, "none")', UNDEFINED)]
    checks += [(f"{name}(rows, {literal(row[k])})", row) for row in w.records if row != hit]
    return Tool(name, f"({w.many}: {w.type}[], {k}: string)", f"{w.type} | undefined", words, code, checks)


def top(w: World, _: Random) -> Tool:
    """The records with the largest number."""
    n, name = w.number, f"top{w.title}"
    best = sorted(w.records, key=lambda r: r[n], reverse=True)
    words = f"returns the `count` {plural(w.noun)} with the largest `{n}`, largest first"
    code = f"[...{w.many}].sort((a, b) => b.{n} - a.{n}).slice(0, count)"
    checks = [(f"{name}(rows, 2)", best[:2]), (f"{name}([...rows].reverse(), 1)", best[:1]), (f"{name}(rows, 0)", [])]
    checks += [(f"{name}(rows, 9)", best), (f"{name}([...rows].reverse(), 3)", best[:3]), ("rows", w.records)]
    return Tool(name, f"({w.many}: {w.type}[], count: number)", f"{w.type}[]", words, code, checks)


def compare(w: World, rng: Random) -> Tool:
    """A comparator for sort."""
    n, c, f = w.number, w.choice, w.flag
    forms: list[tuple[str, str, str, Callable[[Record], Any]]] = [
        (f"by{cap(c)}Then{cap(n)}", f"a.{c}.localeCompare(b.{c}) || a.{n} - b.{n}",
         f"by `{c}` (localeCompare), then by `{n}` ascending", lambda r: (r[c].lower(), r[n])),
        (f"{f}First", f"Number(b.{f}) - Number(a.{f}) || a.{n} - b.{n}",
         f"with `{f}` true first, then by `{n}` ascending", lambda r: (not r[f], r[n])),
        (f"by{cap(n)}Descending", f"b.{n} - a.{n}", f"by `{n}` descending", lambda r: -r[n]),
    ]  # fmt: skip
    name, body, words, key = rng.choice(forms)
    words = f"is a comparator for Array.prototype.sort that orders {plural(w.noun)} {words}"
    ordered = sorted(w.records, key=key)
    checks = [(f"[...rows].sort({name})", ordered), (f"[...rows].reverse().sort({name})", ordered)]
    return Tool(name, f"(a: {w.type}, b: {w.type})", "number", words, body, checks)


def question(w: World, rng: Random) -> Tool:
    """A yes or no over all records, the limit a parameter."""
    n, f = w.number, w.flag
    forms: list[tuple[str, str, str, Callable[[list[Record], float], bool]]] = [
        (f"anyOver{cap(n)}", f"some((item) => item.{n} > limit)", f"whether any {w.noun} has a `{n}` above `limit`",
         lambda rows, x: any(r[n] > x for r in rows)),
        (f"allWithin{cap(n)}", f"every((item) => item.{n} <= limit)", f"whether every `{n}` is at most `limit`",
         lambda rows, x: all(r[n] <= x for r in rows)),
        (f"every{cap(f)}Over", f"every((item) => !item.{f} || item.{n} > limit)",
         f"whether every {w.noun} with `{f}` true has a `{n}` above `limit`",
         lambda rows, x: all(not r[f] or r[n] > x for r in rows)),
    ]  # fmt: skip
    name, code, words, yes = rng.choice(forms)
    numbers = sorted(r[n] for r in w.records)
    limits = dict.fromkeys([w.limit, -1, 999999, numbers[0], numbers[-1]])
    checks = [(f"{name}(rows, {literal(x)})", yes(w.records, x)) for x in limits]
    checks += [(f"{name}([rows[{i}]], {literal(r[n])})", yes([r], r[n])) for i, r in enumerate(w.records)]
    head = f"({w.many}: {w.type}[], limit: number)"
    return Tool(name, head, "boolean", f"tells {words}", f"{w.many}.{code}", checks)


LOOKS: list[Callable[[World, Random], Tool]] = [
    group_by, tally, index_map, index_numbers, find, top, compare, question,
]  # fmt: skip
