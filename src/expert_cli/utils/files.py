"""Files and folders that a reader sees as they were or as they become, never half: written beside, synced, renamed.

No token of the hub reaches a text written here (`redaction.py`).

    with folder_beside(home) as beside:
        fill(beside)
        write_sealed(beside / RECORD, {"files": VerifiedFolder.measured(beside).files})
        beside.rename(home)
    damage = VerifiedFolder(home, read_sealed(home / RECORD)["files"]).damage()

The record of a folder is written last, and names every file but itself.
"""

from __future__ import annotations

import errno
import glob
import hashlib
import json
import os
import secrets
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from expert_cli.errors import InputError
from expert_cli.utils.redaction import redact
from expert_cli.utils.text import type_name

DAY_S = 86_400
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def require_new_file(option: str, path: Path) -> None:
    """Raise InputError where something lies at the place that an option names: it is never written over."""
    if path.exists():
        raise InputError(f"{option} {path}: something is there already", "give another name, or remove it")


def require_no_folder(option: str, file: Path | None) -> None:
    """Raise InputError where a folder lies at the place of the file that an option names."""
    if file is not None and file.is_dir():
        raise InputError(f"{option} {file}: is a folder", "name a file in it")


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Put the place that is written into the error of a full disk, which names none."""
    try:
        yield
    except OSError as error:
        if error.errno in FULL and not error.filename:
            error.filename = str(path)
        raise


def append_text(path: Path, text: str) -> None:
    """Write a text (UTF-8, line feeds) at the end of a file, which is made where there is none."""
    with naming(path), path.open("a", encoding="utf-8", newline="\n") as file:
        file.write(text)


def write_text(path: Path, text: str) -> None:
    """Write a text (UTF-8, line feeds) atomically, but for tokens of the hub as it is."""
    write_bytes(path, redact(text).encode("utf-8"))


def write_bytes(path: Path, raw: bytes) -> None:
    """Write a file atomically and exactly; one that was there keeps its permissions. A device or a pipe is written to."""
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
    """Give a name beside a file's place, to write it there and rename it; what is not renamed goes. The folder is made."""
    path.parent.mkdir(parents=True, exist_ok=True)
    # Processes of several machines or containers may have one number.
    unfinished = path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}.tmp")
    try:
        with naming(path):
            yield unfinished
    finally:
        unfinished.unlink(missing_ok=True)


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    """Write a JSON document atomically, tokens of the hub removed."""
    write_text(path, json_text(value))


def json_text(value: Mapping[str, Any]) -> str:
    """Return the text of a JSON document as `write_json` lays it out."""
    text = json.dumps(value, indent=2, ensure_ascii=False, default=str) + "\n"
    # A file's name that is no UTF-8 holds half of a surrogate pair: such a thing JSON can only spell out.
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


class KeyTwice(ValueError):
    """An object that names a key twice, of which `json` would keep the last."""


def unique_keys(members: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the object of these members: an `object_pairs_hook`. Raises KeyTwice."""
    found = dict(members)
    if len(found) < len(members):
        key, _ = Counter(key for key, _ in members).most_common(1)[0]
        raise KeyTwice(f'the key "{key}" stands twice')
    return found


def parse_json(text: str | bytes) -> Any:
    """Return what JSON text holds. Raises ValueError, also where it is nested too deeply."""
    try:
        return json.loads(text)
    except RecursionError as error:
        raise ValueError("is nested too deeply") from error


def json_lines(rows: Iterable[Mapping[str, Any]]) -> bytes:
    """Return rows as JSON lines: exactly, but without the hub's tokens, and with "?" for half of a surrogate pair."""
    text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    return redact(text).encode("utf-8", "replace")


def json_objects(path: Path) -> Iterator[tuple[str, int, dict[str, Any]]]:
    """Yield (file:line, line, object) of every line that is not blank. Raises InputError with the place of the first fault."""
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, start=1):
                if line.strip():
                    yield f"{path}:{number}", number, _object(f"{path}:{number}", line)
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}", "give a file of JSON lines") from error


def _object(where: str, line: bytes) -> dict[str, Any]:
    try:
        value = json.loads(line.decode("utf-8-sig"), object_pairs_hook=unique_keys, parse_constant=no_number)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{where}: not JSON: {error}", "one JSON object a line, in UTF-8") from error
    if not isinstance(value, dict):
        raise InputError(f"{where}: {type_name(value)}, not an object", "one JSON object a line")
    return value


def no_number(word: str) -> None:
    """Refuse NaN and Infinity: a `parse_constant`."""
    raise ValueError(f"{word} is no JSON number")


def write_sealed(path: Path, body: Mapping[str, Any]) -> None:
    """Write a JSON document as `write_json` does, with a hash of itself under "self"."""
    plain = parse_json(redact(json.dumps(body, default=str)))
    write_json(path, {**plain, "self": _seal(plain)})


def read_sealed(path: Path) -> dict[str, Any]:
    """Return what `write_sealed` wrote. Raises OSError, ValueError as `parse_sealed` does."""
    return parse_sealed(path.read_bytes())


def parse_sealed(raw: bytes) -> dict[str, Any]:
    """Return what `write_sealed` made a document of. Raises ValueError saying what is wrong: not one byte may differ."""
    document = parse_json(raw.decode("utf-8", "replace"))
    if not isinstance(document, dict) or "self" not in document:
        raise ValueError("is not of its form")
    body = {name: value for name, value in document.items() if name != "self"}
    # The text too: white space or a repeated key would pass the hash.
    if document["self"] != _seal(body) or raw != json_text(document).encode():
        raise ValueError("does not match its own hash")
    return body


def _seal(body: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()


def remove(path: Path) -> None:
    """Remove a folder with all that is in it, a file, or a link but nothing it leads to."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def sync_folder(folder: Path) -> None:
    """Make every file of a folder, and the folder itself, durable."""
    for path in folder.rglob("*"):
        if path.is_file():
            with path.open("rb+") as file:
                os.fsync(file.fileno())
    sync_names(folder)


def sync_names(folder: Path) -> None:
    """Make durable which files a folder has, after one was made, renamed or removed in it."""
    if os.name == "posix":
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def stamp(path: Path) -> list[int]:
    """Return size, times and inode of a file: what changes whenever its bytes do. Raises OSError."""
    return stamp_of(path.stat())


def stamp_of(facts: os.stat_result) -> list[int]:
    """Return the stamp of the file that the system tells this about."""
    return [facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns, facts.st_ino]


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def is_file(path: Path) -> bool:
    """Whether a file is there; no in a folder that may not be looked into, where `Path.is_file` raises."""
    return os.path.isfile(path)  # noqa: PTH113


def is_folder(path: Path) -> bool:
    """Whether a folder is there; no in a folder that may not be looked into."""
    return os.path.isdir(path)  # noqa: PTH112


def matching(pattern: str) -> Iterator[Path]:
    """Yield what is there that a pattern of `glob` fits, "**" over folders, in no order; nothing hidden."""
    return map(Path, glob.iglob(pattern, recursive=True))  # noqa: PTH207  Path.glob takes no absolute pattern


def files_below(folder: Path) -> Iterator[Path]:
    """Yield the files in a folder and in its folders, in no order; one that cannot be read has none."""
    for where, _, names in os.walk(folder):
        yield from (Path(where, name) for name in names)


def facts_of(paths: Iterable[Path]) -> dict[Path, os.stat_result]:
    """Return what the system tells about each of some files; one that is gone, or goes meanwhile, is left out."""
    found = {}
    for path in paths:
        with suppress(FileNotFoundError):
            found[path] = path.stat()
    return found


@dataclass(frozen=True)
class VerifiedFolder:
    """A folder and its files: {name: {bytes, sha256}}; with mtime_ns an unchanged one is not hashed again."""

    path: Path
    files: Mapping[str, Mapping[str, Any]]

    @classmethod
    def measured(cls, path: Path, *, leave_out: Collection[str] = (), times: bool = False) -> VerifiedFolder:
        """Return a folder with its files as they are, made durable; hidden ones and `leave_out` are no part of it."""
        files = {file.relative_to(path).as_posix(): file for file in sorted(path.rglob("[!.]*")) if file.is_file()}
        files = {name: file for name, file in files.items() if name not in leave_out}
        # Hashing takes as long as syncing, and neither needs the interpreter.
        with ThreadPoolExecutor(1) as thread:
            entries = thread.map(partial(_entry, times=times), files.values())
            sync_folder(path)
            return cls(path, dict(zip(files, entries, strict=True)))

    def damage(self, sha256: Callable[[Path], str] | None = sha256_of) -> str:
        """Return which file is not as it was recorded, and how; "": none. sha256: None = sizes are enough."""
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
    """Give an empty folder beside `home`, to be filled and renamed; what was not renamed is removed at the end."""
    home.parent.mkdir(parents=True, exist_ok=True)
    prefix = f".{home.name}.writing-"
    for left in home.parent.glob(f"{glob.escape(prefix)}*"):  # of a process that was killed, as large as a model
        with suppress(OSError):
            if time.time() - left.stat().st_mtime > DAY_S:  # nobody writes so long without a new file in it
                remove(left)
    beside = Path(tempfile.mkdtemp(prefix=prefix, dir=home.parent))
    try:
        with naming(home):
            yield beside
    finally:
        shutil.rmtree(beside, ignore_errors=True)


class FileHashCache:
    """File hashes remembered by size, mtime, ctime and inode, so that an unchanged file is not read again."""

    def __init__(self, folder: Path) -> None:
        """Read those that are remembered beside the stores in `folder`; a damaged file of them is an empty one."""
        self.path, self.changed = folder / ".memo.json", False
        self.known: dict[str, list[Any]] = {}
        with suppress(OSError, ValueError, KeyError, TypeError):
            self.known = dict(read_sealed(self.path)["files"])

    def sha256(self, path: Path, *, again: bool = False) -> str:
        """Return a file's hash, read anew if the file changed since it was remembered (or if asked `again`)."""
        seen, name = stamp(path), str(path.resolve())
        *then, digest = self.known.get(name, [""])
        if again or then != seen:
            digest = sha256_of(path)
            self.known[name] = [*seen, digest]
            self.changed = True
        return str(digest)

    def save(self) -> None:
        """Write what is new; a folder that cannot be written is used without them."""
        if self.changed:
            there = {name: seen for name, seen in self.known.items() if Path(name).exists()}
            with suppress(OSError):
                write_sealed(self.path, {"files": there})
                self.changed = False
