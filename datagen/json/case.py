"""What the five JSON families share: a case with all that checks it, how an answer is written, values in words."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from random import Random

from datagen.json.domains import Domain, Field, Json, Schema, draw, key_of


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


def write(value: Json) -> str:
    """The value as JSON text on one line."""
    return json.dumps(value, ensure_ascii=False)


def group_of(form: str, domain: Domain, fields: Iterable[Field], *more: str) -> str:
    """What a row combines: a form of task, a domain, some of its fields whatever their order, and what else varies."""
    return " | ".join([form, domain.noun, ", ".join(sorted(field.words for field in fields)), *more])


def join(*sentences: str) -> str:
    """Sentences with single spaces, the empty ones left out."""
    return " ".join(sentence for sentence in sentences if sentence)


def some_fields(domain: Domain, count: int, rng: Random, without: Sequence[str] = ()) -> list[Field]:
    """Some fields of a domain in random order, the kinds in `without` left out."""
    allowed = [field for field in domain.fields if field.kind.name not in without]
    return rng.sample(allowed, min(count, len(allowed)))


def draw_distinct(fields: list[Field], count: int, rng: Random) -> tuple[list[dict[str, Json]], Schema]:
    """Draw records whose first field differs from one to the next; fewer where the field has too few values."""
    records: dict[str, dict[str, Json]] = {}
    for _ in range(20 * count):
        record, schema = draw(fields, rng)
        records.setdefault(str(record[key_of(fields[0].words, "snake")]), record)
        if len(records) == count:
            break
    return list(records.values()), schema


def listed(items: Sequence[str], word: str = "and") -> str:
    """a, b and c."""
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} {word} {items[-1]}"


def in_words(value: Json) -> str:
    """A single value as a person writes it."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return listed([str(item) for item in value]) if isinstance(value, list) else str(value)


def phrase(field: Field, value: Json) -> str:
    """`words value`, a nested object in parentheses, a null named as missing."""
    if value is None:
        return f"no {field.words}"
    if isinstance(value, dict):
        inner = [f"{part.words} {in_words(item)}" for part, item in zip(field.kind.parts, value.values(), strict=True)]
        return f"{field.words} ({', '.join(inner)})"
    return f"{field.words} {in_words(value)}"


def leaves(value: Json) -> list[Json]:
    """The scalars inside a value."""
    if isinstance(value, dict):
        return [leaf for item in value.values() for leaf in leaves(item)]
    if isinstance(value, list):
        return [leaf for item in value for leaf in leaves(item)]
    return [value]
