"""How a JSON value differs from what is expected: by the rules `exact` and `subset`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from decimal import Decimal
from typing import Any, Literal

Rule = Literal["exact", "subset"]


def difference(rule: Rule, value: Any, expected: Any) -> str:
    """Return how a value differs from what is expected, "" where it does not."""
    return next(_differences(value, expected, subset=rule == "subset"), "")


def _differences(value: Any, expected: Any, place: str = "", *, subset: bool) -> Iterator[str]:
    """Yield what of a value is not as expected, with its place. subset: objects may have further members."""
    if isinstance(expected, dict) and isinstance(value, dict):
        if not subset:
            yield from (f"{place}/{key} is not expected" for key in value if key not in expected)
        for key, item in expected.items():
            if key in value:
                yield from _differences(value[key], item, f"{place}/{key}", subset=subset)
            else:
                yield f"{place}/{key} is missing"
    elif isinstance(expected, list) and isinstance(value, list):
        if len(value) != len(expected):
            yield f"{place or '/'} has {len(value)} elements, not {len(expected)}"
        for index, pair in enumerate(zip(value, expected, strict=False)):
            yield from _differences(*pair, f"{place}/{index}", subset=subset)
    elif not _equal(value, expected):
        yield f"{place or '/'} is {_shown(value)}, not {_shown(expected)}"


def _equal(value: Any, expected: Any) -> bool:
    """Whether two values that hold no others are the same."""
    if isinstance(value, Decimal) and isinstance(expected, float):
        value = float(value)
    return isinstance(value, bool) == isinstance(expected, bool) and bool(
        value == expected
    )  # True == 1, but not in JSON


def _shown(value: Any) -> str:
    if isinstance(value, (dict, list)):
        return "an object" if isinstance(value, dict) else "a list"
    return (str(value) if isinstance(value, Decimal) else json.dumps(value, ensure_ascii=False))[:60]
