"""Figures, times and lines of text for people."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from shlex import quote

from expert_cli.utils.redaction import redact

_TYPE_NAMES = {bool: "true or false", int: "a number", float: "a number", dict: "an object", list: "a list"}
_TYPE_NAMES |= {bytes: "bytes", str: "text", type(None): "null"}
_HASH = re.compile(r"[0-9a-f]{64}")
_FIGURE = re.compile(r"(?:[\d,]+(?:\.\d+)?(?:%| [kMGT]?B)?)?")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def size_text(count: float) -> str:
    """Return a number of bytes as a person reads it, in steps of a thousand: "812 B", "1.2 MB", "45 GB"."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 999.5:
            return f"{count:.0f} {unit}" if unit == "B" or count >= 9.95 else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"


def count(done: float, total: float | None, unit: str) -> str:
    """Return how much is done, of how much, and its unit; of "B", bytes, as `size_text` writes them."""
    write, shown = (size_text, "") if unit == "B" else ("{:,.0f}".format, unit)
    of_total = f"/{write(total)}" if total else ""
    return f"{write(done)}{of_total} {shown}".rstrip()


def plural(count: int, one: str) -> str:
    """Return a count and what is counted."""
    return f"{count:,} {one if count == 1 else f'{one}s'}"


def clean(text: str) -> str:
    """Return text that a terminal takes as text: without secrets, control characters spelled out."""
    return _CONTROL.sub(lambda match: f"\\x{ord(match[0]):02x}", redact(text))


def shortened(text: str, length: int = 60) -> str:
    """Return a text of at most `length` characters; of a longer one the beginning and an ellipsis."""
    return text if len(text) <= length else f"{text[: length - 1]}…"


def short_place(where: str) -> str:
    """Return "folder/file:line" of a place: what tells files of a data set apart, whatever machine they are on."""
    return "/".join(where.replace("\\", "/").split("/")[-2:])


def one_line(text: str) -> str:
    """Return text of several lines as one."""
    return " ".join(line.strip() for line in clean(text).splitlines() if line.strip())


def change(old: str, new: str) -> str:
    """Return two values as they fit in a line: of hashes the first 12 digits, of long texts the beginning."""
    return " -> ".join(value[:12] if _HASH.fullmatch(value) else shortened(value, 48) for value in (old, new))


def quoted(path: object) -> str:
    """Return a path as a word of a command line that can be copied: one with blanks is quoted."""
    return quote(str(path))


def type_name(value: object) -> str:
    """Return what a value of JSON or of a column is called where another is wanted."""
    return next((name for kind, name in _TYPE_NAMES.items() if isinstance(value, kind)), f"a {type(value).__name__}")


def first_line(error: BaseException) -> str:
    """Return what a library's error says, as far as it fits in a line of ours; its name where it says nothing."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:200]


def failure_lines(message: str, hint: str) -> list[str]:
    """Return an error as it is told: a line of what and where, a line of what to do."""
    return [f"error: {one_line(message)}", *([f"  {one_line(hint)}"] if hint else [])]


def duration(seconds: float) -> str:
    """Return seconds in words: "52 s", "14 min", "2 h 05 min"."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h {minutes % 60:02d} min"


def moment(iso: str) -> str:
    """Return an ISO time for people; a text that is none as it is."""
    try:
        return datetime.fromisoformat(iso).astimezone(UTC).strftime("%Y-%m-%d %H:%M UTC")
    except ValueError:
        return iso


def is_figures(column: Sequence[str]) -> bool:
    """Whether a column holds nothing but figures, which stand on the right."""
    return any(column) and all(_FIGURE.fullmatch(cell) for cell in column)


def aligned(columns: list[str], rows: list[list[str]]) -> list[str]:
    """Return a table as lines: the heads, where there are any, and every row, two blanks apart; figures on the right."""
    head = [columns] if any(columns) and rows else []
    cells = []
    for column in zip(*head, *rows, strict=True):
        right, width = is_figures(column[len(head) :]), max(map(len, column))
        cells.append([cell.rjust(width) if right else cell.ljust(width) for cell in column])
    return ["  ".join(line).rstrip() for line in zip(*cells, strict=True)]


def normalize(text: str) -> str:
    """Return a text in small letters, one blank in place of any."""
    return " ".join(text.lower().split())


def wide_encoding(start: bytes) -> str:
    """Return "UTF-32" or "UTF-16" where a file begins with the mark of it, else ""."""
    marks = ((b"\xff\xfe\0\0", b"\0\0\xfe\xff"), "UTF-32"), ((b"\xff\xfe", b"\xfe\xff"), "UTF-16")
    return next((name for begins, name in marks if start.startswith(begins)), "")
