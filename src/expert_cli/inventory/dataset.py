"""One data set that was found, or that a manifest names and that is not here, as `find-datasets` shows it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Any, Literal

from expert_cli.data.formats.compression import open_data
from expert_cli.data.formats.registry import format_of
from expert_cli.data.sources.folder import folder_files
from expert_cli.data.sources.split_files import without_notes
from expert_cli.errors import ExpertError, InputError
from expert_cli.inventory.tree import Tree, scan_tree
from expert_cli.utils.filesystem import open_unnoticed
from expert_cli.utils.reporter import NullReporter
from expert_cli.utils.text import utc_time

Kind = Literal["hub", "arrow_cache", "token_store", "saved", "file", "folder"]
Status = Literal["used", "unused", "missing", "fresh", "stale", "foreign", "damaged"]
MAX_COUNT_S = 2.0
"""Longest look at one data set: lines have to be read, and of an Arrow stream each batch's header, which costs a seek."""


@dataclass(frozen=True)
class DatasetEntry:
    """One row.

    place: the cache or folder it was found in. option: what `--dataset` takes to read it, "" where it cannot. tree: its files.
    rows: None where telling would mean parsing.
    """

    name: str
    place: Path
    path: Path
    kind: Kind
    status: Status
    experts: tuple[str, ...]
    note: str = ""
    option: str = ""
    tree: Tree = field(default_factory=Tree)
    rows: int | None = None

    def as_json(self) -> dict[str, Any]:
        """Return the row that `find-datasets --json` prints."""
        seconds, told_by = self.tree.last_use
        used = utc_time(seconds)
        return {
            "name": self.name,
            "path": str(self.path),
            "kind": self.kind,
            "bytes": self.tree.bytes,
            "files": len(self.tree.inodes),
            "rows": self.rows,
            "last_used": used and used.isoformat(timespec="seconds"),
            "last_used_from": (used and told_by) or None,
            "experts": list(self.experts),
            "status": self.status,
            "note": self.note,
            "dataset_option": self.option or None,
        }


def examine(
    row: DatasetEntry,
    roots: Sequence[Path],
    pulse: Callable[[], None],
    has_rows: Callable[[Path], bool] = lambda _: True,
) -> DatasetEntry:
    """Return the row with what lies under `roots`; what is broken there makes it "damaged" and stands in its note.

    has_rows: which of the data files are counted.
    """
    tree = scan_tree(roots, pulse)
    counted = count_rows(without_notes([path for path in tree.data_files if has_rows(path)]))
    remarks = [row.note, *(f"{path.name} does not open" for path in counted.damaged[:1]), *tree.remarks()]
    return replace(
        row,
        status="damaged" if tree.broken or counted.damaged else row.status,
        note="; ".join(filter(None, remarks)),
        tree=tree,
        rows=counted.rows,
    )


@dataclass(frozen=True)
class RowCount:
    """`rows` is None where they cannot be told cheaply; `damaged` are files that do not open."""

    rows: int | None = None
    damaged: tuple[Path, ...] = ()


def count_rows(files: Sequence[Path], *, max_s: float = MAX_COUNT_S) -> RowCount:
    """Count rows where all files are Parquet, Arrow, JSON lines or text: by metadata, and by lines, which parses nothing.

    A file that is gone counts as none. Each of the JSON lines is a row, also a blank or broken one, which training leaves out.
    """
    counts = [form.count for path in files if (form := format_of(path)) and form.count]
    if not files or len(counts) < len(files):
        return RowCount()
    import pyarrow as pa

    unread: list[Path] = []
    damaged: list[Path] = []
    rows, end = 0, time.monotonic() + max_s
    for path, count in zip(files, counts, strict=True):
        try:
            with open_data(path, open_unnoticed(path)) as file:
                for part in chain([0], count(file)):
                    rows += part
                    if time.monotonic() > end:
                        return RowCount(None, tuple(damaged))
        except (pa.ArrowException, EOFError, ValueError, OSError, InputError) as error:
            # Arrow reports damaged pages as OSError without a number; one of the system has it.
            (damaged if getattr(error, "errno", None) is None else unread).append(path)
    return RowCount(None if unread or damaged else rows, tuple(damaged))


def dataset_option(kind: Kind, path: Path, files: Sequence[Path]) -> str:
    """Return the value of `--dataset` that reads these rows in a command started here, "" where none does.

    files: those of the data set, or the folder that it is. A folder's own name will do where its training split is of these
    files alone; else the one file among them that has a name for training.
    """
    if kind == "token_store":
        return ""
    try:
        train = [path] if kind == "file" else folder_files(path, "", "train", NullReporter())
    except (ExpertError, OSError):
        return ""
    mine = [file for file in train if file in files]
    if train and (files == [path] or mine == train):
        mine = [path]
    return name_in(Path.cwd(), mine[0]) if len(mine) == 1 else ""


def name_in(folder: Path, path: Path) -> str:
    """Return a path as it is called in a folder, itself "."; one that does not lie in it in full."""
    return path.relative_to(folder).as_posix() if path.is_relative_to(folder) else str(path)
