"""How fast a disk reads, and copies of data on a faster one.

--stage /fast    /fast/home/me/rows/train.jsonl        the copy of /home/me/rows/train.jsonl; C: is the folder C
                 /fast/.staged/<hash of that path>.json   what the source was when it was copied, and its SHA-256
"""

from __future__ import annotations

import errno
import hashlib
import mmap
import os
import re
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from expert_cli.console import Reporter
from expert_cli.data.tree import open_unnoticed
from expert_cli.errors import EnvironmentProblem, InputError, LockedOrDamaged
from expert_cli.files import parse_json, sha256_of, write_json
from expert_cli.paths import is_inside

SLOW_MB_PER_S = 50.0
"""Below this a disk deserves a warning. Training is not the reason: 150,000 tokens/s of 4-byte ids and a mask are under 1 MB/s.
The first opening of a store, which hashes every byte, and staging are: 5 GB take 100 s at this speed, and a network disk or
memory card that is slower than a plain hard disk (100 to 200 MB/s) has usually been chosen by mistake."""
RELIABLE_BYTES = 16_000_000
"""With fewer bytes read the time is that of opening, not of the disk: such a speed is shown, but nothing is concluded."""
_BLOCK = 1 << 20
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_RECORDS = ".staged"


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


@dataclass(frozen=True)
class Staged:
    """Where the copies are. `bytes` were copied in `seconds` (verification included); `reused` files were there already."""

    mapping: dict[Path, Path]
    seconds: float
    bytes: int
    reused: int


def size_text(count: float) -> str:
    """Return a number of bytes as a person reads it, in steps of a thousand: "812 B", "1.2 MB", "45 GB"."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 999.5:
            return f"{count:.0f} {unit}" if unit == "B" or count >= 9.95 else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"


def measure_read(path: Path, *, max_bytes: int = 256_000_000, max_s: float = 3.0) -> ReadSpeed:
    """Read a file from its start, one MiB after the other, until `max_bytes`, `max_s` or its end.

    The page cache is bypassed (Linux: O_DIRECT, where the file system has it), else this file's pages are dropped first, else
    the method says that it was not. Raises EnvironmentProblem: the file cannot be read.
    """
    for method, flags in _methods():
        try:
            done, seconds = _timed_read(path, flags, max_bytes, max_s)
        except OSError as error:
            if flags and error.errno in (errno.EINVAL, errno.EOPNOTSUPP):
                continue
            raise EnvironmentProblem(f"{path}: cannot be read to measure its disk: {error.strerror}") from error
        return ReadSpeed(done / 1e6 / max(seconds, 1e-9), method, done)
    raise EnvironmentProblem(f"{path}: cannot be read to measure its disk")


def staged_path(path: Path, target: Path) -> Path:
    """Return where the copy of a file or folder lies: its whole path again under `target`, so that no two collide.

    Links are not resolved: a file of the hub cache keeps its name and suffix.
    """
    full = Path(os.path.abspath(path))  # noqa: PTH100  resolve() would follow the links, absolute() keeps ".."
    drive = re.sub(r"[^\w.-]+", "_", full.drive).strip("_")
    return target.absolute() / drive / full.relative_to(full.anchor)


def stage(files: Sequence[Path], target: Path, report: Reporter) -> Staged:
    """Copy files under `target`, each verified by its SHA-256 as read back, and say how long it took.

    A copy is used again if its source has the size and times it was copied with and the copy still has the recorded hash. A
    file that lies under `target` already is left where it is. A copy that fails leaves nothing; those before it stay for the
    next try. Raises InputError: no such file; EnvironmentProblem: no room, cannot be written; LockedOrDamaged: the source
    changes while it is copied, or the copy reads back different.
    """
    started = time.monotonic()
    facts = {path: _facts(path) for path in files}
    mapping = {path: path if is_inside(path, target) else staged_path(path, target) for path in files}
    copies = {copy: _Copy.of(path, copy, target, facts[path]) for path, copy in mapping.items() if copy != path}
    total = sum(copy.size for copy in copies.values())
    with report.progress("staging", total / 1e6, "MB") as bar:
        done = 0

        def advance(count: int) -> None:
            nonlocal done
            done += count
            bar.update(done / 1e6)

        stale = [copy for copy in copies.values() if not copy.is_current(report, advance)]
        needed = sum(copy.size for copy in stale)
        _require_space(target, needed)
        for copy in stale:
            copy.make(advance)
    seconds = time.monotonic() - started
    staged = Staged(mapping, seconds, needed, len(copies) - len(stale))
    rate = f", {needed / 1e6 / seconds:,.0f} MB/s with verification" if stale else ""
    report.say(
        f"staged    {size_text(needed)} to {target} in {seconds:.1f} s{rate}; files copied {len(stale)}, reused {staged.reused}"
    )
    return staged


@dataclass(frozen=True)
class _Copy:
    """One file to be staged; `facts` is what its source must still be for an old copy to count."""

    source: Path
    path: Path
    record: Path
    target: Path
    size: int
    facts: dict[str, int]

    @classmethod
    def of(cls, source: Path, path: Path, target: Path, facts: dict[str, int]) -> _Copy:
        name = hashlib.sha256(
            path.relative_to(target.absolute()).as_posix().encode("utf-8", "surrogatepass")
        ).hexdigest()
        return cls(source, path, target.absolute() / _RECORDS / f"{name[:32]}.json", target, facts["size"], facts)

    def is_current(self, report: Reporter, advance: Callable[[int], None]) -> bool:
        try:
            noted = parse_json(self.record.read_bytes())
            if noted["source"] != self.facts or self.path.stat().st_size != self.size:
                return False
            verified = bool(sha256_of(self.path) == noted["sha256"])
        except (OSError, ValueError, KeyError, TypeError):
            return False
        if verified:
            advance(self.size)
        else:
            report.warn(f"{self.path}: the copy staged earlier is damaged and is made again")
        return verified

    def make(self, advance: Callable[[int], None]) -> None:
        """Copy beside its place, read back, rename, note."""
        beside = self.path.with_name(f".{self.path.name}.{os.getpid()}.tmp")
        try:
            self.record.unlink(missing_ok=True)
            self.path.parent.mkdir(parents=True, exist_ok=True)
            sha256 = self._write(beside, advance)
            if sha256_of(beside) != sha256:
                raise LockedOrDamaged(
                    f"{self.path}: the staged copy reads back different from what was written",
                    f"do not trust the disk of {self.target}; stage to another one",
                )
            beside.replace(self.path)
            write_json(self.record, {"file": str(self.source), "source": self.facts, "sha256": sha256})
        except OSError as error:
            raise self._failed(error) from error
        finally:
            beside.unlink(missing_ok=True)
            _remove_empty(self.path.parent, self.target.absolute())

    def _write(self, beside: Path, advance: Callable[[int], None]) -> str:
        """Copy the bytes, and drop them from the page cache, so that reading back asks the disk; return their hash."""
        digest = hashlib.sha256()
        done = 0
        with self.source.open("rb") as source, beside.open("wb") as copy:
            # A source that grows as fast as it is read would never end.
            while done <= self.size and (block := source.read(8 * _BLOCK)):
                digest.update(block)
                copy.write(block)
                done += len(block)
                advance(len(block))
            copy.flush()
            os.fsync(copy.fileno())
            _drop_cached(copy.fileno())
        if _facts(self.source) != self.facts:
            raise LockedOrDamaged(
                f"{self.source}: changed while it was staged", "wait until it is written, then try again"
            )
        return digest.hexdigest()

    def _failed(self, error: OSError) -> EnvironmentProblem:
        if error.errno in _FULL:
            hint = "free some space, or stage to another disk"
            return EnvironmentProblem(f"{self.path}: the disk is full; {size_text(self.size)} were to be written", hint)
        return EnvironmentProblem(f"{self.source}: cannot be staged to {self.path}: {error.strerror or error}")


def _facts(path: Path) -> dict[str, int]:
    try:
        found = path.stat()
    except OSError as error:
        raise InputError(f"{path}: cannot be staged: {error.strerror}") from error
    if not path.is_file():
        raise InputError(f"{path}: cannot be staged: not a file")
    return {"size": found.st_size, "mtime_ns": found.st_mtime_ns, "ctime_ns": found.st_ctime_ns}


def _require_space(target: Path, needed: int) -> None:
    """Make the target folder and compare its free space with the bytes that are to be copied."""
    try:
        target.mkdir(parents=True, exist_ok=True)
        free = shutil.disk_usage(target).free
    except OSError as error:
        raise EnvironmentProblem(
            f"{target}: cannot be staged to: {error.strerror}", "name a folder: --stage DIR"
        ) from error
    if needed > free:
        message = f"{target}: {needed:,} bytes are to be staged, and {free:,} bytes are free"
        raise EnvironmentProblem(message, "free some space, or stage to another disk")


def _remove_empty(folder: Path, top: Path) -> None:
    """Remove folders left empty, from `folder` up to `top`."""
    while folder != top:
        try:
            folder.rmdir()
        except OSError:
            return
        folder = folder.parent


def _methods() -> Iterator[tuple[str, int]]:
    """Ways to read past the page cache, best first, with the flag each opens the file with."""
    if hasattr(os, "O_DIRECT"):
        yield "O_DIRECT", os.O_DIRECT
    if hasattr(os, "posix_fadvise"):
        yield "posix_fadvise(DONTNEED)", 0
    else:
        yield "page cache not bypassed", 0


def _timed_read(path: Path, flags: int, max_bytes: int, max_s: float) -> tuple[int, float]:
    """Return (bytes, seconds); O_DIRECT needs the aligned memory that an anonymous map is."""
    with open_unnoticed(path, flags) as file, mmap.mmap(-1, _BLOCK) as block:
        _drop_cached(file.fileno())
        done = 0
        started = time.monotonic()
        while done < max_bytes and time.monotonic() - started < max_s:
            count: Any = file.readinto(block)
            done += count
            if count < _BLOCK:
                break
        return done, time.monotonic() - started


def _drop_cached(handle: int) -> None:
    if hasattr(os, "posix_fadvise"):
        os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
