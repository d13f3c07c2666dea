"""Folders that are whole or absent: filled beside their place, every file recorded, renamed, verified when they are opened.

    with folder_beside(home) as beside:
        fill(beside)
        write_sealed(beside / RECORD, {"files": VerifiedFolder.measured(beside).files})
        beside.rename(home)
    damage = VerifiedFolder(home, read_sealed(home / RECORD)["files"]).damage()

The record stands in a document of the owner's, which is written last: fingerprint.json of a token store, checkpoint.json,
unpacked.json of the model cache. It names every file but itself.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from expert_cli.utils.files import sha256_of, sync_folder

_HASHED_AT_ONCE = 4


@dataclass(frozen=True)
class VerifiedFolder:
    """A folder and the record of its files: {name: {"bytes", "sha256"}}, "/" between the parts of a name.

    A file whose entry has "mtime_ns" too, the time of its last change, is not hashed while that is the same.
    """

    path: Path
    files: Mapping[str, Mapping[str, Any]]

    @classmethod
    def measured(
        cls,
        path: Path,
        known: Mapping[str, Mapping[str, Any]] | None = None,
        *,
        leave_out: Collection[str] = (),
        times: bool = False,
    ) -> VerifiedFolder:
        """Return a folder with its files as they are, made durable; hidden ones, as file systems make, are no part of it.

        known: entries of files that need not be read again. leave_out: names that are no part of it. times: with "mtime_ns".
        """
        known = dict(known or {})
        files = {file.relative_to(path).as_posix(): file for file in sorted(path.rglob("[!.]*")) if file.is_file()}
        names = [name for name in files if name not in known and name not in leave_out]
        # Hashing takes as long as syncing, and neither needs the interpreter.
        with ThreadPoolExecutor(1) as thread:
            entries = thread.map(lambda name: _entry(files[name], times=times), names)
            sync_folder(path)
            return cls(path, {**known, **dict(zip(names, entries, strict=True))})

    def damage(self, sha256: Callable[[Path], str] | None = sha256_of) -> str:
        """Return which file is not as it was recorded, and how; "" if there is none.

        sha256: hashes a file; None = names and sizes are enough. Raises KeyError, TypeError: the record is of another form.
        """
        damage = next(filter(None, (self._fault(name, None) for name in self.files)), "")
        if damage or sha256 is None:
            return damage
        with ThreadPoolExecutor(_HASHED_AT_ONCE) as threads:
            return next(filter(None, threads.map(lambda name: self._fault(name, sha256), self.files)), "")

    def _fault(self, name: str, sha256: Callable[[Path], str] | None) -> str:
        path, wanted = self.path / name, self.files[name]
        size = wanted["bytes"]
        try:
            facts = path.stat()
            if facts.st_size != size:
                return f"{name} has {facts.st_size:,} bytes, not {size:,}"
            is_same = sha256 is None or facts.st_mtime_ns == wanted.get("mtime_ns") or sha256(path) == wanted["sha256"]
        except FileNotFoundError:
            return f"{name} is missing"
        except OSError as error:
            return f"{name} cannot be read: {error.strerror}"
        return "" if is_same else f"{name} does not match its hash"


def _entry(file: Path, *, times: bool) -> dict[str, Any]:
    facts = file.stat()
    time = {"mtime_ns": facts.st_mtime_ns} if times else {}
    return {"bytes": facts.st_size, **time, "sha256": sha256_of(file)}


@contextmanager
def folder_beside(home: Path) -> Iterator[Path]:
    """Give an empty folder beside `home`, to be filled and renamed; what was not renamed is removed at the end."""
    home.parent.mkdir(parents=True, exist_ok=True)
    beside = Path(tempfile.mkdtemp(prefix=f".{home.name}.", dir=home.parent))
    try:
        yield beside
    finally:
        shutil.rmtree(beside, ignore_errors=True)
