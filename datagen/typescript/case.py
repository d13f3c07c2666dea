"""What the TypeScript families share: the case, values as literals, checks for the tests, asking and declaring."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from datagen.json.domains import Domain, Field, Json, key_of

Value = Any
Checks = list[tuple[str, Value]]


@dataclass(frozen=True)
class Case:
    """A row before it is verified; rows of one group stand on one side of the split."""

    family: str
    group: str
    instruction: str
    output: str
    test: str

    def row(self) -> dict[str, str]:
        """The row as it is written."""
        return {"instruction": self.instruction, "output": self.output, "test": self.test}


@dataclass(frozen=True)
class Raw:
    """TypeScript text that stands for a value: an enum member, a Map, undefined, a function; and the value in Python."""

    text: str
    value: Any = None


@dataclass(frozen=True)
class Throws:
    """The outcome of a call that throws an error of a class."""

    error: str = "Error"


UNDEFINED = Raw("undefined")
DONE = Raw("")  # a statement that is only run


def literal(value: Value) -> str:
    """The value as a TypeScript literal."""
    if isinstance(value, Raw):
        return value.text
    if isinstance(value, dict):
        inner = ", ".join(
            f"{key if key.isidentifier() else json.dumps(key)}: {literal(item)}" for key, item in value.items()
        )
        return f"{{ {inner} }}" if inner else "{}"
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(literal(item) for item in value)}]"
    if isinstance(value, float) and value == math.floor(value):
        return str(int(value))
    return json.dumps(value, ensure_ascii=False)


def a_map(pairs: dict[Any, Value]) -> Raw:
    """A Map with these entries."""
    return Raw(f"new Map({literal([[key, item] for key, item in pairs.items()]) if pairs else ''})", pairs)


def a_set(items: Sequence[Value]) -> Raw:
    """A Set of these items."""
    return Raw(f"new Set({literal(list(items)) if items else ''})", list(items))


def _check(expression: str, value: Value, number: int) -> str:
    if value is DONE:
        return f"{expression};"
    if isinstance(value, Throws):
        return f"throws(() => {expression}, {value.error});"
    if (isinstance(value, Raw) and not value.text.startswith("new ")) or (
        isinstance(value, (bool, int, float, str)) and "(" in expression
    ):
        return f'if ({expression} !== {literal(value)}) throw new Error("check {number} failed");'
    return f"deepStrictEqual({expression}, {literal(value)});"


def assertions(checks: Checks, setup: Sequence[str] = ()) -> str:
    """The module that judges an answer; an expression without a call is never narrowed by its check."""
    lines = [*setup, *(_check(expression, value, i) for i, (expression, value) in enumerate(checks, 1))]
    used = [name for name in ("deepStrictEqual", "throws", "rejects") if any(f"{name}(" in line for line in lines)]
    head = [f'import {{ {", ".join(used)} }} from "node:assert";'] if used else []
    return "\n".join([*head, *lines])


ASKS = [
    "Write a TypeScript function `{s}` that {w}.",
    "In TypeScript, write `{s}`. It {w}.",
    "Implement `{s}`, which {w}.",
]


def ask(signature: str, words: str, rng: Random) -> str:
    """One of the ways to ask for a function."""
    return rng.choice(ASKS).format(s=signature, w=words)


def declare(name: str, head: str, result: str, body: str) -> str:
    """A function declaration; a body without `return` is one expression."""
    bare = body[1:-1] if body.startswith("({") and body.endswith("})") else body
    lines = body if "return " in body else f"return {bare};"
    indented = "\n".join(f"  {line}" if line else line for line in lines.split("\n"))
    return f"function {name}{head}: {result} {{\n{indented}\n}}"


def type_of(field: Field) -> str:
    """The TypeScript type of a field."""
    name = field.kind.name
    if name == "one":
        return " | ".join(json.dumps(option) for option in field.kind.schema["enum"])
    return {"int": "number", "num": "number", "bool": "boolean", "some": "string[]", "ints": "number[]"}.get(
        name, "string"
    )


def interface(name: str, fields: Sequence[Field]) -> str:
    """The interface of these fields."""
    lines = [f"  {key_of(field.words, 'camel')}: {type_of(field)};" for field in fields]
    return "\n".join([f"interface {name} {{", *lines, "}"])


def fields_in_words(fields: Sequence[Field]) -> str:
    """`name: type` of every field, for the instruction."""
    return ", ".join(f"`{key_of(field.words, 'camel')}: {type_of(field)}`" for field in fields)


def draw_value(field: Field, rng: Random) -> Json:
    """A value of the field whose sums are exact: no fraction but a half."""
    value = field.kind.make(rng)
    return int(value * 2) / 2 if field.kind.name == "num" else value


def draw_record(fields: Sequence[Field], rng: Random) -> dict[str, Json]:
    """A record of these fields."""
    return {key_of(field.words, "camel"): draw_value(field, rng) for field in fields}


def pascal(domain: Domain) -> str:
    """The name of the domain's interface."""
    return key_of(domain.noun, "pascal")


def plural(noun: str) -> str:
    """The plural of a noun of the table."""
    if noun.endswith(("s", "x", "ch")):
        return noun + "es"
    return noun[:-1] + "ies" if noun.endswith("y") and noun[-2] not in "aeiou" else noun + "s"
