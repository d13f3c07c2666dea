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
    total: int | None = 0
    damaged: list[Path] = []
    for path, count in zip(files, counts, strict=True):
        rows = _rows_of(path, count, end) if count else None
        if rows is not None and rows < 0:
            damaged.append(path)
        total = None if total is None or rows is None or rows < 0 else total + rows
        if time.monotonic() > end:
            return RowCount(None, tuple(damaged))
    return RowCount(total, tuple(damaged))


def _rows_of(path: Path, count: CountRows, end: float) -> int | None:
    """Rows of one file; -1 if it is damaged, None if it cannot be read or takes too long."""
    import pyarrow as pa

    rows = 0
    try:
        with open_unnoticed(path) as file:
            for part in count(file):
                rows += part
                if time.monotonic() > end:
                    return None
    except (pa.ArrowException, EOFError, ValueError):
        return -1
    except OSError as error:
        # Arrow reports damaged pages as OSError without a number; one of the system has it.
        return -1 if error.errno is None else None
    return rows
