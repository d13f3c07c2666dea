"""What files hold whose names tell nothing, by their first bytes: rows under another ending are named, not passed over."""

from __future__ import annotations

import codecs
import json
import re
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path

from expert_cli.utils.filesystem import open_unnoticed

MOST_FILES = 10_000
"""So many are opened; a folder of a million pictures is not read through."""
_HEAD_BYTES = 4096
_MOST_HEADERS = 20
_BEGINNINGS = {
    "Parquet": re.compile(rb"PAR1"),
    "Arrow": re.compile(rb"ARROW1|\xff{4}.{2}[\x00-\x0f]\x00", re.DOTALL),  # a file, a stream
    "gzip": re.compile(rb"\x1f\x8b\x08"),
    "zstd": re.compile(rb"\x28\xb5\x2f\xfd"),
    "bzip2": re.compile(rb"BZh[1-9]1AY&SY"),
    "xz": re.compile(rb"\xfd7zXZ\x00"),
    "lz4": re.compile(rb"\x04\x22\x4d\x18"),
    "zip": re.compile(rb"PK\x03\x04"),
    "SQLite": re.compile(rb"SQLite format 3\x00"),
    "a list of JSON objects": re.compile(rb"\[\s*\{\s*[\"}]"),
}


def rows_inside(folder: Path, names: Sequence[str], tables: Sequence[str]) -> list[str]:
    """Return those of the files `names` that begin as data does, and how; nothing but a file is opened.

    tables: CSV files beside them, whose header makes another file with this header one too.
    """
    lines = (_first_line(_head(folder / name)) for name in tables[:_MOST_HEADERS])
    headers = {line for line in lines if line}
    found = list(_told(folder, names[:MOST_FILES], headers))
    if len(names) > MOST_FILES:
        found.append(f"{len(names) - MOST_FILES:,} files of other endings (not looked into)")
    return found


def _told(folder: Path, names: Sequence[str], headers: set[bytes]) -> Iterator[str]:
    for name in names:
        try:
            head = _head(folder / name)
        except PermissionError:
            yield f"{name} (may not be looked into)"
            continue
        kind = next((kind for kind, start in _BEGINNINGS.items() if start.match(head)), "")
        line = _first_line(head)
        if not kind and _is_object(line, whole=len(line) < len(head)):
            kind = "JSON lines"
        if kind or line in headers:
            yield f"{name} (begins as {kind or 'the CSV files beside it'})"


def _head(path: Path) -> bytes:
    """The first bytes of a file, b"" of a pipe, a device, or a link to nothing. Raises PermissionError."""
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            return b""
        with open_unnoticed(path) as file:
            return (file.read(_HEAD_BYTES) or b"").removeprefix(codecs.BOM_UTF8).lstrip()
    except PermissionError:
        raise
    except OSError:
        return b""


def _first_line(head: bytes) -> bytes:
    return head.partition(b"\n")[0].rstrip()


def _is_object(line: bytes, *, whole: bool) -> bool:
    """Whether a line is a JSON object; of a cut one its beginning tells."""
    if not re.match(rb"\{\s*\"", line):
        return False
    try:
        return not whole or isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False
