"""Looking at files and folders: no error for what cannot be looked at, or goes meanwhile, and no trace left."""

from __future__ import annotations

import glob
import os
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

_ABANDONED_S = 24 * 3600.0


def is_file(path: Path) -> bool:
    """Whether a file is there; no in a folder that may not be looked into, where `Path.is_file` raises."""
    return os.path.isfile(path)  # noqa: PTH113


def is_folder(path: Path) -> bool:
    """Whether a folder is there; no in a folder that may not be looked into."""
    return os.path.isdir(path)  # noqa: PTH112


def matching(pattern: str) -> Iterator[Path]:
    """Yield what is there that a pattern of `glob` fits, "**" over folders, in no order; nothing hidden."""
    return map(Path, glob.iglob(pattern, recursive=True))  # noqa: PTH207  Path.glob takes no absolute pattern


def is_abandoned(path: Path) -> bool:
    """Whether what is hidden while it is written was left by a process that was killed: nobody changed it for a day."""
    facts = facts_of([path]).get(path)
    return facts is not None and time.time() - facts.st_mtime > _ABANDONED_S


def files_below(folder: Path) -> Iterator[Path]:
    """Yield the files in a folder and in its folders, in no order; a folder that another process removes meanwhile has none.

    `Path.rglob` raises FileNotFoundError for such a folder up to Python 3.12. Raises OSError for one that cannot be read.
    """

    def unless_gone(error: OSError) -> None:
        if not isinstance(error, (FileNotFoundError, NotADirectoryError)):
            raise error

    for where, _, names in os.walk(folder, onerror=unless_gone):
        yield from (Path(where, name) for name in names)


def facts_of(paths: Iterable[Path]) -> dict[Path, os.stat_result]:
    """Return what the system tells about each of some files; one that is gone, or goes meanwhile, is left out.

    Who asks first whether a file is there, and then about it, fails where another process removes it in between.
    """
    found = {}
    for path in paths:
        with suppress(FileNotFoundError):
            found[path] = path.stat()
    return found


def newest_first(paths: Iterable[Path]) -> list[Path]:
    """Return those of some files that are there, the one that was written last first."""
    return [path for path, _ in sorted(facts_of(paths).items(), key=lambda one: one[1].st_mtime, reverse=True)]
