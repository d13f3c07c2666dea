"""How fast a disk reads, past the page cache."""

from __future__ import annotations

import mmap
import os
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from expert_cli.errors import EnvironmentProblem
from expert_cli.utils.filesystem import open_unnoticed

SLOW_MB_PER_S = 50.0
"""Below this a disk deserves a warning. Training is not the reason: 150,000 tokens/s of 4-byte ids and a mask are under 1 MB/s.
The first opening of a store, which hashes every byte, and staging are: 5 GB take 100 s at this speed, and a network disk or
memory card that is slower than a plain hard disk (100 to 200 MB/s) has usually been chosen by mistake."""
RELIABLE_BYTES = 16_000_000
"""With fewer bytes read the time is that of opening, not of the disk: such a speed is shown, but nothing is concluded."""
BLOCK = 1 << 20
"""Bytes read at a time."""


@dataclass(frozen=True)
class ReadSpeed:
    """A measured sequential read; `method` says how the page cache was bypassed, `bytes` how much was read."""

    mb_per_s: float
    method: str
    bytes: int

    @property
    def is_slow(self) -> bool:
        """Whether this is worth a warning; a small measurement never is."""
        return self.bytes >= RELIABLE_BYTES and self.mb_per_s < SLOW_MB_PER_S


def measure_read(path: Path, *, max_bytes: int = 256_000_000, max_s: float = 3.0) -> ReadSpeed:
    """Read a file from its start, one MiB after the other, until `max_bytes`, `max_s` or its end.

    The page cache is bypassed (Linux: O_DIRECT, where the file system has it), else this file's pages are dropped first, else
    the method says that it was not. Raises EnvironmentProblem: the file cannot be read.
    """
    if hasattr(os, "O_DIRECT"):
        with suppress(OSError):  # the file system may have none
            return _timed_read(path, os.O_DIRECT, "O_DIRECT", max_bytes, max_s)
    method = "posix_fadvise(DONTNEED)" if hasattr(os, "posix_fadvise") else "page cache not bypassed"
    try:
        return _timed_read(path, 0, method, max_bytes, max_s)
    except OSError as error:
        raise EnvironmentProblem(f"{path}: cannot be read to measure its disk: {error.strerror}") from error


def _timed_read(path: Path, flags: int, method: str, max_bytes: int, max_s: float) -> ReadSpeed:
    """Read with a clock; O_DIRECT needs the aligned memory that an anonymous map is."""
    with open_unnoticed(path, flags) as file, mmap.mmap(-1, BLOCK) as block:
        drop_cached(file.fileno())
        done, count = 0, BLOCK
        started = time.monotonic()
        while count == BLOCK and done < max_bytes and time.monotonic() - started < max_s:
            count = int(file.readinto(block) or 0)
            done += count
        return ReadSpeed(done / 1e6 / max(time.monotonic() - started, 1e-9), method, done)


def drop_cached(handle: int) -> None:
    """Drop the pages of an open file from the page cache, where the system can."""
    if hasattr(os, "posix_fadvise"):
        os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
