"""JSON text -> plain values plus the place of every key: the standard library parses, and a scan of the tokens finds places.

Keys that start with "_" are comments: they are dropped, and may repeat. Other keys may not. Faults say what people really get
wrong: trailing commas, comments, single quotes, NaN.
"""

from __future__ import annotations

import json
import math
import re
import stat
from bisect import bisect_right
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from expert_cli.errors import ManifestError, ManifestIssue
from expert_cli.utils.text import wide_encoding

MAX_BYTES = 4_000_000
MAX_DEPTH = 64
MAX_NUMBER_CHARS = 40

Path_ = tuple[str | int, ...]
JSON_SCHEMA: Path_ = ("training", "decoding", "json_schema")
"""A value that is another language's: all of it counts, and as one."""
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:]|[^\s{}\[\],:"]+')
_HALF = re.compile("[\ud800-\udfff]")
_COMMENT = 'comments are keys that start with "_"'
_HINTS = {"True": "write true", "False": "write false", "None": "write null", "undefined": "write null"}
_HINTS |= {"NaN": "write null", "Infinity": "write a number", "/": _COMMENT, "#": _COMMENT}
_HINTS |= {"'": 'texts and keys stand in double quotes "', "Expecting property name": 'keys stand in double quotes "'}
_HINTS |= {"Expecting ',' delimiter": "a comma may be missing", "Extra data": "a bracket may be closed too early"}
_HINTS |= {"Unterminated": 'close it with "', "Invalid": "write \\\\ for a backslash"}
"""What to do, by how the text goes on where it is wrong, or by how the standard library names the fault."""


@dataclass(frozen=True)
class JsonText:
    """A parsed file: its value without comments, and (line, column), both from 1, of every key and list element."""

    file: str
    value: Any
    places: dict[Path_, tuple[int, int]]

    def place(self, path: Path_) -> tuple[int, int]:
        """Return where `path` stands, or the nearest enclosing key that does."""
        while path and path not in self.places:
            path = path[:-1]
        return self.places.get(path, (1, 1))

    def fault(self, path: Path_, message: str, suggestion: str = "") -> ManifestIssue:
        """Return a fault at `path`; a path that is not in the file is placed at the block that should hold it."""
        line, column = self.place(path)
        return ManifestIssue(self.file, line, column, dotted(path), message, suggestion)


def dotted(path: Path_) -> str:
    """Return ("base_models", 0, "name") as "base_models[0].name"."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else (f".{part}" if text else part)
    return text


def read_json_text(path: Path) -> JsonText:
    """Read and parse a file.

    Raises ManifestError: absent, a folder, too large, not UTF-8, not JSON, nested too deeply, a key twice.
    """
    try:
        facts = path.stat()
        if stat.S_ISDIR(facts.st_mode):
            raise _refusal(path, "is a folder", f"name the file: {path / 'manifest.json'}")
        if not stat.S_ISREG(facts.st_mode):
            raise _refusal(path, "is a pipe or a device, not a file", "write the manifest to a file first")
        if (size := facts.st_size) > MAX_BYTES:
            message = f"is {size:,} bytes, a manifest may have {MAX_BYTES:,}"
            raise _refusal(path, message, "data belongs into data files that it names")
        raw = path.read_bytes()
    except OSError as error:
        hint = "give the path of a manifest.json, or make one: expert-cli init NAME"
        reason = "no such file" if isinstance(error, FileNotFoundError) else (error.strerror or str(error))
        raise _refusal(path, reason, hint) from error
    return parse_json_text(_decode(raw, path), path)


def _refusal(path: Path, message: str, hint: str, place: tuple[int, int] = (1, 1), key: str = "") -> ManifestError:
    return ManifestError(path, [ManifestIssue(str(path), *place, key, message, hint)])


def _decode(raw: bytes, path: Path) -> str:
    if name := wide_encoding(raw):
        raise _refusal(path, f"is {name} text", "save it as UTF-8")
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = raw[: error.start]
        place = before.count(b"\n") + 1, error.start - (before.rfind(b"\n") + 1) + 1
        raise _refusal(path, f"byte 0x{raw[error.start]:02x} is not UTF-8", "save it as UTF-8", place) from error


def parse_json_text(text: str, path: Path) -> JsonText:
    """Parse JSON text; `path` only names it in faults. Raises ManifestError."""
    if not text.strip(" \t\r\n"):
        raise _refusal(path, "is empty", "make a manifest: expert-cli init NAME")
    scan = _Scan(text, path)
    opened = scan.open_brackets()
    try:
        value = json.loads(
            text, parse_int=lambda digits: int(digits[: MAX_NUMBER_CHARS + 1])
        )  # the scan refuses longer ones
    except json.JSONDecodeError as error:
        scan.explain(error, opened)
    scan.find_places()
    if scan.repeated:
        raise ManifestError(path, scan.repeated)
    return JsonText(str(path), _without_comments(value, ()), scan.places)


def _without_comments(value: Any, path: Path_) -> Any:
    """Return a value without keys that start with "_"; the properties of a JSON Schema may be called so."""
    if path == JSON_SCHEMA or not isinstance(value, dict | list):
        return value
    if isinstance(value, list):
        return [_without_comments(one, (*path, number)) for number, one in enumerate(value)]
    return {key: _without_comments(one, (*path, key)) for key, one in value.items() if not key.startswith("_")}


class _Scan:
    """Goes through the tokens of a text. places: of its keys and list elements; repeated: a fault a key that stands twice."""

    def __init__(self, text: str, path: Path) -> None:
        self.text, self.path = text, path
        self.places: dict[Path_, tuple[int, int]] = {}
        self.repeated: list[ManifestIssue] = []
        self._starts = [0, *(found.end() for found in re.finditer("\n", text))]

    def position(self, at: int) -> tuple[int, int]:
        line = bisect_right(self._starts, at)
        return line, at - self._starts[line - 1] + 1

    def fail(self, at: int, message: str, hint: str = "", key: str = "") -> NoReturn:
        raise _refusal(self.path, message, hint, self.position(at), key)

    def open_brackets(self) -> list[int]:
        """Return where the brackets stand that nothing closes. Raises ManifestError where too many are open at once."""
        opened: list[int] = []
        for token in _TOKEN.finditer(self.text):
            if token[0] in "{[":
                if len(opened) > MAX_DEPTH:
                    self.fail(token.start(), f"brackets nested more than {MAX_DEPTH} deep")
                opened.append(token.start())
            elif token[0] in "}]" and opened:
                opened.pop()
        return opened

    def explain(self, error: json.JSONDecodeError, opened: list[int]) -> NoReturn:
        """Say what is wrong where the standard library stopped, and what to do."""
        at, before = error.pos, self.text[: error.pos].rstrip()
        rest = self.text[at:]
        if before.endswith(",") and rest[:1] in ("}", "]"):
            self.fail(len(before) - 1, f"trailing comma before {rest[:1]!r}", "remove the comma")
        if error.msg.startswith("Illegal trailing comma"):  # Python 3.13 stops at the comma
            self.fail(at, f"trailing comma before {rest[1:].lstrip()[:1]!r}", "remove the comma")
        if not rest and opened:
            line, column = self.position(opened[-1])
            hint = "add '}'" if self.text[opened[-1]] == "{" else "add ']'"
            self.fail(at, f"the file ends, but the bracket of line {line}, column {column} is open", hint)
        hints = [hint for start, hint in _HINTS.items() if rest.startswith(start) or error.msg.startswith(start)]
        self.fail(at, f"not JSON: {error.msg}", next(iter(hints), ""))

    def find_places(self) -> None:
        """Find the places of a text that parses. Raises ManifestError for a value that is not taken."""
        path: list[str | int] = []
        in_list: list[bool] = []
        begins = False
        for token in _TOKEN.finditer(self.text):
            text, at = token[0], token.start()
            if begins and text not in "}]":
                begins = False
                if not in_list[-1]:
                    path[-1] = self._scalar(text, at)
                    self._note((*path,), at)
                    continue
                self._note((*path,), at)
            if text in "{[":
                in_list.append(text == "[")
                path.append(0 if text == "[" else "")
                begins = True
            elif text in "}]":
                in_list.pop()
                path.pop()
                begins = False
            elif text == ",":
                last = path[-1]
                path[-1] = last + 1 if isinstance(last, int) else ""
                begins = True
            elif text != ":":
                self._scalar(text, at, (*path,))

    def _note(self, path: Path_, at: int) -> None:
        last = str(path[-1])
        if path in self.places and (not last.startswith("_") or path[:3] == JSON_SCHEMA):
            message = f"key stands twice, first in line {self.places[path][0]}"
            self.repeated += _refusal(self.path, message, "keep one of the two", self.position(at), dotted(path)).faults
        self.places.setdefault(path, self.position(at))

    def _scalar(self, text: str, at: int, path: Path_ = ()) -> Any:
        if text.startswith('"'):
            value = json.loads(text)
            if _HALF.search(value):
                self.fail(
                    at, "half of a surrogate pair, which is no character", "write the character itself, or both halves"
                )
            return value
        if text.lstrip("-") in ("NaN", "Infinity"):
            self.fail(at, f"{text} is not a JSON value", _HINTS[text.lstrip("-")])
        if text[-1].isdigit():
            if len(text) > MAX_NUMBER_CHARS:
                self.fail(
                    at, f"a number of {len(text):,} characters, at most {MAX_NUMBER_CHARS} are read", key=dotted(path)
                )
            if not math.isfinite(float(text)):
                self.fail(at, f"{text} is no finite number", "the largest is about 1.8e308", dotted(path))
        return None
