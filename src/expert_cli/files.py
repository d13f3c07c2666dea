"""Files written beside their place, synced and renamed, so that a reader sees the old one or the new one, never half.

Secrets (hub tokens, values of *_TOKEN and *_KEY) never reach a text written here.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import shutil
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

CANNOT_WRITE = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""Errors by which the system says that a disk is full or a place is not to be written: no bug of the program."""
_SECRET = re.compile(r"hf_[A-Za-z0-9]{16,}|(?i:(?<=_token=)|(?<=_key=)|(?<=_token\": \")|(?<=_key\": \"))[^\s\"']+")
_SECRET_OPTION = re.compile(r"--?[\w-]*(?:token|key|secret|passw\w*|credentials?)", re.IGNORECASE)
_PASSWORD_IN_URL = re.compile(r"(?<=://)[^/@\s:]+:[^/@\s]+(?=@)")


def redact(text: str) -> str:
    """Return `text` with secrets replaced by ***."""
    return _SECRET.sub("***", text)


def command_text(words: Sequence[str]) -> str:
    """Return a command line that may be shown: values of options named after a secret and passwords in URLs are ***."""
    shown: list[str] = []
    hide_next = False
    for word in words:
        option, _, value = word.partition("=")
        is_secret = _SECRET_OPTION.fullmatch(option) is not None
        if hide_next and not word.startswith("-"):
            shown.append("***")
        elif is_secret and value:
            shown.append(f"{option}=***")
        else:
            shown.append(_PASSWORD_IN_URL.sub("***", word))
        hide_next = is_secret and not value
    return redact(" ".join(shown))


def write_text(path: Path, text: str) -> None:
    """Write a text file (UTF-8, line feeds) atomically, secrets removed."""
    write_bytes(path, redact(text).encode("utf-8"))


def write_bytes(path: Path, raw: bytes) -> None:
    """Write a file atomically and exactly; one that was there keeps its permissions."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with beside.open("wb") as file:
            file.write(raw)
            file.flush()
            os.fsync(file.fileno())
        with suppress(FileNotFoundError):
            shutil.copymode(path, beside)
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    """Write a JSON document atomically."""
    write_text(path, json_text(value))


def json_text(value: Mapping[str, Any]) -> str:
    """Return a JSON document as `write_json` writes it."""
    return json.dumps(value, indent=2, ensure_ascii=False, default=str) + "\n"


def write_sealed(path: Path, body: Mapping[str, Any]) -> None:
    """Write a JSON document atomically, with a hash of itself under "self"."""
    write_json(path, sealed(body))


def read_sealed(path: Path) -> dict[str, Any]:
    """Return what `write_sealed` wrote. Raises OSError, ValueError if a byte of it differs."""
    return open_sealed(path.read_bytes().decode("utf-8"))


def sealed(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return a document with its hash under "self"."""
    return {**body, "self": _seal(body)}


def open_sealed(text: str) -> dict[str, Any]:
    """Return the body of a sealed document. Raises ValueError saying what is wrong with it."""
    try:
        document: dict[str, Any] = json.loads(text)
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


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest() if hasattr(hashlib, "file_digest") else _digest(file)


def _digest(file: Any) -> str:
    """The same for Python 3.10, which has no hashlib.file_digest."""
    digest = hashlib.sha256()
    while block := file.read(1 << 20):
        digest.update(block)
    return digest.hexdigest()
