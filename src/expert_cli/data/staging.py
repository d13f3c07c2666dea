"""Copies of data on a faster disk.

--stage /fast    /fast/home/me/rows/train.jsonl        the copy of /home/me/rows/train.jsonl; C: is the folder C
                 /fast/.staged/<hash of that path>.json   what the source was when it was copied, and its SHA-256
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from expert_cli.errors import EnvironmentProblem, InputError, IntegrityError
from expert_cli.utils.disk_errors import disk_errors
from expert_cli.utils.files import beside, parse_json, sha256_of, write_json
from expert_cli.utils.paths import is_inside
from expert_cli.utils.reporter import Reporter
from expert_cli.utils.text import size_text

_RECORDS = ".staged"
_BLOCK = 8 << 20


@dataclass(frozen=True)
class Staged:
    """Where the copies are. `bytes` were copied; `reused` files were there already."""

    mapping: dict[Path, Path]
    bytes: int
    reused: int


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
    next try. Raises InputError: no such file; EnvironmentProblem: no room, cannot be written; IntegrityError: the source
    changes while it is copied, or the copy reads back different.
    """
    started = time.monotonic()
    facts = {path: _facts(path) for path in files}
    mapping = {path: path if is_inside(path, target) else staged_path(path, target) for path in files}
    copies = {copy: _Copy(path, copy, target.absolute(), facts[path]) for path, copy in mapping.items() if copy != path}
    total = sum(copy.size for copy in copies.values())
    with report.progress("staging", total, "B") as bar:
        stale = [copy for copy in copies.values() if not copy.is_current(report)]
        needed = sum(copy.size for copy in stale)
        done = total - needed
        _require_space(target, needed)

        def advance(count: int) -> None:
            nonlocal done
            done += count
            bar.update(done)

        for copy in stale:
            copy.make(advance)
    seconds = time.monotonic() - started
    reused = len(copies) - len(stale)
    rate = f", {needed / 1e6 / seconds:,.0f} MB/s with verification" if stale else ""
    report.info(
        f"staged    {size_text(needed)} to {target} in {seconds:.1f} s{rate}; files copied {len(stale)}, reused {reused}"
    )
    return Staged(mapping, needed, reused)


@dataclass(frozen=True)
class _Copy:
    """One file to be staged under `top`; `facts` is what its source must still be for an old copy to count."""

    source: Path
    path: Path
    top: Path
    facts: dict[str, int]

    @property
    def size(self) -> int:
        return self.facts["size"]

    @property
    def record(self) -> Path:
        name = hashlib.sha256(os.fsencode(self.path.relative_to(self.top).as_posix())).hexdigest()
        return self.top / _RECORDS / f"{name[:32]}.json"

    def is_current(self, report: Reporter) -> bool:
        try:
            noted = parse_json(self.record.read_bytes())
            if noted["source"] != self.facts or self.path.stat().st_size != self.size:
                return False
            verified = bool(sha256_of(self.path) == noted["sha256"])
        except (OSError, ValueError, KeyError, TypeError):
            return False
        if not verified:
            report.warning(f"{self.path}: the copy staged earlier is damaged and is made again")
        return verified

    def make(self, advance: Callable[[int], None]) -> None:
        """Copy beside its place, read back, rename, note."""
        with disk_errors(f"{self.source}: cannot be staged to {self.path}", "stage to another disk"):
            try:
                self.record.unlink(missing_ok=True)
                with beside(self.path) as unfinished:
                    sha256 = self._write(unfinished, advance)
                    if sha256_of(unfinished) != sha256:
                        raise IntegrityError(
                            f"{self.path}: the staged copy reads back different from what was written",
                            f"do not trust the disk of {self.top}; stage to another one",
                        )
                    unfinished.replace(self.path)
                write_json(self.record, {"file": str(self.source), "source": self.facts, "sha256": sha256})
            finally:
                folder = self.path.parent
                with suppress(OSError):  # one that is not empty
                    while folder != self.top:
                        folder.rmdir()
                        folder = folder.parent

    def _write(self, to: Path, advance: Callable[[int], None]) -> str:
        """Copy the bytes, and drop them from the page cache, so that reading back asks the disk; return their hash."""
        digest = hashlib.sha256()
        with self.source.open("rb") as source, to.open("wb") as copy:
            # A source that grows as fast as it is read would never end.
            while copy.tell() <= self.size and (block := source.read(_BLOCK)):
                digest.update(block)
                copy.write(block)
                advance(len(block))
            copy.flush()
            os.fsync(copy.fileno())
            if hasattr(os, "posix_fadvise"):
                os.posix_fadvise(copy.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        if _facts(self.source) != self.facts:
            raise IntegrityError(
                f"{self.source}: changed while it was staged", "wait until it is written, then try again"
            )
        return digest.hexdigest()


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
    with disk_errors(f"{target}: cannot be staged to", "name a folder: --stage DIR"):
        target.mkdir(parents=True, exist_ok=True)
        free = shutil.disk_usage(target).free
    if needed > free:
        message = f"{target}: {needed:,} bytes are to be staged, and {free:,} bytes are free"
        raise EnvironmentProblem(message, "free some space, or stage to another disk")
