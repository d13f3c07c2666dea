"""Formats numbers, times and lines of text for people."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Sequence
from datetime import UTC, datetime
from subprocess import list2cmdline

from expert_cli.utils.redaction import redact

_TYPE_NAMES = {bool: "true or false", int: "a number", float: "a number", dict: "an object", list: "a list"}
_TYPE_NAMES |= {bytes: "bytes", str: "text", type(None): "null"}
_HASH = re.compile(r"[0-9a-f]{64}")
_FIGURE = re.compile(r"(?:[\d,]+(?:\.\d+)?(?:%| [kMGT]?B)?)?")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def size_text(count: float) -> str:
    """Return a number of bytes in steps of a thousand: "812 B", "1.2 MB", "45 GB"."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 999.5:
            return f"{count:.0f} {unit}" if unit == "B" or count >= 9.95 else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"


def count(done: float, total: float | None, unit: str) -> str:
    """Return the amount done, the total, and the unit; bytes ("B") are written by `size_text`."""
    write, shown = (size_text, "") if unit == "B" else ("{:,.0f}".format, unit)
    of_total = f"/{write(total)}" if total else ""
    return f"{write(done)}{of_total} {shown}".rstrip()


def plural(count: int, one: str) -> str:
    """Return a count with its noun."""
    return f"{count:,} {one if count == 1 else f'{one}s'}"


def clean(text: str) -> str:
    """Return text that is safe for a terminal: without secrets, control characters escaped."""
    return _CONTROL.sub(lambda match: f"\\x{ord(match[0]):02x}", redact(text))


def shortened(text: str, length: int = 60) -> str:
    """Return a text of at most `length` characters, ending with an ellipsis if it was cut."""
    return text if len(text) <= length else f"{text[: length - 1]}…"


def short_place(where: str) -> str:
    """Return "folder/file:line" of a place, independent of the machine."""
    return "/".join(where.replace("\\", "/").split("/")[-2:])


def one_line(text: str) -> str:
    """Return text of several lines as one line."""
    return " ".join(line.strip() for line in clean(text).splitlines() if line.strip())


def change(old: str, new: str) -> str:
    """Return "old -> new" for one line, with hashes cut to 12 digits and long texts shortened."""
    return " -> ".join(value[:12] if _HASH.fullmatch(value) else shortened(value, 48) for value in (old, new))


def quoted(*words: object) -> str:
    """Return a command line of these words, to be pasted into a POSIX shell, or on Windows into cmd or PowerShell."""
    said = [str(word) for word in words]
    return list2cmdline(said) if os.name == "nt" else shlex.join(said)


def type_name(value: object) -> str:
    """Return the name of a value's type in JSON."""
    return next((name for kind, name in _TYPE_NAMES.items() if isinstance(value, kind)), f"a {type(value).__name__}")


def first_line(error: BaseException) -> str:
    """Return the first line of a library's error, shortened; the name of its class if it has no message."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:200]


def failure_lines(message: str, hint: str) -> list[str]:
    """Return the lines of an error: what and where, and what to do."""
    return [f"error: {one_line(message)}", *([f"  {one_line(hint)}"] if hint else [])]


def duration(seconds: float) -> str:
    """Return seconds in words: "52 s", "14 min", "2 h 05 min"."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h {minutes % 60:02d} min"


def moment(iso: str) -> str:
    """Return an ISO time for people; any other text unchanged."""
    try:
        return datetime.fromisoformat(iso).astimezone(UTC).strftime("%Y-%m-%d %H:%M UTC")
    except ValueError:
        return iso


def is_figures(column: Sequence[str]) -> bool:
    """Return whether a column contains only numbers and empty cells; such columns are aligned right."""
    return any(column) and all(_FIGURE.fullmatch(cell) for cell in column)


def aligned(columns: list[str], rows: list[list[str]]) -> list[str]:
    """Return a table as lines: the header, if any, and the rows. Two blanks separate cells; numbers are aligned right."""
    head = [columns] if any(columns) and rows else []
    cells = []
    for column in zip(*head, *rows, strict=True):
        right, width = is_figures(column[len(head) :]), max(map(len, column))
        cells.append([cell.rjust(width) if right else cell.ljust(width) for cell in column])
    return ["  ".join(line).rstrip() for line in zip(*cells, strict=True)]


def normalize(text: str) -> str:
    """Return a text in lower case, with white space normalized."""
    return " ".join(text.lower().split())


def wide_encoding(start: bytes) -> str:
    """Return "UTF-32" or "UTF-16" if a file begins with that byte order mark, else ""."""
    marks = ((b"\xff\xfe\0\0", b"\0\0\xfe\xff"), "UTF-32"), ((b"\xff\xfe", b"\xfe\xff"), "UTF-16")
    return next((name for begins, name in marks if start.startswith(begins)), "")
