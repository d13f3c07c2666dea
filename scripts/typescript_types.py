"""Rows about types: guards, assertions, enums, unions with labels, keyed access, defaults."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from json_domains import Domain, Field, key_of
from typescript_case import UNDEFINED, Case, Checks, Raw, Throws, ask, declare, draw_record, fields_in_words, interface, literal, pascal, test_of, type_of
from typescript_records import case_of, reduced, setup_of, world

KINDS = ("code", "title", "person", "city", "date", "int", "num", "bool", "some", "ints")


def _test_of_field(field: Field, value: str) -> str:
    key = f"{value}.{key_of(field.words, 'camel')}"
    if field.kind.name in ("some", "ints"):
        inner = "string" if field.kind.name == "some" else "number"
        return f'Array.isArray({key}) && {key}.every((entry) => typeof entry === "{inner}")'
    return f'typeof {key} === "{type_of(field)}"'


def _fields(domain: Domain, low: int, high: int, rng: Random) -> list[Field]:
    return rng.sample(domain.of(*KINDS), rng.randint(low, high))


def guard(domain: Domain, rng: Random) -> Case:
    """A type guard, or a function that asserts."""
    fields, name = _fields(domain, 2, 3, rng), pascal(domain)
    record = draw_record(fields, rng)
    tests = " &&\n    ".join(_test_of_field(field, "record") for field in fields)
    lines = 'if (typeof value !== "object" || value === null) return false;\nconst record = value as Record<string, unknown>;\n'
    typed = interface(name, fields)
    told = f"an interface `{name}` with {fields_in_words(fields)}"
    keys = list(record)
    bad = [{key: record[key] for key in keys[1:]}, {**record, keys[-1]: None}, None, "text", 7]
    if rng.random() < 0.65:
        words = rng.choice(["checks every property", "is true only for objects whose properties all have the right type", "narrows unknown values"])
        body = f"{lines}return (\n    {tests}\n  );".replace("\n    ", "\n  ").replace("\n  );", "\n);")
        instruction = f"Declare {told} and " + rng.choice([
            f"a type guard `is{name}(value: unknown): value is {name}` that {words}.",
            f"write `is{name}`, a type guard from unknown that {words}.",
        ])  # fmt: skip
        output = f"{typed}\n\n" + declare(f"is{name}", "(value: unknown)", f"value is {name}", body, "function")
        checks: Checks = [(f"is{name}({literal(record)})", True), *((f"is{name}({literal(value)})", False) for value in bad)]
        return Case("types", domain.noun, instruction, output, test_of(checks))
    first = keys[0]
    parse = f"parse{name}"
    body = f"{lines}return record;".replace("return false", f'throw new TypeError("not a {domain.noun}")')
    body = body.replace("return record;", f'if (!(\n  {tests}\n)) throw new TypeError("not a {domain.noun}");\nreturn value as {name};').replace("\n    ", "\n  ")
    instruction = f"Declare {told}. " + ask(f"{parse}(value: unknown): {name}", f'returns the value when it has these properties and throws TypeError("not a {domain.noun}") otherwise', rng)
    output = f"{typed}\n\n" + declare(parse, "(value: unknown)", name, body, "function")
    outcomes: Checks = [(f"{parse}({literal(record)}).{first}", record[first]), *((f"{parse}({literal(value)})", Throws()) for value in bad)]
    return Case("types", domain.noun, instruction, output, test_of(outcomes))


def _members(domain: Domain, rng: Random) -> tuple[str, str, list[str]]:
    field = rng.choice(domain.of("one"))
    return key_of(field.words, "camel"), pascal(domain) + key_of(field.words, "pascal"), field.kind.schema["enum"]


def enumeration(domain: Domain, rng: Random) -> Case:
    """A string or number enum and a function over it."""
    key, name, options = _members(domain, rng)
    ids = [key_of(option.replace("-", " "), "pascal") for option in options]
    numeric = rng.random() < 0.3
    start = rng.choice([0, 1, 10])
    values = [start + i if numeric else option for i, option in enumerate(options)]
    lines = ",\n".join(f"  {a} = {literal(b)}" for a, b in zip(ids, values, strict=True))
    told = f"Declare an enum `{name}` with {', '.join(f'`{a} = {literal(b)}`' for a, b in zip(ids, values, strict=True))}."
    members = [f"{name}.{member}" for member in ids]
    forms: list[tuple[str, str, str, str, str, Checks]] = []
    order = f"const order = [{', '.join(members)}];\n"
    following = [*members[1:], members[0]]
    forms.append((f"next{name}", f"({key}: {name})", name, "returns the next member in order, the first after the last",
                  f"{order}return order[(order.indexOf({key}) + 1) % order.length];",
                  [(f"next{name}({a})", Raw(b)) for a, b in zip(members, following, strict=True)]))
    cases = "\n".join(f"  case {a}:\n    return {literal(option.upper())};" for a, option in zip(members, options, strict=True))
    labels = ", ".join(f'"{option.upper()}"' for option in options)
    forms.append((f"{key}Label", f"({key}: {name})", "string", f"uses a switch to return {labels} for the members in order",
                  f"switch ({key}) {{\n{cases}\n}}", [(f"{key}Label({a})", option.upper()) for a, option in zip(members, options, strict=True)]))
    if not numeric:
        forms.append((f"parse{name}", "(text: string)", f"{name} | undefined", "returns the member with that value, undefined for any other text",
                      f"Object.values({name}).find((member) => member === text)",
                      [*((f'parse{name}("{option}")', Raw(a)) for a, option in zip(members, options, strict=True)), (f'parse{name}("?")', UNDEFINED)]))
    function, head, result, words, body, checks = rng.choice(forms)
    output = f"enum {name} {{\n{lines},\n}}\n\n" + declare(function, head, result, body, "function")
    return Case("types", domain.noun, f"{told} " + ask(f"{function}{head}: {result}", words, rng), output, test_of(checks))


def union(domain: Domain, rng: Random) -> Case:
    """A union of strings with a Record, a guard or a rank."""
    key, name, options = _members(domain, rng)
    typed = f"type {name} = {' | '.join(literal(option) for option in options)};"
    numbers = [rng.randint(1, 40) for _ in options]
    table, zeros = literal(dict(zip(options, numbers, strict=True))), dict.fromkeys(options, 0)
    told = rng.choice([f"Declare the union type `{name}` of {', '.join(literal(o) for o in options)}.", f"Given `{typed}`, declare it first."])
    shown = ", ".join(f"{n} for {o}" for o, n in zip(options, numbers, strict=True))
    function, head, result, words, body, const, checks = rng.choice([
        (f"{key}Weight", f"({key}: {name})", "number", f"looks the value up in a const of type `Record<{name}, number>`: {shown}",
         f"weights[{key}]", f"const weights: Record<{name}, number> = {table};\n\n",
         [(f"{key}Weight({literal(o)})", n) for o, n in zip(options, numbers, strict=True)]),
        (f"is{name}", "(value: string)", f"value is {name}", "is a type guard over an array of all the options",
         "(options as readonly string[]).includes(value)", f"const options: readonly {name}[] = [{', '.join(map(literal, options))}];\n\n",
         [*((f"is{name}({literal(o)})", True) for o in options), (f'is{name}("?")', False), (f'is{name}("")', False)]),
        (f"count{name}", f"(values: {name}[])", f"Record<{name}, number>", "counts how often each option occurs, 0 included",
         f"const counts: Record<{name}, number> = {literal(zeros)};\nfor (const value of values) counts[value] += 1;\nreturn counts;", "",
         [(f"count{name}([{literal(options[0])}, {literal(options[1])}, {literal(options[0])}])", {**zeros, options[0]: 2, options[1]: 1}),
          (f"count{name}([])", zeros)]),
    ])  # fmt: skip
    output = f"{typed}\n\n{const}" + declare(function, head, result, body, "function")
    return Case("types", domain.noun, f"{told} " + ask(f"{function}{head}: {result}", words, rng), output, test_of(checks))


def keyed(domain: Domain, rng: Random) -> Case:
    """keyof, Partial with defaults, Required, Readonly."""
    w = world(domain, rng)
    k, n = w.label, w.number
    w = reduced(w, f"{k} {n}", rng)
    row = w.records[0]
    rest = {key: value for key, value in row.items() if key not in (k, n)}
    filled = {key: "" if key == k else 0 for key in row if key in (k, n)} | rest
    base = ", ".join(f"{key}: {literal(value)}" for key, value in filled.items())
    name, head, result, words, body, checks = rng.choice([
        (f"get{w.type}Value", f"<K extends keyof {w.type}>(item: {w.type}, key: K)", f"{w.type}[K]", "returns the value under `key` with its exact type",
         "item[key]", [(f'get{w.type}Value(rows[0], "{key}")', row[key]) for key in row]),
        (f"pluck{w.type}", f"<K extends keyof {w.type}>(items: {w.type}[], key: K)", f"{w.type}[K][]", "returns the values under `key` of all items",
         "items.map((item) => item[key])", [(f'pluck{w.type}(rows, "{key}")', [r[key] for r in w.records]) for key in (k, n)]),
        (f"make{w.type}", f"(fields: Partial<{w.type}> = {{}})", w.type, f"fills missing fields with these defaults: {base}",
         f"({{ {base}, ...fields }})", [(f"make{w.type}()", filled), (f"make{w.type}({{ {n}: 5 }})", {**filled, n: 5})]),
        (f"changed{w.type}Keys", f"(before: {w.type}, after: {w.type})", f"(keyof {w.type})[]", "returns the keys whose values differ, in the order of `before`",
         f"(Object.keys(before) as (keyof {w.type})[]).filter((key) => before[key] !== after[key])",
         [(f"changed{w.type}Keys(rows[0], {{ ...rows[0], {n}: -1 }})", [n]), (f"changed{w.type}Keys(rows[0], rows[0])", [])]),
        (f"set{w.type}Value", f"<K extends keyof {w.type}>(item: {w.type}, key: K, value: {w.type}[K])", w.type, "returns a copy with `value` under `key`",
         "({ ...item, [key]: value })", [(f'set{w.type}Value(rows[0], "{n}", 77)', {**row, n: 77}), (f'set{w.type}Value(rows[0], "{k}", "x")', {**row, k: "x"})]),
        (f"freeze{w.type}", f"(item: {w.type})", f"Readonly<{w.type}>", "returns a frozen copy and leaves the argument alone",
         "Object.freeze({ ...item })", [(f"freeze{w.type}(rows[0])", row), (f"Object.isFrozen(freeze{w.type}(rows[0]))", True), ("Object.isFrozen(rows[0])", False)]),
    ])  # fmt: skip
    return case_of(w, "types", name, head, result, words, body, checks, rng, setup_of(w))


FORMS: list[Callable[[Domain, Random], Case]] = [guard, guard, enumeration, union, keyed, keyed]


def typed(domain: Domain, rng: Random) -> Case:
    """One row of the family."""
    return rng.choice(FORMS)(domain, rng)
