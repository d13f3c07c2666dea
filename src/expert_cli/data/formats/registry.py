"""One data file -> its raw rows.

.jsonl .ndjson   a row a line, so that a broken one is named and the others are used
.json            a list of rows, {"data": [rows]}, or rows line by line under the wrong suffix
.csv             RFC 4180 with a header
.parquet .arrow  columnar
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from expert_cli.data.formats import arrow, text
from expert_cli.data.formats.raw_row import ColumnFilter, RawRow
from expert_cli.errors import EnvironmentProblem, ExpertError, InputError

Reader = Callable[[Path, ColumnFilter], Iterator[RawRow]]


def read_file(path: Path, columns: ColumnFilter) -> Iterator[RawRow]:
    """Yield the rows of a file in order; blank lines are not rows.

    Raises InputError: format not known, file damaged as a whole. EnvironmentProblem: file cannot be opened.
    """
    reader = READERS.get(path.suffix.lower())
    if reader is None:
        raise InputError(
            f"{path}: no known data format" + (f' ("{path.suffix}")' if path.suffix else ""),
            f"Give the rows as one of {', '.join(READERS)}.",
        )
    with file_errors(path):
        yield from reader(path, columns)


@contextmanager
def file_errors(path: Path) -> Iterator[None]:
    """Make a system's error about a file one that names it."""
    try:
        yield
    except ExpertError:
        raise
    except OSError as error:
        raise EnvironmentProblem(f"{path}: cannot be read: {error.strerror or error}") from error


READERS: Mapping[str, Reader] = {
    ".jsonl": text.read_json_lines,
    ".ndjson": text.read_json_lines,
    ".json": text.read_json_rows,
    ".csv": text.read_csv,
    ".parquet": arrow.read_rows,
    ".arrow": arrow.read_rows,
}
"""The formats by suffix, in small letters."""
