"""Values that go from one process to another as copies, and how each is written in JSON."""

from __future__ import annotations

import builtins
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any

BARE: tuple[type, ...] = (bool, int, float, str)
"""Types whose values are JSON as they are."""
VALUES: tuple[type, ...] = (*BARE, tuple, frozenset, bytes)
"""Types of which an object of a class derived from them is, too."""
PLAIN: Mapping[type, tuple[Callable[[Any], list[Any]], Callable[..., Any]]] = {
    tuple: (list, lambda *items: items),
    frozenset: (list, lambda *items: frozenset(items)),
    bytes: (lambda value: [value.hex()], bytes.fromhex),
    complex: (lambda value: [value.real, value.imag], complex),
    range: (lambda value: [value.start, value.stop, value.step], range),
    slice: (lambda value: [value.start, value.stop, value.step], slice),
    Decimal: (lambda value: [str(value)], Decimal),
    Fraction: (lambda value: [value.numerator, value.denominator], Fraction),
    datetime: (lambda value: [value.isoformat()], datetime.fromisoformat),
    date: (lambda value: [value.isoformat()], date.fromisoformat),
    time: (lambda value: [value.isoformat()], time.fromisoformat),
    timedelta: (lambda value: [value.days, value.seconds, value.microseconds], timedelta),
    type(NotImplemented): (lambda _: [], lambda: NotImplemented),
    type(Ellipsis): (lambda _: [], lambda: Ellipsis),
}
"""Types of what cannot change: the parts of a value, and the value of such parts."""
MUTABLE: tuple[Any, ...] = (list, dict, set, bytearray, deque, OrderedDict, Counter, defaultdict)
BY_NAME = {kind.__name__: kind for kind in (*PLAIN, *MUTABLE)}
BUILTIN_TYPES = {name: value for name, value in vars(builtins).items() if isinstance(value, type)}


def contents(container: Any) -> list[Any]:
    """Return what a container holds, pairs of a dict; of an object, its attributes."""
    if isinstance(container, MUTABLE):
        return [*container.items()] if isinstance(container, dict) else list(container)
    return [*vars(container).items()]


def fill(container: Any, items: list[Any]) -> None:
    """Put `contents` into a container, or an object, in place of what it holds."""
    if not isinstance(container, MUTABLE):
        if any(callable(getattr(type(container), name, None)) for name, _ in items):
            raise ValueError("a method of an object is no value")
        container = vars(container)
    container.clear()
    if isinstance(container, dict):
        for key, value in items:
            container[key] = value
    elif isinstance(container, set):
        container.update(items)
    else:
        container.extend(items)
