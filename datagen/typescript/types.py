"""Rows about types: guards, enums, unions of strings."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from datagen.json.domains import Domain, Field, Json, key_of
from datagen.typescript.case import (
    UNDEFINED,
    Case,
    Checks,
    Raw,
    ask,
    assertions,
    declare,
    draw_record,
    fields_in_words,
    interface,
    literal,
    pascal,
    type_of,
)

KINDS = ("code", "title", "person", "city", "date", "int", "num", "bool", "some", "ints")
NARROWED = (
    'if (typeof value !== "object" || value === null) return false;\nconst record = value as Record<string, unknown>;\n'
)


def _test_of_field(field: Field) -> str:
    key = f"record.{key_of(field.words, 'camel')}"
    if field.kind.name in ("some", "ints"):
        inner = "string" if field.kind.name == "some" else "number"
        return f'Array.isArray({key}) && {key}.every((entry) => typeof entry === "{inner}")'
    return f'typeof {key} === "{type_of(field)}"'


def _bad(record: dict[str, Json]) -> list[Json]:
    """Values that a guard refuses: a key is missing, null, of another type, or holds an item of another type."""
    keys = list(record)
    bad: list[Json] = [{key: record[key] for key in keys[1:]}, {**record, keys[-1]: None}, None, "text", 7, []]
    for key, value in record.items():
        others: list[Json] = [True, 7, "text", [], ["text"], [7], None]
        bad += [{**record, key: other} for other in others if _typed(other) != _typed(value)]
        bad.append({other: record[other] for other in keys if other != key})
        if isinstance(value, list) and value:
            bad += [{**record, key: [*value, not_one]} for not_one in (True, None)]
            bad.append({**record, key: value[0]})
    return bad


def _typed(value: Json) -> str:
    """The type of a value as a guard tells it; that of an empty list fits any."""
    if isinstance(value, list):
        return f"{_typed(value[0])}[]" if value else "[]"
    return {bool: "boolean", int: "number", float: "number", str: "string"}.get(type(value), "null")


def guard(domain: Domain, rng: Random) -> Case:
    """A type guard over the fields of an interface."""
    fields, name = rng.sample(domain.of(*KINDS), rng.randint(2, 3)), pascal(domain)
    record = draw_record(fields, rng)
    tests = " &&\n  ".join(map(_test_of_field, fields))
    text = f"Declare an interface `{name}` with {fields_in_words(fields)}. Write a type guard "
    text += f"`is{name}(value: unknown): value is {name}` that checks the type of every property."
    output = f"{interface(name, fields)}\n\n"
    output += declare(f"is{name}", "(value: unknown)", f"value is {name}", f"{NARROWED}return (\n  {tests}\n);")
    checks: Checks = [(f"is{name}({literal(record)})", True)]
    lists = [key for key, value in record.items() if isinstance(value, list)]
    checks += [(f"is{name}({literal({**record, key: []})})", True) for key in lists]
    bad = [
        value for value in _bad(record) if not (isinstance(value, dict) and any(value.get(key) == [] for key in lists))
    ]
    checks += [(f"is{name}({code})", False) for code in dict.fromkeys(literal(value) for value in bad)]
    group = " | ".join(["guard", domain.noun, *sorted(field.words for field in fields)])
    return Case("types", group, text, output, assertions(checks))


@dataclass(frozen=True)
class Options:
    """A closed set of options of a domain: the parameter, the type name, the options, and how TypeScript names them."""

    key: str
    name: str
    options: list[str]
    members: list[str]


@dataclass(frozen=True)
class Part:
    """A function over options, with what stands before it."""

    name: str
    head: str
    result: str
    words: str
    body: str
    checks: Checks
    before: str = ""


def _options(domain: Domain, rng: Random) -> Options:
    field = rng.choice(domain.of("one"))
    key, name = key_of(field.words, "camel"), pascal(domain) + key_of(field.words, "pascal")
    options = field.kind.schema["enum"]
    return Options(key, name, options, [key_of(option.replace("-", " "), "pascal") for option in options])


def _next(o: Options, _: Random) -> Part:
    members = [f"{o.name}.{member}" for member in o.members]
    body = f"const order = [{', '.join(members)}];\nreturn order[(order.indexOf({o.key}) + 1) % order.length];"
    name, words = f"next{o.name}", "returns the next member in order, the first after the last"
    checks: Checks = [(f"{name}({a})", Raw(b)) for a, b in zip(members, members[1:] + members[:1], strict=True)]
    return Part(name, f"({o.key}: {o.name})", o.name, words, body, checks)


def _label(o: Options, rng: Random) -> Part:
    labels = rng.choice([[f(option) for option in o.options] for f in (str.upper, str.capitalize, "the {}".format)])
    pairs = list(zip(o.members, labels, strict=True))
    cases = "\n".join(f"  case {o.name}.{member}:\n    return {literal(label)};" for member, label in pairs)
    words = f"uses a switch to return {', '.join(map(literal, labels))} for the members in order"
    checks: Checks = [(f"{o.key}Label({o.name}.{member})", label) for member, label in pairs]
    body = f"switch ({o.key}) {{\n{cases}\n}}"
    return Part(f"{o.key}Label", f"({o.key}: {o.name})", "string", words, body, checks)


def _read(o: Options, _: Random) -> Part:
    name, words = f"parse{o.name}", "returns the member with that value, undefined for any other text"
    body = f"Object.values({o.name}).find((member) => member === text)"
    pairs = zip(o.options, o.members, strict=True)
    checks: Checks = [(f"{name}({literal(option)})", Raw(f"{o.name}.{member}")) for option, member in pairs]
    return Part(name, "(text: string)", f"{o.name} | undefined", words, body, [*checks, (f'{name}("?")', UNDEFINED)])


def enumeration(domain: Domain, rng: Random) -> Case:
    """A string or number enum and a function over it."""
    o, numeric, start = _options(domain, rng), rng.random() < 0.3, rng.choice([0, 1, 10])
    values = [start + i if numeric else option for i, option in enumerate(o.options)]
    lines = [f"{member} = {literal(value)}" for member, value in zip(o.members, values, strict=True)]
    part = rng.choice([_next, _label] if numeric else [_next, _label, _read])(o, rng)
    text = f"Declare an enum `{o.name}` with {', '.join(f'`{line}`' for line in lines)}. "
    text += ask(f"{part.name}{part.head}: {part.result}", part.words, rng)
    output = f"enum {o.name} {{\n" + "\n".join(f"  {line}," for line in lines) + "\n}\n\n"
    output += declare(part.name, part.head, part.result, part.body)
    group = " | ".join([part.name, "enum", *lines])
    told = (f"[{', '.join(f'{o.name}.{member}' for member in o.members)}]", values)
    return Case("types", group, text, output, assertions([*part.checks, told]))


def _weight(o: Options, rng: Random) -> Part:
    numbers = {option: rng.randint(1, 40) for option in o.options}
    shown = ", ".join(f"{number} for {option}" for option, number in numbers.items())
    words = f"looks the value up in a const of type `Record<{o.name}, number>`: {shown}"
    before = f"const weights: Record<{o.name}, number> = {literal(numbers)};\n\n"
    checks: Checks = [(f"{o.key}Weight({literal(option)})", number) for option, number in numbers.items()]
    return Part(f"{o.key}Weight", f"({o.key}: {o.name})", "number", words, f"weights[{o.key}]", checks, before)


def _member(o: Options, _: Random) -> Part:
    before = f"const options: readonly {o.name}[] = {literal(o.options)};\n\n"
    checks: Checks = [(f"is{o.name}({literal(option)})", True) for option in o.options]
    wrong = ["?", "", o.options[0].upper(), o.options[-1] + " "]
    checks += [(f"is{o.name}({literal(text)})", False) for text in wrong]
    body = "(options as readonly string[]).includes(value)"
    words = "is a type guard over an array of all the options"
    return Part(f"is{o.name}", "(value: string)", f"value is {o.name}", words, body, checks, before)


def _count(o: Options, _: Random) -> Part:
    zeros, (first, second) = dict.fromkeys(o.options, 0), o.options[:2]
    body = f"const counts: Record<{o.name}, number> = {literal(zeros)};\n"
    body += "for (const value of values) counts[value] += 1;\nreturn counts;"
    name, words = f"count{o.name}", "counts how often each option occurs, 0 included"
    checks: Checks = [(f"{name}({literal([first, second, first])})", {**zeros, first: 2, second: 1})]
    head, result = f"(values: {o.name}[])", f"Record<{o.name}, number>"
    checks += [(f"{name}([])", zeros), (f"{name}({literal(o.options)})", dict.fromkeys(o.options, 1))]
    return Part(name, head, result, words, body, checks)


def _others(o: Options, _: Random) -> Part:
    name, words = f"other{o.name}s", "returns all options but the given one, in order"
    body = f"const options: {o.name}[] = {literal(o.options)};\nreturn options.filter((option) => option !== {o.key});"
    checks: Checks = [
        (f"{name}({literal(option)})", [other for other in o.options if other != option]) for option in o.options
    ]
    return Part(name, f"({o.key}: {o.name})", f"{o.name}[]", words, body, checks)


def union(domain: Domain, rng: Random) -> Case:
    """A union of strings and a function over it."""
    o = _options(domain, rng)
    typed, part = (
        f"type {o.name} = {' | '.join(map(literal, o.options))};",
        rng.choice([_weight, _member, _count, _others])(o, rng),
    )
    text = f"Declare the union type `{o.name}` of {', '.join(map(literal, o.options))}. "
    text += ask(f"{part.name}{part.head}: {part.result}", part.words, rng)
    output = f"{typed}\n\n{part.before}" + declare(part.name, part.head, part.result, part.body)
    return Case("types", " | ".join([part.name, "union", *o.options]), text, output, assertions(part.checks))


TYPES: list[Callable[[Domain, Random], Case]] = [guard, enumeration, union]
