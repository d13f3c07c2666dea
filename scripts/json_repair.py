"""Rows that ask to mend broken JSON: a sound text, broken in one or two named ways."""

from __future__ import annotations

import re
from collections.abc import Callable
from random import Random

from json_case import Case, draw_distinct, join, some_fields, write
from json_domains import Domain, draw, object_schema

Break = Callable[[str, Random], str]


def _at(text: str, pattern: str, replacement: str, rng: Random) -> str:
    """Replace one random match; the text unchanged where there is none."""
    matches = list(re.finditer(pattern, text))
    if not matches:
        return text
    match = rng.choice(matches)
    return text[: match.start()] + match.expand(replacement) + text[match.end() :]


PYTHON_WORDS = {"true": "True", "false": "False", "null": "None"}

# What is wrong, in words a person would use, and how the text gets it.
BREAKS: list[tuple[str, Break]] = [
    ("a trailing comma", lambda t, r: _at(t, r"(?<=[\w\"\]}])(\s*[}\]])", r",\1", r)),
    ("a missing comma", lambda t, r: _at(t, r",(?=\s*\")", "", r)),
    ("a missing colon", lambda t, r: _at(t, r"\":", '"', r)),
    ("an equals sign instead of a colon", lambda t, r: _at(t, r"\":", '" =', r)),
    ("a semicolon instead of a comma", lambda t, r: _at(t, r",(?=\s*\")", ";", r)),
    ("unquoted keys", lambda t, _: re.sub(r"\"([A-Za-z_]\w*)\"(?=:)", r"\1", t)),
    ("one unquoted key", lambda t, r: _at(t, r"\"([A-Za-z_][\w-]*)\"(?=:)", r"\1", r)),
    ("single quotes", lambda t, _: t.replace('"', "'") if "'" not in t and '\\"' not in t else t),
    ("a key in single quotes", lambda t, r: _at(t, r"\"([\w-]+)\"(?=:)", r"'\1'", r)),
    ("a key without its closing quote", lambda t, r: _at(t, r"\"([\w-]+)\"(?=:)", r'"\1', r)),
    ("a string without its closing quote", lambda t, r: _at(t, r"(?<=[^\\:,{\[\s])\"(?=\s*[,}\]])", "", r)),
    ("curly quotes", lambda t, r: _at(t, r"\"([\w-]+)\"(?=:)", "“\\1”", r)),
    ("Python literals", lambda t, _: re.sub(r"(?<=[:,\[ ])(true|false|null)\b", lambda m: PYTHON_WORDS[m[1]], t)),
    ("a missing closing bracket", lambda t, _: t.rstrip()[:-1].rstrip()),
    ("missing closing brackets", lambda t, _: re.sub(r"(\s*[}\]]){2,}$", "", t)),
    ("one closing bracket too many", lambda t, _: t + t[-1]),
    ("a comment", lambda t, r: _at(t, r",(?=\s*\")", r.choice([", /* check */", ", /* from the form */"]), r)),
    ("a doubled comma", lambda t, r: _at(t, r",(?=\s*\")", ",,", r)),
    ("text around it", lambda t, r: r.choice(["Result: ", "json ", "const data = ", "// exported\n"]) + t),
    ("a semicolon at the end", lambda t, _: t + ";"),
    ("a number with a leading zero", lambda t, r: _at(t, r"(?<=[:\[ ])([1-9][\d.]*)(?=[,}\]\s])", r"0\1", r)),
    ("a number with a plus sign", lambda t, r: _at(t, r"(?<=[:\[ ])([1-9][\d.]*)(?=[,}\]\s])", r"+\1", r)),
    ("an unescaped quote", lambda t, r: _at(t, r"\\\"", '"', r)),
    ("an unescaped backslash", lambda t, r: _at(t, r"\\\\(?=[dc])", r"\\", r)),
    ("a raw line break in a string", lambda t, r: _at(t, r"\\n", "\n", r)),
    ("a code fence", lambda t, _: f"```json\n{t}\n```"),
    ("a wrong closing bracket", lambda t, _: t[:-1] + ("]" if t[-1] == "}" else "}")),
]
ASKS = [
    "Fix this JSON.",
    "The JSON below does not parse. Repair it.",
    "Correct the syntax of this JSON and change nothing else.",
    "My parser rejects this. Return valid JSON.",
    "Repair the broken JSON.",
    "Make this valid JSON, same data and layout.",
    "This came out of a log and is not valid JSON. Mend it.",
    "Please fix the JSON syntax error.",
    "Return the corrected JSON.",
    "What should this JSON look like? Give only the corrected text.",
    "Clean this up so that json.loads accepts it.",
]
HINTS = ["There is {what}.", "The cause is {what}.", "It has {what}.", "Problem: {what}.", "Look out for {what}."]
EXTRA = ["line one\nline two", 'He said "no"', "tab\there", "C:\\data\\new", "ends with a \\", '5" pipe\nsee plan']


def sound(domain: Domain, rng: Random) -> tuple[str, object, dict[str, object]]:
    """A sound document of the domain: its text, its value, its schema."""
    style, layout = (
        rng.choice(["snake", "camel", "kebab"]),
        rng.choice(["line", "line", "line", "compact", "two", "two"]),
    )
    if rng.random() < 0.3:
        fields = some_fields(domain, rng.randint(2, 3), rng, without=("object",))
        records, schema = draw_distinct(fields, style, rng.randint(2, 3), rng)
        return write(records, layout), records, {"type": "array", "items": schema, "minItems": len(records)}
    record, schema = draw(some_fields(domain, rng.randint(2, 6), rng), style, rng)
    if rng.random() < 0.35:
        record["comment"] = rng.choice(EXTRA)
        schema = object_schema({**schema["properties"], "comment": {"type": "string"}})
    return write(record, layout), record, schema


def repair(domain: Domain, rng: Random) -> Case:
    """One row of the family; breaks that leave the text as it is are drawn again."""
    text, _, schema = sound(domain, rng)
    broken, named = text, []
    wanted = rng.choice([1, 1, 1, 2])
    for _ in range(60):
        what, change = rng.choice(BREAKS)
        changed = change(broken, rng)
        if changed != broken and what not in named:
            broken = changed
            named.append(what)
        if len(named) == wanted:
            break
    hint = rng.choice(HINTS).format(what=" and ".join(named)) if rng.random() < 0.4 else ""
    return Case("repair", domain.noun, join(rng.choice(ASKS), hint), broken, text, schema, original=text)
