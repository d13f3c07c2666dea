"""How a JSON value differs from what is expected: by the rules `exact`, `subset` and `accepted`."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from decimal import Decimal
from functools import partial
from typing import Any, Literal

from expert_cli.errors import InputError

Rule = Literal["exact", "subset", "accepted"]


def require_accepted_form(expected: Any) -> None:
    for call in expected if isinstance(expected, list) and expected else [None]:
        arguments = next(iter(call.values())) if isinstance(call, dict) and len(call) == 1 else None
        if not isinstance(arguments, dict) or not all(isinstance(item, list) for item in arguments.values()):
            raise InputError(
                "expected is not in the form of accepted calls",
                '[{"function": {"argument": [value, another accepted value]}}]',
            )


def _differences(value: Any, expected: Any, place: str = "", *, subset: bool = False) -> Iterator[str]:
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


def _exact(value: Any, expected: Any, *, subset: bool = False) -> str:
    return next(_differences(value, expected, subset=subset), "")


def _shown(value: Any) -> str:
    if isinstance(value, (dict, list)):
        return "an object" if isinstance(value, dict) else "a list"
    return (str(value) if isinstance(value, Decimal) else json.dumps(value, ensure_ascii=False))[:60]


def _accepted(value: Any, expected: Any) -> str:
    """How calls `{"name", "arguments"}` differ from the accepted ones `[{name: {argument: [alternatives]}}]`, or "".

    One call may stand alone or in a list; several may come in any order. An alternative "" also says that the argument
    may be left out; one with no alternatives must be. An object among the alternatives holds lists of alternatives
    itself, as deep as objects go; so does one inside a list. Texts must be equal: the leaderboard itself also ignores
    their case, blanks and punctuation.
    """
    calls = value if isinstance(value, list) else [value]
    if len(calls) != len(expected):
        return f"{len(calls)} calls, not {len(expected)}"
    reasons = [[_call_differs(call, accepted) for accepted in expected] for call in calls]
    taken: dict[int, int] = {}
    for index in range(len(calls)):
        if not _place(index, reasons, taken, set()):
            told = sorted(reasons[index], key=lambda reason: reason.startswith("name "))
            return f"call {index + 1}: {told[0] or 'another call is the same'}"
    return ""


def _place(index: int, reasons: list[list[str]], taken: dict[int, int], seen: set[int]) -> bool:
    """Give call `index` an accepted call of its own, moving earlier ones where they have another choice (Kuhn 1955)."""
    for other, reason in enumerate(reasons[index]):
        if not reason and other not in seen:
            seen.add(other)
            if other not in taken or _place(taken[other], reasons, taken, seen):
                taken[other] = index
                return True
    return False


def _call_differs(call: Any, accepted: dict[str, dict[str, list[Any]]]) -> str:
    ((name, arguments),) = accepted.items()
    if not isinstance(call, dict) or call.keys() != {"name", "arguments"}:
        return 'is not {"name", "arguments"}'
    if call["name"] != name:
        return f"name is {_shown(call['name'])}, not {_shown(name)}"
    given = call["arguments"]
    return _alternatives_differ(given, arguments) if isinstance(given, dict) else "arguments is not an object"


def _alternatives_differ(given: dict[str, Any], arguments: dict[str, Any]) -> str:
    for key, value in given.items():
        if key not in arguments:
            return f"{key} is not expected"
        if not any(_fits(value, alternative) for alternative in _alternatives(arguments[key])):
            return f"{key} is {_shown(value)}, not accepted"
    for key, item in arguments.items():
        if key not in given and _alternatives(item) and "" not in _alternatives(item):
            return f"{key} is missing"
    return ""


def _alternatives(item: Any) -> list[Any]:
    """The values that an argument may have; inside objects a few stand without their list."""
    return item if isinstance(item, list) else [item]


def _fits(value: Any, alternative: Any) -> bool:
    if isinstance(alternative, dict):
        return isinstance(value, dict) and not _alternatives_differ(value, alternative)
    if isinstance(alternative, list):
        same_length = isinstance(value, list) and len(value) == len(alternative)
        return same_length and all(_fits(*pair) for pair in zip(value, alternative, strict=True))
    return not _exact(value, alternative)


RULES: dict[Rule, Callable[..., str]] = {"exact": _exact, "subset": partial(_exact, subset=True), "accepted": _accepted}
