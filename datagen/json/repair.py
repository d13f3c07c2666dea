"""Rows that ask to mend broken JSON: a sound text, broken in one or two ways."""

from __future__ import annotations

import re
from collections.abc import Callable
from random import Random

from datagen.json.case import Case, draw_distinct, group_of, some_fields, write
from datagen.json.domains import Domain, Field, Schema, draw

Break = Callable[[str, Random], str]


def _at(text: str, pattern: str, replacement: str, rng: Random) -> str:
    """Replace one random match; the text unchanged where there is none."""
    matches = list(re.finditer(pattern, text))
    if not matches:
        return text
    match = rng.choice(matches)
    return text[: match.start()] + match.expand(replacement) + text[match.end() :]


PYTHON_WORDS = {"true": "True", "false": "False", "null": "None"}

# What is wrong, and how the text gets it. Only breaks whose repair the text itself determines.
BREAKS: list[tuple[str, Break]] = [
    ("a trailing comma", lambda t, r: _at(t, r"(?<=[\w\"\]}])([}\]])", r",\1", r)),
    ("a missing comma", lambda t, r: _at(t, r",(?=\s*\")", "", r)),
    ("a missing colon", lambda t, r: _at(t, r"\":", '"', r)),
    ("an equals sign instead of a colon", lambda t, r: _at(t, r"\":", '" =', r)),
    ("a semicolon instead of a comma", lambda t, r: _at(t, r",(?=\s*\")", ";", r)),
    ("a doubled comma", lambda t, r: _at(t, r",(?=\s*\")", ",,", r)),
    ("unquoted keys", lambda t, _: re.sub(r"\"([A-Za-z_]\w*)\"(?=:)", r"\1", t)),
    ("one unquoted key", lambda t, r: _at(t, r"\"([A-Za-z_]\w*)\"(?=:)", r"\1", r)),
    ("single quotes", lambda t, _: t.replace('"', "'") if "'" not in t and '\\"' not in t else t),
    ("a key in single quotes", lambda t, r: _at(t, r"\"(\w+)\"(?=:)", r"'\1'", r)),
    ("a key without its closing quote", lambda t, r: _at(t, r"\"(\w+)\"(?=:)", r'"\1', r)),
    ("a string without its closing quote", lambda t, r: _at(t, r"(?<=[^\\:,{\[\s])\"(?=\s*[,}\]])", "", r)),
    ("Python literals", lambda t, _: re.sub(r"(?<=[:,\[ ])(true|false|null)\b", lambda m: PYTHON_WORDS[m[1]], t)),
    ("a missing closing bracket", lambda t, _: t[:-1]),
    ("one closing bracket too many", lambda t, _: t + t[-1]),
    ("a code fence", lambda t, _: f"```json\n{t}\n```"),
]
ASKS = ["Fix this JSON.", "Repair the broken JSON.", "Return valid JSON."]


def sound(domain: Domain, rng: Random) -> tuple[str, list[Field], Schema]:
    """A sound document of the domain: its text, its fields, its schema."""
    if rng.random() < 0.25:
        fields = some_fields(domain, 2, rng, without=("object",))
        records, schema = draw_distinct(fields, 2, rng)
        return write(records), fields, {"type": "array", "items": schema, "minItems": len(records)}
    fields = some_fields(domain, rng.randint(2, 4), rng)
    record, schema = draw(fields, rng)
    return write(record), fields, schema


def repair(domain: Domain, rng: Random) -> Case:
    """One row of the family, broken in one or two ways; breaks that leave the text as it is are drawn again."""
    text, fields, schema = sound(domain, rng)
    broken, named = text, list[str]()
    wanted = rng.choice([1, 1, 1, 2])
    while len(named) < wanted:
        what, change = rng.choice(BREAKS)
        changed = change(broken, rng)
        if changed != broken and what not in named:
            broken = changed
            named.append(what)
    group = group_of("repair", domain, fields, *sorted(named))
    return Case("repair", group, rng.choice(ASKS), broken, text, schema, original=text)
