"""Files written beside their place, synced and renamed, so that a reader sees the old one or the new one, never half.

No token of the hub reaches a text written here (`redaction.py`).
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import shutil
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from expert_cli.errors import InputError
from expert_cli.utils.redaction import redact

_REMOVED_TOGETHER_S = 60.0


def require_new_file(option: str, path: Path) -> None:
    """Raise InputError where something lies at the place that an option names: it is never written over."""
    if path.exists():
        raise InputError(f"{option} {path}: something is there already", "give another name, or remove it")


def write_text(path: Path, text: str) -> None:
    """Write a text (UTF-8, line feeds) atomically, but for tokens of the hub as it is."""
    write_bytes(path, redact(text).encode("utf-8"))


def write_bytes(path: Path, raw: bytes) -> None:
    """Write a file atomically and exactly; one that was there keeps its permissions."""
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
    """Return the object of these members: the `object_pairs_hook` of JSON that is read strictly. Raises KeyTwice."""
    found = dict(members)
    if len(found) < len(members):
        key, _ = Counter(key for key, _ in members).most_common(1)[0]
        raise KeyTwice(f'the key "{key}" stands twice')
    return found


def parse_json(text: str | bytes) -> Any:
    """Return what JSON text holds. Raises ValueError for any text that is none, also for one that is nested too deeply."""
    try:
        return json.loads(text)
    except RecursionError as error:
        raise ValueError("is nested too deeply") from error


def write_sealed(path: Path, body: Mapping[str, Any]) -> None:
    """Write a JSON document as `write_json` does, with a hash of itself under "self"."""
    plain = parse_json(redact(json.dumps(body, default=str)))
    write_json(path, {**plain, "self": _seal(plain)})


def read_sealed(path: Path) -> dict[str, Any]:
    """Return what `write_sealed` wrote. Raises OSError, ValueError as `parse_sealed` does."""
    return parse_sealed(path.read_bytes())


def parse_sealed(raw: bytes) -> dict[str, Any]:
    """Return what `write_sealed` made a document of. Raises ValueError saying what is wrong: not one byte may differ."""
    text = raw.decode("utf-8", "replace")
    try:
        document: dict[str, Any] = parse_json(text)
        body = {name: value for name, value in document.items() if name != "self"}
        seal = document["self"]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError("is not of its form") from error
    # The text too: white space or a repeated key would pass the hash.
    if seal != _seal(body) or text != json_text(document):
        raise ValueError("does not match its own hash")
    return body


def _seal(body: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()


def remove(path: Path) -> None:
    """Remove a folder with all that is in it, or a file, or a link but nothing it leads to. Raises OSError.

    Another process may remove it, or parts of it, at the same time.
    """
    until = time.monotonic() + _REMOVED_TOGETHER_S
    while path.is_dir() and not path.is_symlink():
        try:
            shutil.rmtree(path)
        except FileNotFoundError:  # what it was about to remove has gone: the rest is next
            if time.monotonic() > until:
                raise
    path.unlink(missing_ok=True)


def sync_folder(folder: Path) -> None:
    """Make every file of a folder, and the folder itself, durable."""
    for path in folder.rglob("*"):
        if path.is_file():
            sync_file(path)
    sync_names(folder)


def sync_file(path: Path) -> None:
    """Make a file's bytes durable."""
    with path.open("rb+") as file:
        os.fsync(file.fileno())


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
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()
