"""JSON text -> plain values plus the place of every key, in one pass.

The standard library's parser forgets where a value stood and recurses without a limit. This one keeps line and column,
refuses repeated keys (but for comments, keys that start with "_", which it drops) and says what people really get wrong:
trailing commas, comments, single quotes, NaN. Its speed does not matter: manifests are capped at 4 MB.
"""

from __future__ import annotations

import json
import math
import re
import stat
from bisect import bisect_right
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

from expert_cli.errors import ManifestError, ManifestIssue

MAX_BYTES = 4_000_000
MAX_DEPTH = 64
MAX_NUMBER_CHARS = 40

Path_ = tuple[str | int, ...]
JSON_SCHEMA: Path_ = ("training", "decoding", "json_schema")
"""A value that is another language's: all of it counts, and as one."""
_WORD = re.compile(r"[A-Za-z_]+")
_SPACE = re.compile(r"[ \t\r\n]*")
_HALF = re.compile("[\ud800-\udfff]")
_LINE_END = re.compile("\n")
_SPELLINGS = {
    "True": "true",
    "False": "false",
    "None": "null",
    "NaN": "null",
    "Infinity": "a number",
    "undefined": "null",
}


def _refuse_constant(word: str) -> NoReturn:
    raise ValueError(word)


_SCALARS = json.JSONDecoder(parse_constant=_refuse_constant)


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
    if raw.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise _refusal(path, "is UTF-16 text", "save it as UTF-8")
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = raw[: error.start]
        place = before.count(b"\n") + 1, error.start - (before.rfind(b"\n") + 1) + 1
        raise _refusal(path, f"byte 0x{raw[error.start]:02x} is not UTF-8", "save it as UTF-8", place) from error


def parse_json_text(text: str, path: Path) -> JsonText:
    """Parse JSON text; `path` only names it in faults. Raises ManifestError."""
    parser = _Parser(text, path)
    parser.skip_space()
    if parser.at == len(text):
        raise _refusal(path, "is empty", "make a manifest: expert-cli init NAME")
    value = parser.value((), 0)
    parser.skip_space()
    if parser.at < len(text):
        parser.fail("text after the end of the JSON value", "remove it, or look for a bracket closed too early")
    if parser.repeated:
        raise ManifestError(path, parser.repeated)
    return JsonText(str(path), value, parser.places)


@dataclass
class _Parser:
    text: str
    path: Path
    at: int = 0
    places: dict[Path_, tuple[int, int]] = field(default_factory=dict)
    repeated: list[ManifestIssue] = field(default_factory=list)
    lines: list[int] = field(default_factory=lambda: [0])

    def __post_init__(self) -> None:
        self.lines += (found.end() for found in _LINE_END.finditer(self.text))

    def position(self, at: int) -> tuple[int, int]:
        line = bisect_right(self.lines, at)
        return line, at - self.lines[line - 1] + 1

    def fail(self, message: str, suggestion: str = "", at: int | None = None, key: str = "") -> NoReturn:
        raise _refusal(self.path, message, suggestion, self.position(self.at if at is None else at), key)

    def skip_space(self) -> None:
        match = _SPACE.match(self.text, self.at)
        self.at = match.end() if match else self.at

    def peek(self) -> str:
        self.skip_space()
        return self.text[self.at : self.at + 1]

    def value(self, path: Path_, depth: int) -> Any:
        if depth > MAX_DEPTH:
            self.fail(f"brackets nested more than {MAX_DEPTH} deep")
        char = self.peek()
        if char in ("{", "["):
            return self.members(path, depth, "}" if char == "{" else "]")
        return self.scalar(path)

    def scalar(self, path: Path_ = ()) -> Any:
        """Read a text, a number or a word as the standard library does, which also takes NaN and what has no end."""
        start = self.at
        try:
            value, end = _SCALARS.raw_decode(self.text, start)
        except ValueError as error:
            self.not_a_value(error)
        if (value is None or isinstance(value, bool)) and _WORD.match(self.text, end):  # "nullable"
            self.not_a_value()
        if isinstance(value, str) and _HALF.search(value):
            self.fail("half of a surrogate pair, which is no character", "write the character itself, or both halves")
        if not isinstance(value, str) and end - start > MAX_NUMBER_CHARS:
            self.fail("not a number")
        if isinstance(value, float) and not math.isfinite(value):
            message = f"{self.text[start:end]} is no finite number"
            self.fail(message, "the largest is about 1.8e308", key=dotted(path))
        self.at = end
        return value

    def not_a_value(self, error: ValueError | None = None) -> NoReturn:
        char, match = self.peek(), _WORD.match(self.text, self.at)
        if char == '"' and isinstance(error, json.JSONDecodeError):
            self.fail(f"broken string: {error.msg.lower()}", 'close it with ", write \\\\ for a backslash', error.pos)
        if char and char in "-0123456789":
            self.fail("not a number")
        word = match.group() if match else ""
        hints = {"/": 'comments are keys that start with "_"', "#": 'comments are keys that start with "_"'}
        hints |= {"'": 'strings stand in double quotes "', "": "the file ends too early: a bracket is not closed"}
        hint = f"write {_SPELLINGS[word]}" if word in _SPELLINGS else hints.get(char, "")
        what = f"{word or repr(char)} is not a JSON value" if char else "a value is missing at the end of the file"
        self.fail(what, hint)

    def members(self, path: Path_, depth: int, bracket: str) -> Any:
        """Read an object or a list, up to the bracket that closes it; keys that start with "_" are left out, but for those
        of a JSON Schema, whose properties may be called so.
        """
        members: dict[str | int, Any] = {}
        opened, self.at = self.at, self.at + 1
        if self.peek() == bracket:
            self.at += 1
            return members if bracket == "}" else []
        while True:
            char, start = self.peek(), self.at
            key = len(members) if bracket == "]" else self.key(char, opened)
            here = (*path, key)
            is_comment = bracket == "}" and str(key).startswith("_") and path[:3] != JSON_SCHEMA
            if key in members and not is_comment:
                message = f"key stands twice, first in line {self.places[here][0]}"
                self.repeated += _refusal(
                    self.path, message, "keep one of the two", self.position(start), dotted(here)
                ).faults
            self.places.setdefault(here, self.position(start))
            value = self.value(here, depth + 1)
            if not is_comment:
                members[key] = value
            if self.closes(bracket, opened):
                return members if bracket == "}" else list(members.values())

    def key(self, char: str, opened: int) -> str:
        """Read a key and the colon after it."""
        if not char:
            self.closes("}", opened)
        if char != '"':
            hint = 'comments are keys that start with "_"' if char in "/#" else 'keys stand in double quotes "'
            self.fail(f"{char!r} where a key should start", hint)
        key: str = self.scalar()
        if self.peek() != ":":
            self.fail(f'":" is missing after the key "{key}"')
        self.at += 1
        return key

    def closes(self, bracket: str, opened: int) -> bool:
        """After a member: True at the closing bracket, False at a comma that another member follows."""
        char = self.peek()
        if char == bracket:
            self.at += 1
            return True
        if char == ",":
            comma, self.at = self.at, self.at + 1
            if self.peek() == bracket:
                self.fail(f"trailing comma before {bracket!r}", "remove the comma", comma)
            return False
        if not char:
            line, column = self.position(opened)
            self.fail(f"the file ends, but the bracket of line {line}, column {column} is open", f"add {bracket!r}")
        return self.fail(f"{char!r} where ',' or {bracket!r} should stand", "a comma may be missing before it")
