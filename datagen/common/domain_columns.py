"""Columns of the made-up domains of sql/domains.py and neo4j/domains.py: their one-line notation and values.

A column is written `name kind [range or options] [as label words] [by verb]`, with `?` after the name when values may
be missing: `salary int 2000-9000/100`, `city? city`, `status adj open|closed`, `hired_on date 2015-2023 by hired`.
"""

from __future__ import annotations

import random
import re
from dataclasses import dataclass
from datetime import date, timedelta

Value = str | int | float | None


def _words(text: str) -> list[str]:
    return text.split()


FIRST = _words(
    """
    Ada Amir Anna Ben Carla Chen Clara Dario Diego Elena Emma Erik Fatima Felix Grace Hana Hugo Ines Ivan Jonas
    Julia Kofi Lara Leo Lina Luis Maria Mateo Mia Nadia Nina Noah Olga Omar Paul Priya Rosa Sam Sofia Tara Tom Vera
    Yuki Zoe
    """
)
LAST = _words(
    """
    Abbott Alvarez Baker Berg Costa Cruz Dahl Diaz Evans Fischer Garcia Haas Ito Jensen Kaya Khan Klein Lopez Martin
    Meyer Moreau Novak Okafor Olsen Park Patel Quinn Reyes Rossi Sato Schmidt Silva Singh Tanaka Torres Vargas Wang
    Weber Young Zhou
    """
)
CITIES = _words(
    """
    Oslo Lima Porto Kyoto Austin Berlin Cairo Dublin Geneva Hanoi Izmir Krakow Lagos Lyon Madrid Mumbai Nairobi
    Quito Riga Seoul Tampa Turin Utrecht Vienna Zagreb
    """
)
COUNTRIES = _words(
    """
    Norway Peru Portugal Japan Germany Egypt Ireland Vietnam Turkey Poland Nigeria France Spain India Kenya Ecuador
    Latvia Italy Austria Croatia Canada Mexico Chile Brazil
    """
)
ADJECTIVES = _words(
    """
    Silent Golden Crimson Hidden Broken Winter Distant Electric Paper Velvet Hollow Bright Wild Lonely Frozen Secret
    Amber Burning Gentle Iron
    """
)
NOUNS = _words(
    """
    River Garden Horizon Mirror Harbor Letter Forest Signal Tower Island Shadow Bridge Orchard Compass Valley
    Lantern Voyage Canyon Meadow Anthem
    """
)
FIRM_WORDS = _words(
    """
    Alder Apex Beacon Cobalt Delta Evergreen Falcon Granite Helix Juniper Keystone Lumen Meridian Nimbus Orion
    Pioneer Quartz Redwood Summit Vertex
    """
)
FIRM_ENDS = _words("Group Labs Partners Systems Works Trading Holdings Industries")
PLACE_ENDS = _words("Hall House Park Center Point Square Gate Corner")
PAIRS = {
    "person": (FIRST, LAST),
    "title": (ADJECTIVES, NOUNS),
    "company": (FIRM_WORDS, FIRM_ENDS),
    "place": (FIRM_WORDS, PLACE_ENDS),
}
LISTS = {"city": CITIES, "country": COUNTRIES}
NUMBERS = ("int", "real")
NAMES = (*PAIRS, "code", "pick")
CATEGORIES = (*LISTS, "of", "adj")


@dataclass(frozen=True)
class Column:
    """One column or property."""

    name: str
    kind: str
    label: str
    options: tuple[str, ...] = ()
    low: int = 0
    high: int = 0
    step: int = 1
    verb: str = ""
    nullable: bool = False

    @property
    def is_number(self) -> bool:
        """Whether averages and differences of it are asked for (of a year they are not)."""
        return self.kind in NUMBERS and not self.is_year

    @property
    def is_year(self) -> bool:
        """Whether the number is a calendar year."""
        return self.kind == "int" and "year" in self.label.split()

    @property
    def is_category(self) -> bool:
        """Whether rows may be grouped by it."""
        return self.kind in CATEGORIES


def parse_column(text: str) -> Column:
    """Read the notation this module's docstring shows."""
    body, _, verb = text.strip().partition(" by ")
    body, _, label = body.partition(" as ")
    name, kind, *rest = body.split(None, 2)
    nullable = name.endswith("?")
    name = name.rstrip("?")
    args = rest[0].strip() if rest else ""
    label = label or name.replace("_", " ")
    if kind in ("of", "adj", "pick"):
        return Column(name, kind, label, options=tuple(args.split("|")), verb=verb, nullable=nullable)
    numbers = re.fullmatch(r"(\d+)-(\d+)(?:/(\d+))?", args)
    low, high, step = (int(n or 1) for n in numbers.groups()) if numbers else (0, 0, 1)
    return Column(name, kind, label, (), low, high, step, verb, nullable)


def column_values(column: Column, count: int, rng: random.Random) -> list[Value]:
    """Draw `count` values: unique names, few and uneven categories, about one in six missing where that may be."""
    values: list[Value]
    if column.kind in PAIRS:
        heads, tails = PAIRS[column.kind]
        values = [*rng.sample([f"{head} {tail}" for head in heads for tail in tails], count)]
    elif column.kind == "code":
        values = [
            f"{rng.choice('ABCDEFGHKLMNPRT')}{rng.choice('BDKLMRSTVX')}-{n}" for n in rng.sample(range(100, 999), count)
        ]
    elif column.kind == "pick":
        values = [*rng.sample(column.options, min(count, len(column.options)))]
    elif column.is_category:
        options = list(column.options) or rng.sample(LISTS[column.kind], 7)
        weights = [1 + 2 / (place + 1) for place in range(len(options))]
        values = [*rng.choices(options, weights, k=count)]
    elif column.kind == "bool":
        values = [int(rng.random() < 0.6) for _ in range(count)]
    elif column.kind == "date":
        days = (date(column.high, 12, 28) - date(column.low, 1, 3)).days
        values = [str(date(column.low, 1, 3) + timedelta(rng.randrange(days))) for _ in range(count)]
    elif column.kind == "real":
        values = [round(rng.uniform(column.low, column.high), 1) for _ in range(count)]
    else:
        values = [rng.randrange(column.low, column.high + 1, column.step) for _ in range(count)]
    if column.nullable:
        values = [None if rng.random() < 0.16 else value for value in values]
    return values
