"""Where data files are: on this machine, or in object storage. What differs is decided here, for all that reads them."""

from __future__ import annotations

import io
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Any, TypeAlias, TypeVar

from expert_cli.errors import InputError
from expert_cli.utils.files import stamp
from expert_cli.utils.filesystem import open_unnoticed
from expert_cli.utils.object_storage import ObjectInfo, StoredFolder, storage_errors

Place = TypeVar("Place", Path, StoredFolder)
"""A file or folder by its name alone; there may be none."""
_ASKED_AT_ONCE = 16


@dataclass(frozen=True)
class StoredFile:
    """A data file in object storage, of the version that it had when it was found: it is read as that or not at all."""

    at: StoredFolder
    info: ObjectInfo

    def __str__(self) -> str:
        """Return its URL."""
        return str(self.at)

    @property
    def name(self) -> str:
        """The last part of its URL."""
        return PurePosixPath(self.at.url).name

    @property
    def suffix(self) -> str:
        """The end of its name, with the dot."""
        return PurePosixPath(self.name).suffix

    @property
    def content(self) -> str:
        """What its content goes by, which nothing is read for: the storage's version of it, and its size."""
        return f"{self.info.version} {self.info.size}"


DataFile: TypeAlias = Path | StoredFile


def stored_files(places: Sequence[StoredFolder]) -> list[StoredFile]:
    """Return the objects at some places as they are now. Raises InputError: one is not there; EnvironmentProblem."""
    found = [(place, info) for place, info in zip(places, _infos(places), strict=True)]
    if gone := next((place for place, info in found if info is None), None):
        raise InputError(f"{gone}: there is no object of this name", "See that it is written, then start again.")
    files = [StoredFile(place, info) for place, info in found if info]
    if other := next((file for file in files if not file.info.version), None):
        told = "its storage does not tell by what its content goes, so that a store of it could not be known again"
        raise InputError(f"{other}: {told}", "Fetch it, and name the local file.")
    return files


def _infos(places: Sequence[StoredFolder]) -> list[ObjectInfo | None]:
    if not places:
        return []
    with ThreadPoolExecutor(_ASKED_AT_ONCE) as threads:
        return list(threads.map(StoredFolder.info, places))


def open_file(file: DataFile) -> io.RawIOBase:
    """Open a data file as it lies there. Raises OSError of a local one, else InputError, EnvironmentProblem."""
    return io.FileIO(file, "rb") if isinstance(file, Path) else _StoredBytes(file)


def open_for_arrow(file: DataFile) -> Any:
    """Open a data file as `open_file` does, as one of Arrow's files: a local one is read without Python."""
    import pyarrow as pa

    return pa.OSFile(str(file)) if isinstance(file, Path) else pa.PythonFile(open_file(file), "r")


class _StoredBytes(io.RawIOBase):
    """The bytes of a stored file, some MB a request. Raises InputError: it was replaced; EnvironmentProblem."""

    def __init__(self, file: StoredFile) -> None:
        self._url = file.at.url
        self._file: IO[bytes] = file.at.open(version=file.info.version)

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        return self._file.seek(offset, whence)

    def tell(self) -> int:
        return self._file.tell()

    def readinto(self, buffer: Any) -> int:
        with storage_errors(self._url):
            return int(self._file.readinto(buffer))  # type: ignore[attr-defined]  # fsspec's has it, IO names it not

    def close(self) -> None:
        self._file.close()
        super().close()


def size_of(file: DataFile) -> int:
    """Return the bytes of a data file. Raises OSError."""
    return file.stat().st_size if isinstance(file, Path) else file.info.size


Stamp: TypeAlias = "list[int] | str | None"
"""What changes with a file's bytes; None for one that is not there."""


def stamp_of(file: DataFile) -> Stamp:
    """Return the stamp of a local file as it is, of a stored one as it was found: no other version of it is read."""
    if isinstance(file, StoredFile):
        return file.content
    try:
        return stamp(file)
    except OSError:
        return None


def stamps_now(files: Sequence[DataFile]) -> list[Stamp]:
    """Return the stamps of files as they are; storage is asked for those of stored ones."""
    stored = [file for file in files if isinstance(file, StoredFile)]
    infos = _infos([file.at for file in stored])
    now = {file: StoredFile(file.at, info).content if info else None for file, info in zip(stored, infos, strict=True)}
    return [now[file] if isinstance(file, StoredFile) else stamp_of(file) for file in files]


def has_file(place: Path | StoredFolder) -> bool:
    """Whether a file is at a place. Raises PermissionError of a local one, EnvironmentProblem of a stored one."""
    return place.is_file() if isinstance(place, Path) else place.info() is not None


def read_start(place: Path | StoredFolder, most: int = -1) -> bytes:
    """Return the first bytes of a file, all of -1, without a trace in its time of last access. Raises OSError, InputError."""
    if isinstance(place, Path):
        with open_unnoticed(place) as file:
            return file.read(most) or b""
    found = place.info()
    if found and not found.size:  # no range of it can be asked for
        return b""
    return place.read("", 0, min(most, found.size) if found and most >= 0 else None)


def names_in(folder: StoredFolder) -> list[str]:
    """Return the names of all objects below a folder, "/" between parts. Raises InputError: there are none."""
    names = list(folder.list())
    if not names:
        raise InputError(f"{folder}: no object has this name, and none lies below it", "Correct the URL.")
    return names
