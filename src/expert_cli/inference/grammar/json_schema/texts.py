"""Whether a text, or one that begins so, fits what a JSON Schema says of texts."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

import regex

from expert_cli.errors import InputError

_LEAP = r"[0-9]{2}(?:[02468][048]|[13579][26])-02-29"
_DAYS = (
    r"(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)|02-(?:0[1-9]|1[0-9]|2[0-8])"
)
_DATE = rf"(?:[0-9]{{4}}-(?:{_DAYS})|{_LEAP})"
_TIME = r"(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\.[0-9]+)?(?:[zZ]|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])"
_NAME = r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
_LETTERS = r"A-Za-z0-9!#$%&'*+/=?^_`{|}~-"
_BYTE = r"(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
_URI_PART = r"(?:[A-Za-z0-9._~:/?@!$&'()*+,;=-]|%[0-9a-fA-F]{2})*"
FORMATS = {
    "date": _DATE,
    "time": _TIME,
    "date-time": rf"{_DATE}[tT]{_TIME}",
    "email": rf"[{_LETTERS}](?:\.?[{_LETTERS}]){{0,63}}@{_NAME}(?:\.{_NAME})*",
    "uuid": r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}",
    "uri": rf"[A-Za-z][A-Za-z0-9+.-]*:{_URI_PART}(?:#{_URI_PART})?",
    "ipv4": rf"{_BYTE}(?:\.{_BYTE}){{3}}",
}
_ESCAPES = {'"': '"', "\\": "\\", "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}


# An escape, a set, or the end, which is before no line feed in a pattern of JSON Schema.
_END = re.compile(r"\\.|\[(?:\\.|[^\]\\])*\]|\$", re.DOTALL)
_TIMEOUT_S = 0.1


@lru_cache(maxsize=1024)
def pattern_of(text: str) -> regex.Pattern[str]:
    """Return a compiled `pattern`. Raises InputError for one that cannot be read."""
    try:
        return regex.compile(_END.sub(lambda part: r"\Z" if part[0] == "$" else part[0], text), regex.ASCII)
    except regex.error as error:
        raise InputError(f"the pattern {text!r} cannot be read: {error}") from error


def could_match(text: str, schema: Mapping[str, Any], *, done: bool) -> bool:
    """Return whether a text fits, or, where it is not done, can be one that does."""
    if "maxLength" in schema and len(text) > schema["maxLength"]:
        return False
    if done and len(text) < schema.get("minLength", 0):
        return False
    try:
        if "pattern" in schema:
            found = pattern_of(schema["pattern"]).search(text, partial=not done, timeout=_TIMEOUT_S)
            if not found:
                return False
    except TimeoutError:
        pass  # a pattern that takes ages holds nothing
    form = FORMATS.get(schema.get("format", ""))
    return form is None or bool(pattern_of(form).fullmatch(text, partial=not done))


def escaped_characters(half: str) -> Iterator[str]:
    r"""Yield the characters that an escape can stand for which begins as `half` does: "\", "\u", "\u00"."""
    if half == "\\":
        yield from _ESCAPES.values()
    digits = half[2:]
    if len(digits) > 4:
        yield "\U0001f642"  # the first half of a character beyond U+FFFF: one for all
        return
    low, count = int(digits.ljust(4, "0"), 16), 16 ** (4 - len(digits))
    # the first ones all, of the others one in 256: to ask a pattern takes microseconds
    points = (*range(low, low + min(count, 256)), *range(low + 256, low + count, 256))
    yield from (chr(point) for point in points if not 0xD800 <= point < 0xE000)
    if low <= 0xD800 < low + count or 0xD800 <= low < 0xDC00:
        yield "\U0001f642"
