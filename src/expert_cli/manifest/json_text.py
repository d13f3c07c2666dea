"""Parses JSON text and finds the place of every key: the standard library parses, a scan of the tokens finds places.

Keys that start with "_" are comments: they are dropped, and may repeat. Other keys may not.
"""

from __future__ import annotations

import json
import math
import re
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from expert_cli.errors import ManifestError, ManifestIssue
from expert_cli.utils.text import shortened

MAX_BYTES = 1_000_000
MAX_DEPTH = 64

Path_ = tuple[str | int, ...]
JSON_SCHEMA: Path_ = ("training", "decoding", "json_schema")
"""The path of a JSON Schema, which has no comments and counts as one value."""
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:]|[^\s{}\[\],:"]+')
_HALF = re.compile("[\ud800-\udfff]")
_COMMENT = 'comments are keys that start with "_"'
_HINTS = {"}": "remove the comma before it", "]": "remove the comma before it", "/": _COMMENT, "#": _COMMENT}
_HINTS |= {"True": "write true", "False": "write false", "None": "write null", "undefined": "write null"}
_HINTS |= {"'": 'texts and keys stand in double quotes "', "Expecting property name": 'keys stand in double quotes "'}
_HINTS |= {"Expecting ',' delimiter": "a comma or a closing bracket is missing", "Illegal trailing": "remove the comma"}
_HINTS |= {"Unterminated": 'close it with "', "Invalid": "write \\\\ for a backslash"}
"""Hints by the text at the error, or by the standard library's message."""


@dataclass(frozen=True)
class JsonText:
    """A parsed file: its value without comments, and (line, column), both from 1, of every key and list element."""

    file: str
    value: Any
    places: dict[Path_, tuple[int, int]]

    def fault(self, path: Path_, message: str, suggestion: str = "") -> ManifestIssue:
        """Return an error at `path`; a path that is not in the file is placed at the block that should contain it."""
        there = path
        while there and there not in self.places:
            there = there[:-1]
        return ManifestIssue(self.file, *self.places.get(there, (1, 1)), dotted(path), message, suggestion)


def dotted(path: Path_) -> str:
    """Return ("base_models", 0, "name") as "base_models[0].name"."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else (f".{part}" if text else part)
    return text


def read_json_text(path: Path) -> JsonText:
    """Read and parse a file. Raises ManifestError if it is missing, too large or not UTF-8, and as `parse_json_text`."""
    try:
        if path.exists() and not path.is_file():
            raise _refusal(path, "is a folder or a device, not a file", "give the path of a manifest.json")
        if (size := path.stat().st_size) > MAX_BYTES:
            message = f"is {size:,} bytes, a manifest may have {MAX_BYTES:,}"
            raise _refusal(path, message, "data belongs into data files that it names")
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        hint = "give the path of a manifest.json, or make one: expert-cli init NAME"
        raise _refusal(path, error.strerror or str(error), hint) from error
    except UnicodeDecodeError as error:
        raise _refusal(path, f"is not UTF-8: {error}", "save it as UTF-8") from error
    return parse_json_text(text, path)


def parse_json_text(text: str, path: Path) -> JsonText:
    """Parse JSON text. path: its name in errors. Raises ManifestError, also for a repeated key."""
    too_deep = f"brackets nested more than {MAX_DEPTH} deep"
    try:
        value = json.loads(text, parse_int=lambda digits: int(digits) if len(digits) < 300 else math.inf)
    except json.JSONDecodeError as error:
        rest = text[error.pos :]
        hints = (hint for start, hint in _HINTS.items() if rest.startswith(start) or error.msg.startswith(start))
        raise _refusal(path, f"not JSON: {error.msg}", next(hints, ""), (error.lineno, error.colno)) from error
    except RecursionError as error:
        raise _refusal(path, too_deep) from error
    starts = [0, *(found.end() for found in re.finditer("\n", text))]
    places: dict[Path_, tuple[int, int]] = {}
    faults = []
    for key, at, token, begins in _scan(text):
        line = bisect_right(starts, at)
        place = line, at - starts[line - 1] + 1
        if len(key) > MAX_DEPTH:
            raise _refusal(path, too_deep, place=place)
        if told := _fault(token):
            faults.append(ManifestIssue(str(path), *place, dotted(key), told))
        if begins and key in places and not _is_comment(key):
            message = f"key occurs twice, first in line {places[key][0]}"
            faults.append(ManifestIssue(str(path), *place, dotted(key), message, "keep one of the two"))
        if begins:
            places.setdefault(key, place)
    if faults:
        raise ManifestError(path, faults)
    return JsonText(str(path), _without_comments(value, ()), places)


def _refusal(path: Path, message: str, hint: str = "", place: tuple[int, int] = (1, 1)) -> ManifestError:
    return ManifestError(path, [ManifestIssue(str(path), *place, "", message, hint)])


def _scan(text: str) -> Iterator[tuple[Path_, int, str, bool]]:
    """Yield each token of a valid text: path, offset, word, and whether it begins a key or a list element."""
    path: list[str | int] = []
    begins = False
    for found in _TOKEN.finditer(text):
        word = found[0]
        begins = begins and word not in "}]"
        if begins and isinstance(path[-1], str):
            path[-1] = json.loads(word)
        yield (*path,), found.start(), word, begins
        begins = word in "{[,"
        if word in "{[":
            path.append("" if word == "{" else 0)
        elif word in "}]":
            path.pop()
        elif word == "," and isinstance(last := path[-1], int):
            path[-1] = last + 1


def _fault(token: str) -> str:
    """Return why a key or value is refused, or ""."""
    if token.startswith('"'):
        return "half of a surrogate pair, which is no character" if _HALF.search(json.loads(token)) else ""
    is_number = token[-1].isdigit() or token.lstrip("-") in ("NaN", "Infinity")
    return f"{shortened(token)} is no finite number" if is_number and not math.isfinite(float(token)) else ""


def _is_comment(path: Path_) -> bool:
    """Whether a key is a comment; properties of a JSON Schema may begin with "_", too."""
    return str(path[-1]).startswith("_") and path[: len(JSON_SCHEMA)] != JSON_SCHEMA


def _without_comments(value: Any, path: Path_) -> Any:
    if isinstance(value, list):
        return [_without_comments(one, (*path, number)) for number, one in enumerate(value)]
    if isinstance(value, dict):
        members = ((key, (*path, key), one) for key, one in value.items())
        return {key: _without_comments(one, there) for key, there, one in members if not _is_comment(there)}
    return value
