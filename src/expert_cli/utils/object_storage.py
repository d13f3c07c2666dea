"""Access to object storage by URL (s3://, gs://, hf:// ...) through fsspec, and the reasons that forbid the network.

An object becomes visible when it is complete; the last object of a group marks the group as complete.
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
"""Bytes per request, enough to make its latency unimportant."""
_URL = re.compile(r"([a-z0-9]+)://")
_CONNECTION = {"connect_timeout": 10, "read_timeout": 60, "retries": {"max_attempts": 4, "mode": "standard"}}
_LIBRARIES = {"aiobotocore", "aiohttp", "asyncio", "botocore", "gcsfs", "google", "huggingface_hub", "requests"}
_LIBRARIES |= {"httpcore", "httpcore2", "httpx", "httpx2", "urllib3"}  # of the hub client, depending on its version
_VERSIONS = ("ETag", "md5Hash", "etag", "blob_id", "generation", "last_modified", "mtime", "created")
"""The names under which file systems report the version of an object's content."""


def forbidden_by(*, asked: bool) -> str:
    """Return what forbids the network, "" if nothing does. Variables count as they were when the hub client was imported."""
    from huggingface_hub import constants

    reasons = {"--offline is given": asked, "HF_HUB_OFFLINE or TRANSFORMERS_OFFLINE is set": constants.HF_HUB_OFFLINE}
    return " and ".join(why for why, holds in reasons.items() if holds)


def is_url(written: str | os.PathLike[str]) -> bool:
    """Return whether the name of a file or folder is a URL in object storage."""
    found = _URL.match(os.fspath(written))
    return found is not None and found[1] != "file"


def without_file_scheme(written: str) -> str:
    """Return the path of a file:// URL; any other text is returned unchanged."""
    return url2pathname(written.removeprefix("file://")) if written.startswith("file://") else written


def place_of(written: str | os.PathLike[str]) -> Path | str:
    """Return a folder as a Path, or a URL in object storage as str, without a trailing slash."""
    name = os.fspath(written)
    return name.rstrip("/") if is_url(name) else Path(without_file_scheme(name))


@dataclass(frozen=True)
class ObjectInfo:
    """Information about an object: its size, and the version of its content (S3: the ETag)."""

    size: int
    version: str


@dataclass(frozen=True)
class StoredFolder:
    """All objects whose URL begins with `url` and a slash. Without a name, a method uses the object at `url` itself.

    Every method raises EnvironmentProblem (unreachable after several tries, no permission, a missing package) and InputError
    (no such bucket or object), with the URL and the remedy.
    """

    url: str

    def __truediv__(self, name: str) -> StoredFolder:
        """Return a subfolder."""
        return StoredFolder(self.url_of(name))

    def __str__(self) -> str:
        """Return the URL without secrets."""
        return _shown(self.url)

    def url_of(self, name: str) -> str:
        """Return the URL of an object in this folder."""
        return f"{self.url.rstrip('/')}/{name}" if name else self.url

    def list(self) -> dict[str, ObjectInfo]:
        """Return all objects in this folder and its subfolders by relative name ("/" between parts), sorted."""
        with self._errors("", "list") as (system, root):
            found = system.find(root, detail=True)
            inside = root.rstrip("/") + "/"
            return {name.removeprefix(inside): _info(found[name]) for name in sorted(found) if name.startswith(inside)}

    def info(self, name: str = "") -> ObjectInfo | None:
        """Return information about one object, None if it does not exist."""
        with self._errors(name, "read") as (system, path):
            try:
                found = system.info(path)
            except FileNotFoundError as error:  # fsspec's HTTP also raises it if no server answers
                if isinstance(error.__cause__, OSError) and not isinstance(error.__cause__, FileNotFoundError):
                    raise error.__cause__ from error
                return None
            return _info(found) if found["type"] == "file" else None

    def read(self, name: str) -> bytes:
        """Return the bytes of an object in this folder."""
        with self._errors(name, "read") as (system, path):
            return cast(bytes, system.cat_file(path))

    def open(self, name: str = "", *, version: str = "") -> IO[bytes]:
        """Open an object for reading ranges; the caller handles errors while reading, see `storage_errors`.

        version: the required version, "" for any. Raises InputError if the object has another one.
        """
        with self._errors(name, "read") as (system, path):
            file = system.open(path, "rb", block_size=READ_AHEAD, cache_type="readahead")
            if version and _info(file.details).version != version:
                file.close()
                raise _replaced(self.url_of(name))
            return cast(IO[bytes], file)

    def get(self, names: Sequence[str], folder: Path) -> None:
        """Download the named objects to a local folder in parallel."""
        with self._errors("", "read") as (system, root), disk_errors(f"cannot fetch {self}", "give a larger disk"):
            system.get([f"{root}/{name}" for name in names], [str(folder / name) for name in names])

    def put(self, folder: Path, names: Sequence[str]) -> None:
        """Upload the named files of a local folder in parallel."""
        with self._errors("", "write") as (system, root):
            system.put([str(folder / name) for name in names], [f"{root}/{name}" for name in names])

    def remove(self, name: str) -> None:
        """Delete an object; a missing one is no error."""
        with self._errors(name, "remove") as (system, path), suppress(FileNotFoundError):
            system.rm_file(path)

    @contextmanager
    def _errors(self, name: str, doing: str) -> Iterator[tuple[Any, str]]:
        """Yield the file system and the object's path in it, and convert errors."""
        url = self.url_of(name)
        with storage_errors(url, doing):
            from fsspec.core import url_to_fs

            options = {"config_kwargs": _CONNECTION} if url.startswith("s3://") else {}
            yield url_to_fs(url, use_listings_cache=False, **options)


@contextmanager
def storage_errors(url: str, doing: str = "read") -> Iterator[None]:
    """Convert errors of a file system or its client in the block into ours, with the URL and the remedy."""
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
    """Return a text without hub tokens and without passwords in URLs."""
    return redact(without_passwords(text))


def _replaced(url: str) -> InputError:
    return InputError(_shown(f"{url}: was replaced while it was read"), "wait until it is written, then try again")


def _problem(error: Exception, url: str, doing: str) -> ExpertError | None:
    """Return the error to show to the user for an error of a file system; None for a bug."""
    scheme, told = url.partition("://")[0], _shown(f"{url}: cannot {doing}: {str(error) or type(error).__name__}")
    if isinstance(error, ImportError):
        return EnvironmentProblem(told, f'pip install "expert-cli[{EXTRAS.get(scheme, scheme)}]"')
    if isinstance(error, FileNotFoundError) or str(error).startswith("Protocol not known"):
        return InputError(told, "see that the URL is right, and that it is still there")
    if type(error).__name__ == "FileExpired":
        return _replaced(url)
    if isinstance(error, OSError) or type(error).__module__.partition(".")[0] in _LIBRARIES:
        hint = f"check that it can be reached, and that the credentials for {scheme} may {doing} it"
        return EnvironmentProblem(told, hint)
    return None
