"""The rows of a small source, kept from the first look at them for the second, so that its files are read once."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from expert_cli.data.blocks import Checked

ROOM_BYTES = 220_000_000
"""How much of all sources is kept: with what encoding takes, a build stays under 1 GB."""


class Kept:
    """The checked blocks of one source, each with the number of its first row, as long as they fit; `size` in bytes."""

    def __init__(self, files: Sequence[Path], room: int) -> None:
        """Begin before the files are read; `room`: how many bytes the rows may take. Files larger than that are not tried."""
        self._files = files
        self._stamps = self._now()
        self._room = room
        fits = sum(stamp[0] for stamp in self._stamps if stamp) <= room
        self._blocks: list[tuple[int, Checked]] | None = [] if fits else None
        self.size = 0

    def add(self, first: int, checked: Checked) -> None:
        """Keep a block; with the one that does not fit any more all are let go."""
        if self._blocks is None:
            return
        self.size += checked.rows.memory()
        self._blocks.append((first, checked))
        if self.size > self._room:
            self._blocks, self.size = None, 0

    def blocks(self) -> list[tuple[int, Checked]] | None:
        """Return the blocks; None if they did not fit, or if a file is not what it was, and has to be read again."""
        return self._blocks if self._stamps == self._now() else None

    def _now(self) -> list[tuple[int, int, int] | None]:
        """Size, time and inode of each file, None for one that is not there."""
        return [_stamp(path) for path in self._files]


def _stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        stat = path.stat()
    except OSError:
        return None
    return stat.st_size, stat.st_mtime_ns, stat.st_ino
