"""What files hold whose names tell nothing, by their first bytes: rows under another ending are named, not passed over."""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from expert_cli.data.formats.compression import COMPRESSIONS
from expert_cli.data.formats.registry import FORMATS, PACKED, format_of
from expert_cli.data.places import has_file, read_start
from expert_cli.utils.object_storage import StoredFolder

MOST_FILES = 10_000
"""So many are opened; a folder of a million pictures is not read through."""
MOST_STORED = 100
"""The same of files in object storage, each of which is a request or two."""
_HEAD_BYTES = 4096
_MOST_HEADERS = 20
_BEGINNINGS: Mapping[str, Callable[[bytes], object]] = {
    **{form.label: form.begins for form in FORMATS.values() if form.begins},
    **{name: compression.begins for name, compression in COMPRESSIONS.items()},
    **{name: re.compile(start).match for name, start in PACKED.values()},
    "SQLite": re.compile(rb"SQLite format 3\x00").match,
}


def rows_inside(folder: Path | StoredFolder, names: Sequence[str], data: Sequence[str]) -> list[str]:
    """Return those of the files `names` that begin as data does, and how; nothing but a file is opened.

    data: files of rows beside them. Where only its first line tells of a format (CSV's header), another file with the same
    one is of this format too.
    """
    told_by_line = [(name, form) for name in data if (form := format_of(name)) and not form.begins]
    lines = {_first_line(_head(folder / name)): form.label for name, form in told_by_line[:_MOST_HEADERS]}
    most = MOST_FILES if isinstance(folder, Path) else MOST_STORED
    found = list(_begun(folder, names[:most], {line: label for line, label in lines.items() if line}))
    if len(names) > most:
        found.append(f"{len(names) - most:,} files of other endings (not looked into)")
    return found


def _begun(folder: Path | StoredFolder, names: Sequence[str], lines: Mapping[bytes, str]) -> Iterator[str]:
    for name in names:
        try:
            head = _head(folder / name)
        except PermissionError:
            yield f"{name} (may not be looked into)"
            continue
        kind = next((kind for kind, begins in _BEGINNINGS.items() if begins(head)), lines.get(_first_line(head)))
        if kind:
            yield f"{name} (begins as {kind})"


def _head(place: Path | StoredFolder) -> bytes:
    """The first bytes of a file, b"" of a pipe, a device, or a link to nothing. Raises PermissionError."""
    try:
        head = read_start(place, _HEAD_BYTES) if has_file(place) else b""
        return head.removeprefix(codecs.BOM_UTF8).lstrip()
    except PermissionError:
        raise
    except OSError:
        return b""


def _first_line(head: bytes) -> bytes:
    return head.partition(b"\n")[0].rstrip()
