"""How many rows files hold: Parquet and Arrow by their metadata alone, JSON lines by their line feeds, not parsed."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from expert_cli.data.formats.registry import CountRows, format_of
from expert_cli.utils.filesystem import open_unnoticed

MAX_S = 2.0
"""Longest look at one data set: lines have to be read, and of an Arrow stream each batch's header, which costs a seek."""
_DAMAGED = -1


@dataclass(frozen=True)
class RowCount:
    """`rows` is None where they cannot be told cheaply; `damaged` are files that do not open."""

    rows: int | None = None
    damaged: tuple[Path, ...] = ()


def count_rows(files: Sequence[Path], *, max_s: float = MAX_S) -> RowCount:
    """Count rows where all files are Parquet, Arrow or JSON lines; others would have to be parsed.

    A file that is gone counts as none. Each of the JSON lines is a row, also a blank or broken one, which training leaves out.
    """
    counts = [form.count if (form := format_of(path)) else None for path in files]
    if not files or None in counts:
        return RowCount()
    end = time.monotonic() + max_s
    rows = [_rows_of(path, count, end) for path, count in zip(files, counts, strict=True) if count]
    damaged = tuple(path for path, found in zip(files, rows, strict=True) if found == _DAMAGED)
    known = [found for found in rows if found is not None and found != _DAMAGED]
    return RowCount(sum(known) if len(known) == len(files) else None, damaged)


def _rows_of(path: Path, count: CountRows, end: float) -> int | None:
    """Rows of one file; _DAMAGED, or None if it cannot be read or it is too late."""
    import pyarrow as pa

    rows = 0
    if time.monotonic() > end:
        return None
    try:
        with open_unnoticed(path) as file:
            for part in count(file):
                rows += part
                if time.monotonic() > end:
                    return None
    except (pa.ArrowException, EOFError, ValueError):
        return _DAMAGED
    except OSError as error:
        # Arrow reports damaged pages as OSError without a number; one of the system has it.
        return _DAMAGED if error.errno is None else None
    return rows
