"""Objects in storage with a URL (s3://, gs://, hf:// ...), through fsspec; and what forbids the network.

An object appears when it is complete; a group of objects is marked as complete by one that is written last.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, cast
from urllib.request import url2pathname

from expert_cli.errors import EnvironmentProblem, ExpertError, InputError
from expert_cli.utils.disk_errors import disk_errors
from expert_cli.utils.redaction import redact, without_passwords

EXTRAS = {"s3": "s3", "gs": "gcs"}
"""URL schemes and the extras that support them; the hub's own client supports hf://."""
READ_AHEAD = 8 << 20
"""Bytes of one request, so many that its latency hardly counts."""
_URL = re.compile(r"([a-z0-9]+)://")
_CONNECTION = {"connect_timeout": 10, "read_timeout": 60, "retries": {"max_attempts": 4, "mode": "standard"}}
_LIBRARIES = {"aiobotocore", "aiohttp", "asyncio", "botocore", "gcsfs", "google", "huggingface_hub", "requests"}
_LIBRARIES |= {"httpcore", "httpcore2", "httpx", "httpx2", "urllib3"}  # of the hub's client, by its version
_VERSIONS = ("ETag", "md5Hash", "etag", "blob_id", "generation", "last_modified", "mtime", "created")
"""The names under which file systems report the version of an object's content."""


def forbidden_by(*, asked: bool) -> str:
    """Return what forbids the network, as the hub client read it when it was imported; "" for nothing."""
    from huggingface_hub import constants

    reasons = {"--offline is given": asked, "HF_HUB_OFFLINE or TRANSFORMERS_OFFLINE is set": constants.HF_HUB_OFFLINE}
    return " and ".join(why for why, holds in reasons.items() if holds)


def is_url(written: str | os.PathLike[str]) -> bool:
    """Return whether a name of files is a URL in object storage."""
    found = _URL.match(os.fspath(written))
    return found is not None and found[1] != "file"


def without_file_scheme(written: str) -> str:
    """Return the path of a file:// URL, anything else unchanged."""
    return url2pathname(written.removeprefix("file://")) if written.startswith("file://") else written


def place_of(written: str | os.PathLike[str]) -> Path | str:
    """Return a folder, or a URL in storage as text without a slash at its end. Raises InputError."""
    name = os.fspath(written)
    return name.rstrip("/") if is_url(name) else Path(without_file_scheme(name))


@dataclass(frozen=True)
class ObjectInfo:
    """Information about an object: its size, and the version of its content (S3: the ETag)."""

    size: int
    version: str


@dataclass(frozen=True)
class StoredFolder:
    """All objects whose URL begins with `url` and a slash; without a name a method is about the object at `url` itself.

    Every method raises EnvironmentProblem (unreachable after several tries, no permission, a missing package) and InputError
    (no such bucket or object), with the URL and the remedy.
    """

    url: str

    def __truediv__(self, name: str) -> StoredFolder:
        """Return a folder below."""
        return StoredFolder(self.url_of(name))

    def __str__(self) -> str:
        """Return the URL without secrets."""
        return _shown(self.url)

    def url_of(self, name: str) -> str:
        """Return the URL of an object below."""
        return f"{self.url.rstrip('/')}/{name}" if name else self.url

    def list(self) -> dict[str, ObjectInfo]:
        """Return all objects below, by name ("/" between parts), in order."""
        with self._errors("", "list") as (system, root):
            found = system.find(root, detail=True)
            inside = root.rstrip("/") + "/"
            return {name.removeprefix(inside): _info(found[name]) for name in sorted(found) if name.startswith(inside)}

    def info(self, name: str = "") -> ObjectInfo | None:
        """Return information about one object, None if it does not exist."""
        with self._errors(name, "read") as (system, path):
            try:
                found = system.info(path)
            except FileNotFoundError:
                return None
            return _info(found) if found["type"] == "file" else None

    def read(self, name: str) -> bytes:
        """Return the bytes of an object below."""
        with self._errors(name, "read") as (system, path):
            return cast(bytes, system.cat_file(path))

    def open(self, name: str = "", *, version: str = "") -> IO[bytes]:
        """Open an object for reading ranges; the caller handles errors while reading, see `storage_errors`.

        version: the required one, "" = any; InputError if it is another.
        """
        with self._errors(name, "read") as (system, path):
            file = system.open(path, "rb", block_size=READ_AHEAD, cache_type="readahead")
            if version and _info(file.details).version != version:
                file.close()
                raise _replaced(self.url_of(name))
            return cast(IO[bytes], file)

    def get(self, names: Sequence[str], folder: Path) -> None:
        """Download objects to a local folder in parallel, by name."""
        with self._errors("", "read") as (system, root), disk_errors(f"cannot fetch {self}", "give a larger disk"):
            system.get([f"{root}/{name}" for name in names], [str(folder / name) for name in names])

    def put(self, folder: Path, names: Sequence[str]) -> None:
        """Upload files of a local folder in parallel, by name."""
        with self._errors("", "write") as (system, root):
            system.put([str(folder / name) for name in names], [f"{root}/{name}" for name in names])

    def remove(self, name: str) -> None:
        """Delete an object; a missing one is no error."""
        with self._errors(name, "remove") as (system, path), suppress(FileNotFoundError):
            system.rm_file(path)

    @contextmanager
    def _errors(self, name: str, doing: str) -> Iterator[tuple[Any, str]]:
        """Yield the file system and the object's path in it, and convert its errors."""
        url = self.url_of(name)
        with storage_errors(url, doing):
            from fsspec.core import url_to_fs

            options = {"config_kwargs": _CONNECTION} if url.startswith("s3://") else {}
            yield url_to_fs(url, use_listings_cache=False, **options)


@contextmanager
def storage_errors(url: str, doing: str = "read") -> Iterator[None]:
    """Convert errors of a file system or its client in the block, with the URL and the remedy."""
    try:
        yield
    except ExpertError:
        raise
    except Exception as error:
        found = _problem(error, url, doing)
        if found is None:
            raise
        raise found from error


def _info(found: dict[str, Any]) -> ObjectInfo:
    version = next((str(found[name]) for name in _VERSIONS if found.get(name)), "")
    return ObjectInfo(int(found["size"] or 0), version.strip('"'))


def _shown(text: str) -> str:
    """Return a text with a URL without secrets."""
    return redact(without_passwords(text))


def _replaced(url: str) -> InputError:
    return InputError(_shown(f"{url}: was replaced while it was read"), "Wait until it is written, then try again.")


def _problem(error: Exception, url: str, doing: str) -> ExpertError | None:
    """Return the user's error for a file system's; None for a bug."""
    scheme, told = url.partition("://")[0], _shown(f"{url}: cannot {doing}: {str(error) or type(error).__name__}")
    if isinstance(error, ImportError):
        return EnvironmentProblem(told, f'pip install "expert-cli[{EXTRAS.get(scheme, scheme)}]"')
    if isinstance(error, FileNotFoundError) or str(error).startswith("Protocol not known"):
        return InputError(told, "See that the URL is right, and that it is still there.")
    if type(error).__name__ == "FileExpired":
        return _replaced(url)
    if isinstance(error, OSError) or type(error).__module__.partition(".")[0] in _LIBRARIES:
        hint = f"check that it can be reached, and that the credentials for {scheme} may {doing} it"
        return EnvironmentProblem(told, hint)
    return None
