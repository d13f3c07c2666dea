"""Whether a number, or digits that may go on, can meet what a JSON Schema says of numbers."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import Any

from expert_cli.inference.grammar.json_schema.prefix import Number

_WHOLE_BEGINNING = re.compile(r"-?[0-9]*(?:\.0*)?(?:[eE]\+?[0-9]*)?")
_BOUNDS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")
_MORE_DIGITS = 25
"""Digits that are tried behind those that are written."""


def could_reach(value: float | Number, schema: Mapping[str, Any]) -> bool:
    """Return whether a number fits, or, where its digits are open, some that begins so.

    An exponent is held to the bounds once it is begun: digits before one count as those of a number without.
    """
    types = schema.get("type", "number")
    whole = types == "integer" or (isinstance(types, list) and "integer" in types and "number" not in types)
    if isinstance(value, Number) and whole and not _WHOLE_BEGINNING.fullmatch(value.raw):
        return False
    if schema.keys().isdisjoint(_BOUNDS):
        return True
    if not isinstance(value, Number):
        return _meets(Fraction(str(value)), Fraction(str(value)), schema, whole=whole)
    return any(_meets(low, high, schema, whole=whole) for low, high in _ranges(value.raw, whole=whole))


def _ranges(raw: str, *, whole: bool) -> Iterator[tuple[Fraction, Fraction]]:
    """Yield from where to where numbers go that begin so, both ends included."""
    mantissa, exponent, power = re.split("([eE])", raw, maxsplit=1) if set(raw) & set("eE") else (raw, "", "")
    if exponent:
        ends = [str(number) for number in range(100)]
        for digits in [power] * (power not in ("", "+", "-")) + [power + end for end in ends]:
            if abs(int(digits)) <= 400:
                yield (one := Fraction(f"{mantissa}e{digits}")), one
        return
    sign = -1 if raw.startswith("-") else 1
    digits = raw.lstrip("-")
    if not digits:
        yield Fraction(-(10**_MORE_DIGITS)), Fraction(0)
        return
    start, point, fraction = digits.partition(".")
    at = Fraction(f"{start}.{fraction or 0}")
    # one unit of the last digit is not reached; 10^-25 of it is
    step = Fraction(0) if whole else Fraction(1, 10 ** len(fraction)) * (1 - Fraction(1, 10**_MORE_DIGITS))
    yield _turned(at, at + step, sign)
    if not point and digits != "0":
        for count in range(1, _MORE_DIGITS):
            yield _turned(at * 10**count, (at + 1) * 10**count - 1, sign)


def _turned(low: Fraction, high: Fraction, sign: int) -> tuple[Fraction, Fraction]:
    return (low, high) if sign > 0 else (-high, -low)


def _meets(low: Fraction, high: Fraction, schema: Mapping[str, Any], *, whole: bool) -> bool:
    """Whether a number from `low` to `high` is in the bounds, and a multiple where it must be."""
    for word, above in (("minimum", True), ("exclusiveMinimum", True), ("maximum", False), ("exclusiveMaximum", False)):
        bound = schema.get(word)
        if bound is None or isinstance(bound, bool):  # draft 4 says by true that the bound itself is left out
            continue
        at = Fraction(str(bound))
        strict = word.startswith("exclusive") or schema.get(f"exclusive{word.capitalize()}") is True
        small = Fraction(1) if whole else Fraction(1, 10**_MORE_DIGITS)
        if above:
            edge = (math.floor(at) + 1 if strict else math.ceil(at)) if whole else at + small * strict
            low = max(low, Fraction(edge))
        else:
            edge = (math.ceil(at) - 1 if strict else math.floor(at)) if whole else at - small * strict
            high = min(high, Fraction(edge))
    if "multipleOf" in schema:
        unit = Fraction(str(schema["multipleOf"]))
        return math.ceil(low / unit) * unit <= high
    return low <= high
