"""What the five JSON families share: a case with all that checks it, the layouts of an answer, values in words."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from json_domains import Domain, Field, Json, Schema, draw, key_of, long_date

STYLE_NAMES = {"snake": "snake_case", "camel": "camelCase", "pascal": "PascalCase", "kebab": "kebab-case"}
STYLES = ["snake", "snake", "camel", "camel", "camel", "pascal", "kebab"]
LAYOUTS: dict[str, tuple[str, ...]] = {
    "line": ("", "", "", "Keep it on one line.", "Answer on a single line."),
    "compact": ("Make it compact.", "Answer with compact JSON.", "No spaces between the tokens.", "Minify the JSON."),
    "two": ("Indent with 2 spaces.", "Pretty-print it with an indent of 2.", "Use two-space indentation."),
    "four": ("Indent with 4 spaces.", "Pretty-print it, 4 spaces a level."),
}


@dataclass(frozen=True)
class Case:
    """A row and what its answer is held to.

    `told` are the values the prompt must state, `original` the text a broken input came from, `accepts` and `refuses`
    what a schema that is itself the answer must tell apart, and `holds` the outcome of a second, independent look.
    """

    family: str
    group: str
    instruction: str
    input: str
    output: str
    schema: Schema
    told: tuple[Json, ...] = ()
    original: str | None = None
    accepts: tuple[Json, ...] = ()
    refuses: tuple[Json, ...] = ()
    holds: bool = True

    def row(self) -> dict[str, str]:
        """The row as it is written."""
        return {"instruction": self.instruction, "input": self.input, "output": self.output}


def write(value: Json, layout: str) -> str:
    """The value as JSON text in one of the layouts."""
    if layout == "compact":
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return json.dumps(value, ensure_ascii=False, indent={"two": 2, "four": 4}.get(layout))


def pick_layout(rng: Random) -> tuple[str, str]:
    """A layout and the sentence that asks for it; an empty sentence means one line."""
    layout = rng.choice(["line"] * 5 + ["compact"] * 2 + ["two"] * 2 + ["four"])
    return layout, rng.choice(LAYOUTS[layout])


def join(*sentences: str) -> str:
    """Sentences with single spaces, the empty ones left out."""
    return " ".join(sentence for sentence in sentences if sentence)


def some_fields(domain: Domain, count: int, rng: Random, without: Sequence[str] = ()) -> list[Field]:
    """Some fields of a domain in random order, the kinds in `without` left out."""
    allowed = [field for field in domain.fields if field.kind.name not in without]
    return rng.sample(allowed, min(count, len(allowed)))


def draw_distinct(fields: list[Field], style: str, count: int, rng: Random) -> tuple[list[dict[str, Json]], Schema]:
    """Draw records whose first field differs from one to the next; fewer where the field has too few values."""
    records: dict[str, dict[str, Json]] = {}
    for _ in range(20 * count):
        record, schema = draw(fields, style, rng)
        records.setdefault(str(record[key_of(fields[0].words, style)]), record)
        if len(records) == count:
            break
    return list(records.values()), schema


def listed(items: Sequence[str], word: str = "and") -> str:
    """a, b and c."""
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} {word} {items[-1]}"


def in_words(kind: str, value: Json, rng: Random) -> str:
    """A single value as a person writes it."""
    if isinstance(value, bool):
        return rng.choice(("yes", "true") if value else ("no", "false"))
    if isinstance(value, list):
        return listed([str(item) for item in value])
    if kind == "date" and rng.random() < 0.4:
        return long_date(value)
    return str(value)


def phrase(field: Field, value: Json, rng: Random, quote: bool = False) -> str:
    """`words value`, a nested object in parentheses, a null named as missing."""
    if value is None:
        return rng.choice((f"no {field.words} (null)", f"{field.words} null", f"{field.words} not known (null)"))
    if field.kind.name == "object":
        inner = [
            f"{part.words} {in_words(part.kind.name, value[key], rng)}"
            for part, key in zip(field.kind.parts, value, strict=True)
        ]
        return rng.choice((f"{field.words} ({', '.join(inner)})", f"{field.words} with {listed(inner)}"))
    kind = field.kind.parts[0].kind.name if field.kind.name == "maybe" else field.kind.name
    said = in_words(kind, value, rng)
    return (
        f'{field.words} "{said}"'
        if quote and kind in ("title", "note") and '"' not in said
        else f"{field.words} {said}"
    )


def leaves(value: Json) -> list[Json]:
    """The scalars inside a value."""
    if isinstance(value, dict):
        return [leaf for item in value.values() for leaf in leaves(item)]
    if isinstance(value, list):
        return [leaf for item in value for leaf in leaves(item)]
    return [value]
