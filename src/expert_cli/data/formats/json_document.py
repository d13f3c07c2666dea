"""Rows of a .json file, one list of them, each with the line it begins in: a file of 1 GB is never in memory as a whole.

By the standard library, over a window that moves along, which costs 8 % of the time (77 to 80 MB/s on short rows). pyarrow.json
with the conversion to Python is no faster, and makes a timestamp of "2024-01-01" and two rows of a line with two objects. ijson
tells no place of what it reads.
"""

from __future__ import annotations

import codecs
import io
import json
import re
from collections.abc import Callable, Iterator
from typing import TypeVar

from expert_cli.data.formats import json_lines
from expert_cli.data.formats.compression import open_data
from expert_cli.data.formats.json_lines import json_row
from expert_cli.data.formats.lines import refuse_utf16
from expert_cli.data.formats.raw_row import ColumnFilter, RawRow
from expert_cli.data.places import DataFile
from expert_cli.errors import InputError
from expert_cli.utils.files import KeyTwice

_WINDOW_BYTES = 1 << 22
_LONGEST_TOKEN = 16
"""Characters that a cut may leave of a value that is no string: of a number, `true`, two escaped surrogates."""
_DECODER = json.JSONDecoder()
_BLANKS = " \t\r\n"
_SPACE = re.compile(f"[{_BLANKS}]*")

T = TypeVar("T")


def read_json_rows(path: DataFile, columns: ColumnFilter) -> Iterator[RawRow]:
    """A list of rows, {"data": [rows]}, one row over several lines, or rows line by line under the wrong suffix."""
    with open_data(path) as file:
        refuse_utf16(path, file)
        text = _Window(path, file)
        if text.peek() == "{":
            form = json_lines.read_rows(path, columns) if _stands_before_more(path) else _under_data(text, columns)
            yield from form
        elif text.peek() == "[":
            yield from _rows(text, columns)
            if text.peek():
                raise text.fault("something follows the list of rows")
        else:
            raise text.fault("neither a list nor an object")


def _stands_before_more(path: DataFile) -> bool:
    """Whether the object that a file begins with, if it fits the window, has something behind it: rows stand line by line."""
    with open_data(path) as file:
        text = _Window(path, file)
        text.peek()
        try:
            text.value(_DECODER.raw_decode, may_grow=False)
        except _TooLong:
            return False
        return bool(text.peek())


def _rows(text: _Window, columns: ColumnFilter) -> Iterator[RawRow]:
    for _ in text.items("]"):
        where = text.place()
        yield json_row(where, text.value(_row), columns)


def _row(text: str, at: int) -> tuple[object, int]:
    try:
        return json_lines.DECODER.raw_decode(text, at)
    except KeyTwice as twice:
        return twice, _DECODER.raw_decode(text, at)[1]


def _under_data(text: _Window, columns: ColumnFilter) -> Iterator[RawRow]:
    """The rows of an object's list "data". No other list of it may hold rows."""
    absent, second, is_found = text.fault('an object without a list "data"', what="no rows"), None, False
    for _ in text.items("}"):
        key = text.key()
        if text.peek() != "[":
            text.value(_DECODER.raw_decode)
            continue
        if key != "data" or is_found:
            fault = text.fault(f'a second list of rows, {json.dumps(key)}, beside "data"')
            second = second or (fault if _holds_rows(text, columns) or key == "data" else None)
        elif not second:
            yield from _rows(text, columns)
        is_found = is_found or key == "data"
        if is_found and second:
            raise second
    if is_found and text.peek():
        raise text.fault("something follows the object")
    if not is_found and not text.peek():
        if second:
            raise absent
        yield _only_row(text.path, columns, absent)
    elif not is_found:  # a first row that is longer than the window
        yield from json_lines.read_rows(text.path, columns)


def _only_row(path: DataFile, columns: ColumnFilter, absent: InputError) -> RawRow:
    """The object that a file is, as a row: it has a column of interest, and fits the window as any row of a chat does."""
    with open_data(path) as file:
        text = _Window(path, file)
        text.peek()
        where = text.place()
        try:
            row = json_row(where, text.value(_row, may_grow=False), columns)
        except _TooLong:
            raise absent from None
    if not (row.fields or row.fault):
        raise absent
    return row


def _holds_rows(text: _Window, columns: ColumnFilter) -> bool:
    """Whether a list, which is passed over, begins with an object that has a column of interest."""
    items = (text.value(_DECODER.raw_decode) for _ in text.items("]"))
    are_rows = [isinstance(item, dict) and any(map(columns.wants, item)) for item in items]
    return any(are_rows[:1])


class _TooLong(Exception):
    """A value that goes beyond the window."""


class _Window:
    """The part of a JSON text that is in memory, and how far it is read."""

    def __init__(self, path: DataFile, file: io.BufferedReader) -> None:
        self.path = path
        self._file = file
        self._decoder = codecs.getincrementaldecoder("utf-8-sig")()
        self._text = ""
        self._at = 0
        self._counted, self._line, self._line_start = 0, 1, 0

    def peek(self) -> str:
        """Go to the next character that is no white space and return it, "" at the end."""
        sign = self._text[self._at : self._at + 1]
        if sign and sign not in _BLANKS:
            return sign
        while True:
            match = _SPACE.match(self._text, self._at)
            self._at = match.end() if match else self._at
            if self._at < len(self._text) or not self._read_on():
                return self._text[self._at : self._at + 1]

    def value(self, decode: Callable[[str, int], tuple[T, int]], *, may_grow: bool = True) -> T:
        """Return what `decode` makes of the value that begins here, and go behind it. Raises InputError, _TooLong."""
        while True:
            try:
                value, end = decode(self._text, self._at)
            except json.JSONDecodeError as error:
                fault, end = self.fault(error.msg, error.pos), error.pos + _LONGEST_TOKEN
                if end < len(self._text) and not error.msg.startswith("Unterminated string"):
                    raise fault from error
                if not may_grow and self._file.peek(1):
                    raise _TooLong from error
                if not self._read_on():
                    raise fault from error
            except RecursionError as error:
                raise InputError(f"{self.path}: nested too deeply to be rows") from error
            else:
                is_cut = self._text[end - 1] not in '}]"' and end + _LONGEST_TOKEN >= len(
                    self._text
                )  # "-12." may go on
                if not is_cut or not self._read_on():
                    self._at = end
                    return value

    def items(self, closing: str) -> Iterator[None]:
        """Stop at each item of the list or object that begins here; whoever is told reads it. Raises InputError."""
        self._at += 1
        sign = self.peek()
        while sign != closing:
            yield
            sign = self.peek()
            if sign == ",":
                self._at += 1
                sign = self.peek()
            elif sign != closing:
                raise self.fault(f"expecting ',' or '{closing}' after a row")
        self._at += 1

    def key(self) -> object:
        """Return the name of the member that begins here, and go to its value. Raises InputError."""
        if self.peek() != '"':
            raise self.fault("expecting a name in double quotes")
        key = self.value(_DECODER.raw_decode)
        if self.peek() != ":":
            raise self.fault("expecting ':' after a name")
        self._at += 1
        return key

    def place(self) -> str:
        """Return the file and the line."""
        self._line, self._line_start = self._lines(self._at)
        self._counted = self._at
        return f"{self.path}:{self._line}"

    def fault(self, why: str, at: int | None = None, *, what: str = "not valid JSON") -> InputError:
        """Return what is wrong here, or there in the window, as an error."""
        at = self._at if at is None else at
        line, start = self._lines(at)
        return InputError(
            f"{self.path}:{line}:{at - start + 1}: {what}: {why}",
            'A .json file holds one list of rows, {"data": [rows]}, one row, or a row a line.',
        )

    def _lines(self, at: int) -> tuple[int, int]:
        """The line of a place that is not counted yet, and where in the window it begins."""
        lines = self._text.count("\n", self._counted, at)
        return self._line + lines, self._text.rfind("\n", self._counted, at) + 1 if lines else self._line_start

    def _read_on(self) -> bool:
        """Forget what was read, and read as much again as is left of the window; False at the end of the file."""
        more, is_end = "", False
        while not (more or is_end):
            data = self._file.read(max(_WINDOW_BYTES, len(self._text) - self._at))
            is_end = not data
            try:
                more = self._decoder.decode(data, is_end)
            except UnicodeDecodeError as error:
                line = self._lines(len(self._text))[0] + error.object.count(b"\n", 0, error.start)
                raise InputError(f"{self.path}:{line}: not valid UTF-8", "Save the file as UTF-8.") from error
        if more:
            self.place()
            self._text = self._text[self._at :] + more
            self._line_start -= self._at
            self._at = self._counted = 0
        return bool(more)
