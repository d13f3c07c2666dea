"""Writes files and folders atomically: they are written beside their final path, synced, then renamed.

Hub tokens are removed from texts (`redaction.py`), except by `append_text`.

    with folder_beside(home) as beside:
        fill(beside)
        write_sealed(beside / RECORD, {"files": VerifiedFolder.measured(beside).files})
        beside.rename(home)
    damage = VerifiedFolder(home, read_sealed(home / RECORD)["files"]).damage()

The record of a folder is written last, and lists every other file.
"""

from __future__ import annotations

import codecs
import errno
import glob
import hashlib
import json
import os
import secrets
import shutil
import tempfile
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import jiter

from expert_cli.errors import InputError
from expert_cli.utils.redaction import redact
from expert_cli.utils.text import type_name

DAY_S = 86_400
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def require_new_file(option: str, path: Path) -> None:
    """Raise InputError if the path that an option names exists: it is never overwritten."""
    if path.exists():
        raise InputError(f"{option} {path}: it exists already", "give another name, or remove it")


def require_no_folder(option: str, file: Path | None) -> None:
    """Raise InputError if the file that an option names is a folder."""
    if file is not None and file.is_dir():
        raise InputError(f"{option} {file}: is a folder", "name a file in it")


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Add the path being written to the error of a full disk, if it names none."""
    try:
        yield
    except OSError as error:
        if error.errno in FULL and not error.filename:
            error.filename = str(path)
        raise


def append_text(path: Path, text: str) -> None:
    """Append a text (UTF-8, line feeds) to a file, which is created if it is missing."""
    with naming(path), path.open("a", encoding="utf-8", newline="\n") as file:
        file.write(text)


def write_text(path: Path, text: str) -> None:
    """Write a text (UTF-8, line feeds) atomically, without hub tokens."""
    write_bytes(path, redact(text).encode("utf-8"))


def write_bytes(path: Path, raw: bytes) -> None:
    """Write bytes to a file atomically; an existing file keeps its permissions. A device or pipe is never replaced."""
    if path.exists() and not path.is_file():
        with naming(path), path.open("wb") as file:
            file.write(raw)
        return
    with beside(path) as unfinished:
        with unfinished.open("wb") as file:
            file.write(raw)
            file.flush()
            os.fsync(file.fileno())
        with suppress(FileNotFoundError):
            shutil.copymode(path, unfinished)
        unfinished.replace(path)


@contextmanager
def beside(path: Path) -> Iterator[Path]:
    """Yield a temporary path beside a file, to be written and renamed, otherwise deleted at the end. Creates the folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    # Processes of several machines or containers may have the same id.
    unfinished = path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}.tmp")
    try:
        with naming(path):
            yield unfinished
    finally:
        unfinished.unlink(missing_ok=True)


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    """Write a JSON document atomically, without hub tokens."""
    write_text(path, json_text(value))


def json_text(value: Mapping[str, Any]) -> str:
    """Return a JSON document in the layout of `write_json`."""
    text = json.dumps(value, indent=2, ensure_ascii=False, default=str) + "\n"
    # A file name that is not UTF-8 contains half of a surrogate pair, which JSON can only escape.
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def parse_json(text: str | bytes) -> Any:
    """Parse JSON. Raises ValueError, also for deep nesting."""
    try:
        return json.loads(text)
    except RecursionError as error:
        raise ValueError("is nested too deeply") from error


def strict_json(text: bytes) -> Any:
    """Parse JSON. Raises ValueError, also for a repeated key, NaN, half of a surrogate pair, and deep nesting."""
    return jiter.from_json(text, allow_inf_nan=False, catch_duplicate_keys=True)


def json_lines(rows: Iterable[Mapping[str, Any]]) -> bytes:
    """Return rows as JSON lines, unchanged except for removed hub tokens, and "?" for half of a surrogate pair."""
    text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    return redact(text).encode("utf-8", "replace")


def json_objects(path: Path) -> Iterator[tuple[str, int, dict[str, Any]]]:
    """Yield (file:line, line, object) for every line that is not blank. Raises InputError with the place of the first error."""
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, start=1):
                if line.strip():
                    yield f"{path}:{number}", number, _object(f"{path}:{number}", line)
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}", "give a file of JSON lines") from error


def _object(where: str, line: bytes) -> dict[str, Any]:
    try:
        value = strict_json(line.removeprefix(codecs.BOM_UTF8))
    except ValueError as error:
        raise InputError(f"{where}: not JSON: {error}", "one JSON object a line, in UTF-8") from error
    if not isinstance(value, dict):
        raise InputError(f"{where}: {type_name(value)}, not an object", "one JSON object a line")
    return value


def write_sealed(path: Path, body: Mapping[str, Any]) -> None:
    """Write a JSON document as `write_json` does, with its own hash under "self"."""
    plain = parse_json(redact(json.dumps(body, default=str)))
    write_json(path, {**plain, "self": _seal(plain)})


def read_sealed(path: Path) -> dict[str, Any]:
    """Return a document that `write_sealed` wrote. Raises OSError, and ValueError as `parse_sealed` does."""
    return parse_sealed(path.read_bytes())


def parse_sealed(raw: bytes) -> dict[str, Any]:
    """Return the document in a text from `write_sealed`. Raises ValueError, which says what is wrong, if a byte differs."""
    document = parse_json(raw.decode("utf-8", "replace"))
    if not isinstance(document, dict) or "self" not in document:
        raise ValueError("is not of its form")
    body = {name: value for name, value in document.items() if name != "self"}
    # The text is compared, too, because white space or a repeated key would not change the hash.
    if document["self"] != _seal(body) or raw != json_text(document).encode():
        raise ValueError("does not match its own hash")
    return body


def _seal(body: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()


def remove(path: Path) -> None:
    """Delete a folder with its contents, a file, or a link without its target."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def sync_folder(folder: Path) -> None:
    """Sync every file of a folder, and the folder itself, to disk."""
    for path in folder.rglob("*"):
        if path.is_file():
            with path.open("rb+") as file:
                os.fsync(file.fileno())
    sync_names(folder)


def sync_names(folder: Path) -> None:
    """Sync a folder's names to disk, after a file was created, renamed or deleted."""
    if os.name == "posix":
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def stamp(path: Path) -> list[int]:
    """Return size, times and inode of a file, which change whenever its bytes do. Raises OSError."""
    return stamp_of(path.stat())


def stamp_of(facts: os.stat_result) -> list[int]:
    """Return the stamp of a file from its stat result."""
    return [facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns, facts.st_ino]


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def is_file(path: Path) -> bool:
    """Return whether a file exists; False in an inaccessible folder, where `Path.is_file` raises."""
    return os.path.isfile(path)  # noqa: PTH113


def is_folder(path: Path) -> bool:
    """Return whether a folder exists; False in an inaccessible folder."""
    return os.path.isdir(path)  # noqa: PTH112


def matching(pattern: str) -> Iterator[Path]:
    """Yield the existing paths that match a `glob` pattern ("**" matches folders), in any order and without hidden ones."""
    return map(Path, glob.iglob(pattern, recursive=True))  # noqa: PTH207  Path.glob takes no absolute pattern


def files_below(folder: Path) -> Iterator[Path]:
    """Yield the files in a folder and its subfolders, in any order; inaccessible folders are skipped."""
    for where, _, names in os.walk(folder):
        yield from (Path(where, name) for name in names)


def facts_of(paths: Iterable[Path]) -> dict[Path, os.stat_result]:
    """Return the stat results of paths; missing ones are left out."""
    found = {}
    for path in paths:
        with suppress(FileNotFoundError):
            found[path] = path.stat()
    return found


@dataclass(frozen=True)
class VerifiedFolder:
    """A folder and its recorded files: {name: {bytes, sha256}}; with mtime_ns, an unchanged file is not hashed again."""

    path: Path
    files: Mapping[str, Mapping[str, Any]]

    @classmethod
    def measured(cls, path: Path, *, leave_out: Collection[str] = (), times: bool = False) -> VerifiedFolder:
        """Return a folder with its current files, synced to disk. Hidden ones and `leave_out` are not recorded."""
        files = {file.relative_to(path).as_posix(): file for file in sorted(path.rglob("[!.]*")) if file.is_file()}
        files = {name: file for name, file in files.items() if name not in leave_out}
        # Hashing takes as long as syncing, and both release the GIL.
        with ThreadPoolExecutor(1) as thread:
            entries = thread.map(partial(_entry, times=times), files.values())
            sync_folder(path)
            return cls(path, dict(zip(files, entries, strict=True)))

    def damage(self, sha256: Callable[[Path], str] | None = sha256_of) -> str:
        """Return which file differs from its record, and how, or "". sha256: None compares only sizes."""
        damage = next(filter(None, (self._fault(name, None) for name in self.files)), "")
        if damage or sha256 is None:
            return damage
        with ThreadPoolExecutor(4) as threads:
            return next(filter(None, threads.map(lambda name: self._fault(name, sha256), self.files)), "")

    def _fault(self, name: str, sha256: Callable[[Path], str] | None) -> str:
        path, wanted = self.path / name, self.files[name]
        try:
            facts = path.stat()
            if facts.st_size != wanted["bytes"]:
                return f"{name} has {facts.st_size:,} bytes, not {wanted['bytes']:,}"
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
    """Yield an empty folder beside `home`, to be filled and renamed; otherwise it is deleted at the end."""
    home.parent.mkdir(parents=True, exist_ok=True)
    prefix = f".{home.name}.writing-"
    for left in home.parent.glob(f"{glob.escape(prefix)}*"):  # left by killed processes, as large as a model
        with suppress(OSError):
            if time.time() - left.stat().st_mtime > DAY_S:  # no process writes for so long without a new file in it
                remove(left)
    beside = Path(tempfile.mkdtemp(prefix=prefix, dir=home.parent))
    try:
        with naming(home):
            yield beside
    finally:
        shutil.rmtree(beside, ignore_errors=True)


class FileHashCache:
    """A cache of file hashes by size, mtime, ctime and inode, so that unchanged files are not read again."""

    def __init__(self, folder: Path) -> None:
        """Read the cache beside the stores in `folder`; a damaged one counts as empty."""
        self.path, self.changed = folder / ".memo.json", False
        self.known: dict[str, list[Any]] = {}
        with suppress(OSError, ValueError, KeyError, TypeError):
            self.known = dict(read_sealed(self.path)["files"])

    def sha256(self, path: Path, *, again: bool = False) -> str:
        """Return a file's hash, computed again if the file has changed (or if `again`)."""
        seen, name = stamp(path), str(path.resolve())
        *then, digest = self.known.get(name, [""])
        if again or then != seen:
            digest = sha256_of(path)
            self.known[name] = [*seen, digest]
            self.changed = True
        return str(digest)

    def save(self) -> None:
        """Write new entries; if the folder is not writable, they are not saved."""
        if self.changed:
            there = {name: seen for name, seen in self.known.items() if Path(name).exists()}
            with suppress(OSError):
                write_sealed(self.path, {"files": there})
                self.changed = False
