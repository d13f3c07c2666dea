"""Files written beside their place, synced and renamed, so that a reader sees the old one or the new one, never half.

Secrets (hub tokens, values of *_TOKEN and *_KEY) never reach a text written here. They are cut out of texts before these are
put into JSON: cut out of JSON they would take quotes and backslashes along.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from expert_cli.utils.filesystem import open_unnoticed

_OF_THE_HUB = r"hf_(?:[A-Za-z0-9]{34,}|[A-Za-z0-9]{16,}(?=…|\.\.\.))"
"""As long as the hub makes its tokens, or cut: a folder or a column may well be named hf_ and a long word."""
_SECRET = re.compile(
    _OF_THE_HUB + r"|(?i:(?<=_token=)|(?<=_key=)|(?<=_token\": \")|(?<=_key\": \"))(?!\*\*\*)[^\s\"']+"
)
_WORDS_OF_MODELS = ("answer", "raw")
"""Under these names stand answers that are judged again: {"primary_key": "id"} is right or wrong, and no secret."""
_SECRET_NAME = re.compile(r".*_(?:token|key)", re.IGNORECASE | re.DOTALL)
_SECRET_OPTION = re.compile(r"--?[\w-]*(?:token|key|secret|passw\w*|credentials?)", re.IGNORECASE)
_PASSWORD_IN_URL = re.compile(r"(?<=://)[^/@\s:]+:[^/@\s]+(?=@)")


def redact(text: str) -> str:
    """Return `text` with secrets replaced by ***; a text that was redacted stays as it is."""
    return _SECRET.sub("***", text)


def redacted(value: Any) -> Any:
    """Return a value that JSON can hold with every secret in it replaced by ***, as plain dicts and lists.

    A secret is what `redact` takes for one, in names as in values, and any text named *_token or *_key; in answers of models
    it is a hub token alone. What is no JSON (a path) becomes text.
    """
    if isinstance(value, str):
        return redact(value)
    if value is None or isinstance(value, (bool, int, float)):
        return value
    if isinstance(value, Mapping):
        return {
            redact(name) if isinstance(name, str) else name: _redacted_entry(name, entry)
            for name, entry in value.items()
        }
    if isinstance(value, (list, tuple)):
        return [redacted(entry) for entry in value]
    return redact(str(value))


def _redacted_entry(name: Any, entry: Any) -> Any:
    if entry and isinstance(name, str) and isinstance(entry, str):
        if name in _WORDS_OF_MODELS:
            return re.sub(_OF_THE_HUB, "***", entry)
        if _SECRET_NAME.fullmatch(name):
            return "***"
    return redacted(entry)


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
    """Write a JSON document atomically, secrets removed."""
    write_bytes(path, json_text(redacted(value)).encode("utf-8"))


def json_text(value: Mapping[str, Any]) -> str:
    """Return a JSON document without secrets as `write_json` writes it."""
    text = json.dumps(value, indent=2, ensure_ascii=False, default=str) + "\n"
    # A file's name that is no UTF-8 holds half of a surrogate pair: such a thing JSON can only spell out.
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def parse_json(text: str | bytes) -> Any:
    """Return what JSON text holds. Raises ValueError for any text that is none, also for one that is nested too deeply."""
    try:
        return json.loads(text)
    except RecursionError as error:
        raise ValueError("is nested too deeply") from error


def write_sealed(path: Path, body: Mapping[str, Any]) -> None:
    """Write a JSON document atomically, secrets removed, with a hash of itself under "self"."""
    plain = redacted(body)
    write_json(path, {**plain, "self": _seal(plain)})


def read_sealed(path: Path) -> dict[str, Any]:
    """Return what `write_sealed` wrote, without a trace in the file's time of last access.

    Raises OSError, ValueError saying what is wrong: not one byte may differ.
    """
    with open_unnoticed(path) as file:
        text = file.read().decode("utf-8", "replace")
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
    """Remove a folder with all that is in it, or a file, or a link but nothing it leads to. Raises OSError."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
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
    facts = path.stat()
    return [facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns, facts.st_ino]


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file's bytes."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()
