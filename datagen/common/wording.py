"""English for the question generators: plurals, articles, superlatives, and the requests around a noun phrase."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence

from datagen.common.domain_columns import Column, Value

# label word -> (more than, less than, most, least)
COMPARED = {
    "price": ("more expensive than", "cheaper than", "most expensive", "cheapest"),
    "fee": ("more expensive than", "cheaper than", "most expensive", "cheapest"),
    "age": ("older than", "younger than", "oldest", "youngest"),
    "weight": ("heavier than", "lighter than", "heaviest", "lightest"),
    "height": ("taller than", "shorter than", "tallest", "shortest"),
    "length": ("longer than", "shorter than", "longest", "shortest"),
    "duration": ("longer than", "shorter than", "longest", "shortest"),
    "runtime": ("longer than", "shorter than", "longest", "shortest"),
    "salary": ("earning more than", "earning less than", "best-paid", "worst-paid"),
    "rating": ("rated above", "rated below", "highest-rated", "lowest-rated"),
    "area": ("larger than", "smaller than", "largest", "smallest"),
}
SMALL = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]
SINGULAR_S = {"address", "loss", "status", "class", "bonus"}
UNCOUNTED = {"mileage", "attendance", "experience", "stock", "climate", "audience"}
AGGREGATES = {
    "AVG": ("average", "mean"),
    "SUM": ("total", "combined"),
    "MAX": ("highest", "maximum"),
    "MIN": ("lowest", "minimum"),
}
NOT_ADDED = ("age", "rating", "score", "stars", "grade", "altitude", "height", "experience", "price", "rate", "fee")
LIST_LEADS = ("List {x}.", "Show {x}.", "What are {x}?", "Find {x}.")
ONE_LEADS = ("What is {x}?", "Find {x}.", "Show {x}.", "Give me {x}.")


def number_word(rng: random.Random, number: int) -> str:
    """A small count as a digit or a word."""
    return SMALL[number] if number <= 10 and rng.random() < 0.5 else str(number)


def article(word: str) -> str:
    """The word with `a` or `an`, or alone where it is a plural."""
    if several(word) == word:
        return word
    return ("an " if word[0].lower() in "aeio" or word == "h-index" else "a ") + word


def several(word: str) -> str:
    """The plural of a label: its head noun (`number of beds`, `delay in minutes`) takes the ending."""
    words = word.split()
    tails = [
        i for i, part in enumerate(words) if i and part in ("of", "in", "as", "built", "planted", "sold", "painted")
    ]
    head = (tails[0] if tails else len(words)) - 1
    noun = words[head]
    if noun in SINGULAR_S:
        noun += "es"
    elif noun.endswith("y") and noun[-2] not in "aeou":
        noun = noun[:-1] + "ies"
    elif noun.endswith(("x", "ch")):
        noun += "es"
    elif not noun.endswith("s") and noun not in UNCOUNTED:
        noun += "s"
    words[head] = noun
    return " ".join(words)


def agree(label: str, words: str) -> str:
    """The words with their verb in the plural where the label is one."""
    if several(label) != label or label in UNCOUNTED:
        return words
    for one, more in ((" is ", " are "), (" does not ", " do not "), (" exceeds ", " exceed ")):
        words = words.replace(f"{label}{one}", f"{label}{more}")
    return words


def pretty(value: Value, rng: random.Random, quote: float = 0.4) -> str:
    """A literal as a user would type it."""
    if isinstance(value, str) and rng.random() < quote:
        return f"'{value}'"
    return str(value)


def pick_values(column: Column, data: Sequence[Value], rng: random.Random) -> list[Value]:
    """The distinct present values in random order, drawn from the middle for numbers and dates."""
    present = sorted({value for value in data if value is not None}, key=lambda value: (str(type(value)), value))
    if column.is_number or column.kind == "date":
        edge = len(present) // 6
        present = present[edge : len(present) - edge]
    rng.shuffle(present)
    return list(present)


def series(words: Sequence[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    return words[0] if len(words) == 1 else ", ".join(words[:-1]) + " and " + words[-1]


def extreme(rng: random.Random, column: Column, most: bool) -> str:
    """`with the highest price`, or a word such as `oldest` marked by a leading `!`."""
    words = COMPARED.get(column.label.split()[-1])
    if words and rng.random() < 0.6:
        return "!" + words[2 if most else 3]
    if column.kind == "date":
        return f"with the {'latest' if most else 'earliest'} {column.label}"
    if column.is_year:
        return f"with the {'latest' if most else 'earliest'} {column.label}"
    return f"with the {'highest' if most else 'lowest'} {column.label}"


def ranked(rng: random.Random, column: Column, most: bool, noun: str, count: str = "") -> str:
    """`the three oldest patients` or `the three patients with the lowest weight`."""
    words = extreme(rng, column, most)
    return f"the {count} {words[1:]} {noun}" if words[0] == "!" else f"the {count} {noun} {words}"


def ask(rng: random.Random, leads: Sequence[str], thing: str) -> str:
    """A request for the thing; what is no plural noun phrase is not asked with `What are`."""
    if thing.startswith(("how many", "each ", "for ")):
        leads = [lead for lead in leads if not lead.startswith(("What", "I would", "Calculate", "Compute"))]
    elif re.match(r"the (number|count|mean|combined|summed|total|average|range|gap|difference|highest|lowest|maximum|"
                  r"minimum|largest|smallest) ", thing) and " and " not in thing:  # fmt: skip
        leads = [lead.replace("What are", "What is") for lead in leads]
    return say(rng, leads, x=thing)


def say(rng: random.Random, templates: Sequence[str], **slots: str) -> str:
    """Fill one of the templates and write it as a sentence."""
    text = " ".join(rng.choice(templates).format(**slots).split())
    return text[0].upper() + text[1:]
