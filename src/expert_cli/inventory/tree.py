"""Looking at files and folders without leaving a trace: sizes, last use, what is broken. Follows no link into a folder.

A cache is shared with running programs: what vanishes while it is listed was not there, what cannot be read is counted.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from expert_cli.config.data_files import format_name
from expert_cli.utils.filesystem import is_folder
from expert_cli.utils.text import plural

MAX_S = 30.0
"""A folder that takes longer to list is counted only so far; its row says so."""
INFO_NAMES = frozenset({"dataset_info.json", "dataset_infos.json", "dataset_dict.json", "state.json"})


@dataclass
class Tree:
    """What lies under some files and folders.

    inodes: (device, inode) -> bytes, so that a file with many names is counted once. data_files: by name, links included.
    accessed, modified: newest of all files, seconds since 1970, 0 where there is no file. broken: links to nothing.
    """

    inodes: dict[tuple[int, int], int] = field(default_factory=dict)
    data_files: list[Path] = field(default_factory=list)
    accessed: float = 0.0
    modified: float = 0.0
    broken: int = 0
    unfinished: int = 0
    unreadable: int = 0
    cut_short: bool = False

    @property
    def bytes(self) -> int:
        """Sizes of the files, each counted once."""
        return sum(self.inodes.values())

    @property
    def last_use(self) -> tuple[float | None, str]:
        """When a file was last read or written and which told, "atime" or "mtime"; (None, "") without files."""
        if not self.inodes:
            return None, ""
        return (self.accessed, "atime") if self.accessed >= self.modified else (self.modified, "mtime")

    def remarks(self) -> list[str]:
        """Return what is to be said of it: how much is broken, not whole, or was not seen."""
        remarks = [
            (self.broken, "link leads nowhere", "links lead nowhere"),
            (self.unfinished, "download is not finished", "downloads are not finished"),
            (self.unreadable, "folder cannot be read", "folders cannot be read"),
        ]
        found = [plural(*remark) for remark in remarks if remark[0]]
        return [*found, "too much to list in time: at least this"] if self.cut_short else found

    def add(self, path: Path, *, keeps_atime: bool) -> None:
        """Count one file; the newest access counts only on a file system that keeps it."""
        try:
            facts = path.stat()
        except PermissionError:
            self.unreadable += 1
            return
        except OSError:
            # Gone by now, or a link: to nothing, or in a circle.
            self.broken += path.is_symlink()
            return
        if not stat.S_ISREG(facts.st_mode):
            return
        self.inodes[facts.st_dev, facts.st_ino] = facts.st_size
        self.modified = max(self.modified, facts.st_mtime)
        if keeps_atime:
            self.accessed = max(self.accessed, facts.st_atime)
        self.unfinished += path.name.endswith(".incomplete")
        if format_name(path) and path.name not in INFO_NAMES:
            self.data_files.append(path)

    def add_closed(self, error: OSError) -> None:
        """Count a folder that could not be listed; one that is gone was not there."""
        self.unreadable += not isinstance(error, FileNotFoundError)


def scan_tree(roots: Sequence[Path], pulse: Callable[[], None], *, max_s: float = MAX_S) -> Tree:
    """Look at files and folders; a root may itself be a link. Raises nothing: what cannot be seen is counted in the tree."""
    tree = Tree()
    end = time.monotonic() + max_s
    for root in roots:
        keeps_atime = _keeps_atime(root)
        folders = os.walk(root, onerror=tree.add_closed) if is_folder(root) else [("", [], [str(root)])]
        for folder, _, names in folders:
            for name in names:
                pulse()
                tree.add(Path(folder, name), keeps_atime=keeps_atime)
                if time.monotonic() > end:
                    tree.cut_short = True
                    return tree
    return tree


def _keeps_atime(path: Path) -> bool:
    """Whether the file system notes reading: not when mounted noatime, and on Windows rarely."""
    try:
        return os.name == "posix" and not os.statvfs(path).f_flag & getattr(os, "ST_NOATIME", 0)
    except OSError:
        return False
