"""What holds between two looks at the same files: the rows of a small source, and that no file has changed meanwhile."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from expert_cli.data.places import DataFile, Stamp, size_of, stamp_of, stamps_now
from expert_cli.data.rows.block_check import Checked
from expert_cli.errors import InputError

ROOM_BYTES = 220_000_000
"""How much of all sources is kept: with what encoding takes, a build stays under 1 GB."""


class Unchanged:
    """Files as they are now, to tell later whether one of them has changed."""

    def __init__(self, files: Sequence[DataFile]) -> None:
        """Look at the files, before they are read."""
        self._stamps = {file: stamp_of(file) for file in files}

    def __bool__(self) -> bool:
        """Whether all files are what they were, as far as no storage has to be asked: of stored ones no other is read."""
        return all(stamp_of(file) == seen for file, seen in self._stamps.items())

    def require(self) -> None:
        """Raise InputError naming a file that is not what it was, as `bool` tells."""
        self._compare(map(stamp_of, self._stamps))

    def require_everywhere(self) -> None:
        """Raise InputError naming a file that is not what it was; storage is asked, too."""
        self._compare(stamps_now(list(self._stamps)))

    def _compare(self, now: Iterable[Stamp]) -> None:
        for (file, seen), stamp in zip(self._stamps.items(), now, strict=True):
            if stamp != seen:
                raise InputError(f"{file}: changed while it was read", "wait until it is written, then start again")

    def bytes(self) -> int:
        """Return the size of all files."""
        return sum(size_of(file) for file, seen in self._stamps.items() if seen)


class RowCache:
    """The checked blocks of a piece of a source, as long as they fit; `size` in bytes."""

    def __init__(self, files: Sequence[DataFile], room: int, size: int = 0) -> None:
        """Begin before the files are read; room: how many bytes the rows may take. What is of a larger size is not tried."""
        self._unchanged = Unchanged(files)
        self._room = room
        self._blocks: list[Checked] | None = [] if size <= room else None
        self.size = 0

    def add(self, checked: Checked) -> None:
        """Keep a block; with the one that does not fit any more all are let go."""
        if self._blocks is None:
            return
        self.size += checked.rows.memory()
        self._blocks.append(checked)
        if self.size > self._room:
            self.let_go()

    def let_go(self) -> None:
        """Keep no rows."""
        self._blocks, self.size = None, 0

    def blocks(self) -> list[Checked] | None:
        """Return the blocks; None if they did not fit, or if a file is not what it was, and has to be read again."""
        return self._blocks if self._unchanged else None
