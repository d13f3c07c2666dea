"""How many rows files hold: Parquet and Arrow by their metadata alone, JSON lines by their line feeds, not parsed."""

from __future__ import annotations

import mmap
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from expert_cli.utils.filesystem import open_unnoticed

MAX_S = 2.0
"""Longest look at one data set: lines have to be read, and of an Arrow stream each batch's header, which costs a seek."""
_BLOCK_BYTES = 1 << 20


@dataclass(frozen=True)
class RowCount:
    """`rows` is None where they cannot be told cheaply; `damaged` are files that do not open."""

    rows: int | None = None
    damaged: tuple[Path, ...] = ()


def count_rows(files: Sequence[Path], *, max_s: float = MAX_S) -> RowCount:
    """Count rows where all files are Parquet, Arrow or JSON lines; others would have to be parsed.

    A file that is gone counts as none. Each of the JSON lines is a row, also a blank or broken one, which training leaves out.
    """
    if not files or any(path.suffix.lower() not in _COUNTED for path in files):
        return RowCount()
    end = time.monotonic() + max_s
    total: int | None = 0
    damaged: list[Path] = []
    for path in files:
        rows = _rows_of(path, end)
        if rows is not None and rows < 0:
            damaged.append(path)
        total = None if total is None or rows is None or rows < 0 else total + rows
        if time.monotonic() > end:
            return RowCount(None, tuple(damaged))
    return RowCount(total, tuple(damaged))


def _rows_of(path: Path, end: float) -> int | None:
    """Rows of one file; -1 if it is damaged, None if it cannot be read or takes too long."""
    import pyarrow as pa

    try:
        return _COUNTED[path.suffix.lower()](path, end)
    except (pa.ArrowException, EOFError, ValueError):
        return -1
    except OSError as error:
        # Arrow reports damaged pages as OSError without a number; one of the system has it.
        return -1 if error.errno is None else None


def _lines(path: Path, end: float) -> int | None:
    """Lines of a text file, the last with or without its line feed."""
    lines, last = 0, b"\n"
    with open_unnoticed(path) as file:
        while block := file.read(_BLOCK_BYTES):
            lines, last = lines + block.count(b"\n"), block[-1:]
            if time.monotonic() > end:
                return None
    return lines + (last != b"\n")


def _parquet_rows(path: Path, _: float) -> int:
    import pyarrow.parquet as pq

    with open_unnoticed(path) as file:
        return int(pq.read_metadata(file).num_rows)


def _arrow_rows(path: Path, end: float) -> int | None:
    """Both Arrow forms, mapped: only the headers of the batches are touched."""
    import pyarrow as pa

    with open_unnoticed(path) as file:
        buffer = pa.py_buffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    is_file = buffer[:6].to_pybytes() == b"ARROW1"
    opened: Any = pa.ipc.open_file(buffer) if is_file else pa.ipc.open_stream(buffer)
    batches = (opened.get_batch(number) for number in range(opened.num_record_batches)) if is_file else opened
    rows = 0
    for batch in batches:
        rows += batch.num_rows
        if time.monotonic() > end:
            return None
    return rows


_COUNTED: dict[str, Callable[[Path, float], int | None]] = {
    ".parquet": _parquet_rows,
    ".arrow": _arrow_rows,
    ".jsonl": _lines,
    ".ndjson": _lines,
}
