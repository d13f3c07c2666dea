"""Random conditions on one column, in many phrasings, for the question generators."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from datagen.common.domain_columns import NAMES, Column, Value
from datagen.common.wording import COMPARED, agree, article, pick_values, pretty

AFTER_PREPOSITION = {"city": "in", "country": "from"}


@dataclass(frozen=True)
class Filter:
    """A condition on one column and the words that say it behind (or, `before`, ahead of) a plural noun."""

    column: Column
    op: str
    values: tuple[Value, ...]
    phrase: str
    before: bool = False


def make_filter(column: Column, data: Sequence[Value], rng: random.Random) -> Filter | None:
    """One random filter on the column, None where the kind or the data offers none."""
    values = pick_values(column, data, rng)
    if column.nullable and None in data and rng.random() < 0.35:
        return null_filter(column, rng)
    if column.kind == "bool":
        return bool_filter(column, rng)
    if len(values) < 2:
        return None
    if column.is_category:
        return category_filter(column, values, rng)
    if column.kind in NAMES:
        return text_filter(column, [str(value) for value in values], rng)
    return range_filter(column, values[:2], rng)


def range_filter(column: Column, values: list[Value], rng: random.Random) -> Filter:
    """A filter on a date, a year or another number."""
    if column.kind == "date":
        return date_filter(column, sorted(str(value) for value in values), rng)
    if column.is_year:
        return year_filter(column, sorted(int(value or 0) for value in values), rng)
    return number_filter(column, sorted(values, key=lambda value: float(value or 0)), rng)


def bool_filter(column: Column, rng: random.Random) -> Filter:
    """A filter on a flag."""
    word = column.label.removeprefix("is ").removeprefix("has ")
    owns = column.label.startswith("has ") or column.label == "free entry"
    thing = word if word == "free entry" else article(word)
    if rng.random() < 0.6:
        return Filter(column, "=", (1,), f"with {thing}" if owns else f"that are {word}")
    return Filter(column, "=", (0,), f"without {thing}" if owns else f"that are not {word}")


def null_filter(column: Column, rng: random.Random) -> Filter:
    """A filter on a value that is missing or present."""
    if rng.random() < 0.5:
        words = rng.choice(["with no {0}", "whose {0} is unknown"])
        return Filter(column, "IS NULL", (), words.format(column.label))
    words = rng.choice(["with a known {0}", "whose {0} is known"])
    return Filter(column, "IS NOT NULL", (), words.format(column.label))


def category_filter(column: Column, values: list[Value], rng: random.Random) -> Filter:
    """Equality, inequality or membership of a category."""
    one, two = pretty(values[0], rng), pretty(values[1], rng)
    label = column.label
    kind = rng.random()
    if kind < 0.2:
        words = rng.choice(["whose {0} is {1} or {2}", "with {0} {1} or {2}"])
        return Filter(column, "IN", tuple(values[:2]), words.format(label, one, two))
    if kind < 0.35:
        words = rng.choice(["whose {0} is not {1}", "with {a} other than {1}"])
        return Filter(column, "<>", (values[0],), words.format(label, one, a=article(label)))
    if column.kind == "adj" and rng.random() < 0.7:
        return Filter(column, "=", (values[0],), str(values[0]), before=True)
    if column.kind in AFTER_PREPOSITION and label in AFTER_PREPOSITION and rng.random() < 0.6:
        return Filter(column, "=", (values[0],), f"{AFTER_PREPOSITION[column.kind]} {values[0]}")
    words = rng.choice(["whose {0} is {1}", "with {0} {1}"])
    return Filter(column, "=", (values[0],), words.format(label, one))


def text_filter(column: Column, values: list[str], rng: random.Random) -> Filter:
    """Equality, a beginning, an ending or a part of a name."""
    value = values[0]
    label = column.label
    kind = rng.random()
    if kind < 0.34 or column.kind == "code":
        words = rng.choice(["whose {0} starts with {1}", "with {a} starting with {1}"])
        part = value[: 1 if rng.random() < 0.7 else 2]
        return Filter(column, "STARTS", (part,), words.format(label, pretty(part, rng, 0.8), a=article(label)))
    if kind < 0.5:
        words = rng.choice(["whose {0} ends with {1}", "with {a} ending in {1}"])
        part = value[-2:]
        return Filter(column, "ENDS", (part,), words.format(label, pretty(part, rng, 0.9), a=article(label)))
    if kind < 0.75 and " " in value:
        words = rng.choice(["whose {0} contains {1}", "with {1} in the {0}"])
        part = value.split()[-1]
        return Filter(column, "CONTAINS", (part,), words.format(label, pretty(part, rng, 0.8)))
    words = rng.choice(["whose {0} is {1}", "with the {0} {1}"])
    return Filter(column, "=", (value,), words.format(label, pretty(value, rng)))


def date_filter(column: Column, values: list[str], rng: random.Random) -> Filter:
    """A day, a range of days or a year."""
    verb = f"{column.verb} " if column.verb else ""
    of = "" if verb else f"whose {column.label} is "
    with_ = "" if verb else f"with {article(column.label)} "
    first, last = values
    year = first[:4]
    kind = rng.random()
    if kind < 0.25:
        words = rng.choice(["{v}{o}after {0}", "{v}{w}later than {0}"])
        return Filter(column, ">", (first,), words.format(first, v=verb, o=of, w=with_))
    if kind < 0.45:
        words = rng.choice(["{v}{o}before {0}", "{v}{w}earlier than {0}"])
        return Filter(column, "<", (last,), words.format(last, v=verb, o=of, w=with_))
    if kind < 0.55:
        return Filter(column, ">=", (first,), f"{verb}{of}on or after {first}")
    if kind < 0.75 or column.low == column.high:
        words = rng.choice(["{v}{o}between {0} and {1}", "{v}{w}from {0} to {1}"])
        return Filter(column, "BETWEEN", (first, last), words.format(first, last, v=verb, o=of, w=with_))
    words = rng.choice(["{v}{o}in {0}", "{v}{w}in the year {0}"])
    return Filter(column, "YEAR", (year,), words.format(year, v=verb, o=of, w=with_))


def year_filter(column: Column, values: list[int], rng: random.Random) -> Filter:
    """A calendar year: after, before, in or between."""
    first, last = values
    start = column.verb or f"whose {column.label} is"
    kind = rng.random()
    if kind < 0.3:
        return Filter(column, ">", (first,), f"{start} {rng.choice(['after', 'later than'])} {first}")
    if kind < 0.55:
        return Filter(column, "<", (last,), f"{start} {rng.choice(['before', 'earlier than'])} {last}")
    if kind < 0.65:
        return Filter(column, ">=", (first,), f"{start} in {first} or later")
    if kind < 0.85:
        words = rng.choice(["between {0} and {1}", "from {0} to {1}"])
        return Filter(column, "BETWEEN", (first, last), f"{start} {words.format(first, last)}")
    return Filter(column, "=", (first,), f"{start} {'in ' if column.verb else ''}{first}")


def number_filter(column: Column, values: list[Value], rng: random.Random) -> Filter:
    """A comparison or a range."""
    low, high = values
    label = column.label
    more, less, *_ = COMPARED.get(label.split()[-1], ("", "", "", ""))
    a = article(label)
    kind = rng.random()
    if kind < 0.3:
        options = [f"whose {label} is greater than {low}", f"with {a} above {low}"]
        words = rng.choice([*options, f"{more} {low}"] if more else options)
        return Filter(column, ">", (low,), agree(label, words))
    if kind < 0.55:
        options = [f"whose {label} is less than {high}", f"with {a} below {high}"]
        words = rng.choice([*options, f"{less} {high}"] if less else options)
        return Filter(column, "<", (high,), agree(label, words))
    if kind < 0.67:
        words = rng.choice(["with {a} of at least {0}", "whose {1} is {0} or more"])
        return Filter(column, ">=", (low,), agree(label, words.format(low, label, a=a)))
    if kind < 0.79:
        words = rng.choice(["with {a} of at most {0}", "whose {1} is {0} or less"])
        return Filter(column, "<=", (high,), agree(label, words.format(high, label, a=a)))
    words = rng.choice(["with {a} between {0} and {1}", "whose {2} is between {0} and {1}"])
    return Filter(column, "BETWEEN", (low, high), agree(label, words.format(low, high, label, a=a)))


def noun_phrase(noun: str, filters: Sequence[Filter], joiner: str = "and") -> str:
    """The noun with its filters around it; with `or` none may stand ahead."""
    ahead = [f.phrase for f in filters if f.before and joiner == "and"]
    behind = [f"whose {f.column.label} is {f.phrase}" if f.before else f.phrase
              for f in filters if joiner != "and" or not f.before]  # fmt: skip
    words = [*ahead, noun]
    if behind:
        words.append(f" {joiner} ".join(behind))
    return " ".join(words)
