"""The values that a column of another content is filled from: its own, those that expected queries name, near and far ones."""

from __future__ import annotations

import random
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

MOST_OWN = 400
_TOKEN = re.compile(
    r"'(?P<text>(?:[^'\\]|''|\\.)*)'|\"(?P<quoted>(?:[^\"\\]|\"\"|\\.)*)\"|[`\[](?P<name>[^`\]]*)[`\]]"
    r"|(?P<number>(?<![\w.])-?\d+(?:\.\d+)?(?![\w.]))|(?P<word>[^\W\d]\w*)"
)
_COUNTS = frozenset(("LIMIT", "OFFSET", "SKIP"))
_DATE = re.compile(r"\d{4}-\d\d-\d\d")

Value = int | float | str


def constants(queries: Iterable[str], names: Collection[str]) -> dict[str, list[Value]]:
    """Return the constants of queries by the name of the column, in lower case, that stands before each, else behind it."""
    found: dict[str, list[Value]] = defaultdict(list)
    for query in queries:
        column, early, before = "", list[Value](), ""
        for match in _TOKEN.finditer(query):
            word = match["word"] or match["name"] or match["quoted"] or ""
            value = _constant(match)
            if word.lower() in names:
                column = word.lower()
                found[column] += early
                early = []
            elif value is not None and before not in _COUNTS:
                (found[column] if column else early).append(value)
            before = word.upper()
    return {name: list(dict.fromkeys(values)) for name, values in found.items()}


def _constant(match: re.Match[str]) -> Value | None:
    if match["number"]:
        return float(match["number"]) if "." in match["number"] else int(match["number"])
    text: str | None = match["text"] if match["text"] is not None else match["quoted"]
    return None if text is None else re.sub(r"''|\\(.)", lambda quote: quote[1] or "'", text)


@dataclass(frozen=True)
class Pool:
    """The values of a column. own: those it has. wanted: constants of its kind. near: what differs from these by little.

    far: what lies below and above all of them.
    """

    own: Sequence[Any]
    wanted: Sequence[Any] = ()
    near: Sequence[Any] = ()
    far: Sequence[Any] = ()
    filled: Sequence[Any] = field(default=("a", "b", 0, 1, 2))
    """What a column is filled from that has no value."""

    @property
    def numeric(self) -> bool:
        """Whether its values are numbers."""
        return bool(self.own) and all(_is_number(value) for value in self.own)


def pool(values: Iterable[Any], named: Sequence[Value]) -> Pool:
    """Return a column's pool. values: its own, NULLs left out; named: constants of queries."""
    own = list(dict.fromkeys(values))[:MOST_OWN]
    numeric = bool(own) and all(map(_is_number, own))
    wanted, near = list[Any](), list[Any]()
    for value in named:
        if not own or all(isinstance(one, bool | bytes) for one in own):
            wanted += [value] if not own else []
        elif numeric:
            number = _number(value)
            if number is not None:
                wanted.append(number)
                near += [number - 1, number + 1]
        else:
            wanted += _texts(str(value), [one for one in own if isinstance(one, str)])
            near += _near_texts(str(value).strip("%"))
    return Pool(
        own, list(dict.fromkeys(wanted)), [one for one in dict.fromkeys(near) if one not in wanted], _far(own, wanted)
    )


def _far(own: Sequence[Any], wanted: Sequence[Any]) -> list[Any]:
    """Return values far from all: numbers, days of other centuries, texts that sort first and last, and a long one."""
    if not own or all(isinstance(one, bool | bytes) for one in own):
        return []
    if all(map(_is_number, own)):
        known = [*own, *wanted]
        least, most = int(min(known)), int(max(known))
        return [10 * most + 1000, least - 10 * (most - least) - 1000]
    texts = [one for one in own if isinstance(one, str)]
    if texts and all(_DATE.match(one) for one in texts):
        return [f"{year}{one[4:]}" for one in texts[:2] for year in ("1802", "2190")]
    return [" ", "~", f"{max(texts, key=len)} " * 4] if texts else []


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _number(value: Value) -> int | float | None:
    if not isinstance(value, str):
        return value
    try:
        return float(value) if "." in value else int(value)
    except ValueError:
        return None


def _texts(text: str, own: Sequence[str]) -> list[str]:
    """Return texts that a condition with this constant may mean: it, what holds it, dates of it."""
    core = text.strip("%")
    dates = [one for one in own if _DATE.match(one)]
    if dates and re.fullmatch(r"\d{4}(?:-\d\d)?", core):
        return [core + one[len(core) :] for one in dates[:4]]
    if dates and re.fullmatch(r"\d\d", core):
        return [made for one in dates[:3] for made in (f"{one[:5]}{core}{one[7:]}", f"{one[:8]}{core}{one[10:]}")]
    return [core, *([f"{core} b", f"a {core}", f"a {core} b"] if core != text or core not in own else [])]


def _near_texts(text: str) -> list[str]:
    if re.fullmatch(r"-?\d{1,15}", text):
        return [str(int(text) - 1), str(int(text) + 1)]
    if _DATE.fullmatch(text):
        day = int(text[8:10])
        return [f"{text[:8]}{other:02}" for other in (day - 1, day + 1) if 1 <= other <= 28]
    return [text.swapcase(), text[:-1], f"{text} b", f"a {text}"]


@dataclass(frozen=True)
class Draw:
    """How a column is drawn in one content: from `usual`, a few of its own values; now and then one that queries name.

    far_share: of the others, in place of one of the column's own.
    """

    pool: Pool
    usual: Sequence[Any]
    wanted_share: float
    null_share: float
    far_share: float

    @classmethod
    def of(cls, known: Pool, rng: random.Random, null_share: float) -> Draw:
        """Choose the few."""
        own = known.own or known.filled
        count = rng.choice((1, 2, 3, 5, 12, len(own)))
        return cls(
            known,
            rng.sample(own, min(count, len(own))),
            rng.choice((0.15, 0.4, 0.7)),
            null_share,
            rng.choice((0.0, 0.1, 0.3)),
        )

    def value(self, rng: random.Random) -> Any:
        """Draw one."""
        if rng.random() < self.null_share:
            return None
        if self.pool.wanted and rng.random() < self.wanted_share:
            return rng.choice(self.pool.near if self.pool.near and rng.random() < 0.4 else self.pool.wanted)
        if self.pool.far and rng.random() < self.far_share:
            return rng.choice(self.pool.far)
        if rng.random() < 0.1:
            value = rng.choice(self.pool.own or self.pool.filled)
            return value + rng.choice((-1, 1)) if self.pool.numeric else value
        return rng.choice(self.usual)

    def names(self, value: Any) -> bool:
        """Whether a query names this value."""
        return value is not None and value in self.pool.wanted

    def keys(self, rng: random.Random, count: int) -> list[Any]:
        """Return `count` values that are all different, new ones where there are too few."""
        known = list(dict.fromkeys((*self.pool.own, *self.pool.wanted, *self.pool.near)))
        first = [*self.pool.wanted] if rng.random() < 0.7 else []
        rest = [one for one in known if one not in first]
        rng.shuffle(rest)
        found = [*first, *rest][:count]
        number = 0
        highest = max((one for one in known if _is_number(one)), default=0) if self.pool.numeric or not known else None
        taken = set(found)
        while len(found) < count:
            number += 1
            made = highest + number if highest is not None else f"{known[number % len(known)]}{number}"
            if made not in taken:
                taken.add(made)
                found.append(made)
        rng.shuffle(found)
        return found
