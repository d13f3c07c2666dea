"""Local copies of a store in object storage: each shard is fetched when it is first asked for, or ahead of that.

.fetched-<first 12 of the key>/    or .limited-..., which one run has to itself, since shards go from it
train/data-00003.arrow             verified by the hash in the store's fingerprint before it has this name
lengths.json, train/lengths.npy    how documents share packs is decided without a shard
.lock-7                            held while a shard is fetched
.lock-ahead                        held while shards are fetched ahead, and go where there is a limit
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from filelock import FileLock, Timeout
from numpy.typing import NDArray

from expert_cli.data.saved import STATE
from expert_cli.data.store.documents import DocumentLengths, Documents, DocumentsOfShard, documents_of_file
from expert_cli.data.store.files import ShardRecord, file_hashes
from expert_cli.data.store.stored import (
    LENGTHS,
    PUT_ANEW,
    lengths_name,
    sealed_document,
    write_lengths,
)
from expert_cli.errors import InputError, IntegrityError
from expert_cli.utils.files import read_sealed, sha256_of, write_sealed
from expert_cli.utils.filesystem import is_abandoned
from expert_cli.utils.length_histogram import LengthHistogram
from expert_cli.utils.locks import is_held
from expert_cli.utils.object_storage import StoredFolder
from expert_cli.utils.reporter import NullReporter, Reporter
from expert_cli.utils.text import size_text

POLL_S = 0.05
PATIENCE_S = 300.0
"""So long who fetches ahead is waited for, a tenth where nothing makes room: a copy that was removed by hand is not in its
plan, and it may be another run's."""
_LOCKS = 16


@dataclass(frozen=True)
class Copies:
    """The copies of one store. limit: as many bytes of shards lie here at most; 0: all may."""

    store: StoredFolder
    folder: Path
    shards: tuple[ShardRecord, ...]
    files: Mapping[str, Mapping[str, Any]]
    limit: int = 0

    @classmethod
    def of(cls, store: StoredFolder, fingerprint: Mapping[str, Any], beside: Path, limit: int = 0) -> Copies:
        """Return the copies of a store that lie in the folder `beside`. Raises IntegrityError: its form is another."""
        name = f"{'.limited' if limit else '.fetched'}-{fingerprint['key'][:12]}"
        try:
            shards = tuple(ShardRecord(**shard) for shard in fingerprint["shards"])
        except TypeError as error:
            raise IntegrityError(f"{store}: the fingerprint is not of its form", PUT_ANEW) from error
        return cls(store, beside / name, shards, fingerprint["files"], limit)

    def split(self, name: str) -> tuple[ShardRecord, ...]:
        """Return the shards of a split, in their order."""
        return tuple(shard for shard in self.shards if shard.file.startswith(f"{name}/"))

    def has(self, shard: ShardRecord) -> bool:
        """Whether a shard lies here; it was verified when it was fetched."""
        return (self.folder / shard.file).is_file()

    def bytes(self) -> int:
        """Return how many bytes of shards lie here."""
        return sum(shard.bytes for shard in self.shards if self.has(shard))

    def ahead(self) -> FileLock:
        """Return the lock of who fetches ahead; any thread may release it. Its folder is made."""
        self.folder.mkdir(parents=True, exist_ok=True)
        return FileLock(self.folder / ".lock-ahead", thread_local=False)

    def path(self, shard: ShardRecord) -> Path:
        """Return where a shard lies, once it does: who fetches ahead, if anyone does, comes to it.

        Raises what `fetch` raises.
        """
        patience = PATIENCE_S if self.limit else PATIENCE_S / 10
        since = time.monotonic()
        while not self.has(shard):
            if not is_held(self.ahead()) or time.monotonic() - since > patience:
                self.fetch(shard)
            else:
                time.sleep(POLL_S)
        return self.folder / shard.file

    def fetch(self, shard: ShardRecord, advance: Callable[[int], None] = lambda _: None) -> None:
        """Fetch a shard, unless it is here. Raises EnvironmentProblem: out of reach; IntegrityError: gone or damaged."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with self._lock(shard):
            if not self.has(shard):
                self._fetch(shard.file, shard.sha256, advance)

    def evict(self, shard: ShardRecord) -> bool:
        """Remove a shard; return whether it went: Windows keeps one that a process reads."""
        try:
            (self.folder / shard.file).unlink(missing_ok=True)
        except PermissionError:
            return False
        return True

    def check(self, report: Reporter) -> None:
        """Remove what an earlier run left here damaged or unfinished; what another process writes just now stays."""
        hashes = file_hashes(self.folder)
        by_file = {shard.file: shard for shard in self.shards}
        for unfinished in self.folder.glob("*/.*.tmp"):
            shard = by_file.get(f"{unfinished.parent.name}/{unfinished.name[1:].rsplit('.', 2)[0]}")
            with suppress(Timeout, OSError):
                if shard is None and not is_abandoned(unfinished):  # lengths, which have no lock
                    continue
                with self._lock(shard).acquire(timeout=0) if shard else nullcontext():
                    unfinished.unlink(missing_ok=True)
        for shard in filter(self.has, self.shards):
            path = self.folder / shard.file
            with suppress(FileNotFoundError):  # another run removes it just now
                if path.stat().st_size != shard.bytes or hashes.sha256(path) != shard.sha256:
                    report.warning(f"{path}: the copy is damaged and is fetched again")
                    path.unlink()
        hashes.save()

    def fetch_all(self, split: str, report: Reporter = NullReporter()) -> None:
        """Fetch all shards of a split."""
        shards = self.split(split)
        done, total = 0, sum(shard.bytes for shard in shards)

        def advance(count: int) -> None:
            nonlocal done
            done += count
            bar.update(done)

        with report.progress(f"fetching {split}", total, "B") as bar:
            for shard in shards:
                self.fetch(shard, advance)

    def documents(self, split: str) -> StoredDocuments | None:
        """Return the documents of a split, None if the store has none; a store without lengths is fetched as a whole first.

        Raises InputError: that is more than the limit; IntegrityError: what was fetched is damaged.
        """
        if not self.split(split):
            return None
        name = lengths_name(split)
        path, recorded = self.folder / name, self._lengths()
        if recorded is None:
            self._measure()
        elif not path.is_file() or sha256_of(path) != recorded["files"][name]["sha256"]:
            self._fetch(name, str(recorded["files"][name]["sha256"]))
        return StoredDocuments(self, split)

    def _lengths(self) -> dict[str, Any] | None:
        """Return what is recorded of the lengths; a copy is kept, so that nothing is asked for again when training is done."""
        try:
            return read_sealed(self.folder / LENGTHS)
        except (OSError, ValueError):
            recorded = sealed_document(self.store, LENGTHS)
            if recorded is not None:
                write_sealed(self.folder / LENGTHS, recorded)
            return recorded

    def _measure(self) -> None:
        total = sum(shard.bytes for shard in self.shards)
        if self.limit and self.limit < total:
            raise InputError(
                f"{self.store} has no {LENGTHS}, so all its {size_text(total)} are needed at once; "
                f"the limit is {size_text(self.limit)}",
                f"Raise --stage-limit, or {PUT_ANEW}.",
            )
        entries = {}
        for split in sorted({shard.file.partition("/")[0] for shard in self.shards}):
            self.fetch_all(split)
            state, name = f"{split}/{STATE}", lengths_name(split)
            self._fetch(state, self.files[state]["sha256"])
            documents = Documents(self.folder / split)
            entries[name] = write_lengths(self.folder / name, len(documents), documents.measured())
        write_sealed(self.folder / LENGTHS, {"files": entries})

    def _lock(self, shard: ShardRecord) -> FileLock:
        return FileLock(self.folder / f".lock-{self.shards.index(shard) % _LOCKS}")

    def _fetch(self, name: str, sha256: str, advance: Callable[[int], None] = lambda _: None) -> None:
        try:
            self.store.fetch(name, self.folder / name, sha256=sha256, advance=advance)
        except InputError as error:
            raise IntegrityError(f"{error.message}, though it belongs to the store", PUT_ANEW) from error


class _Opened(NamedTuple):
    documents: DocumentsOfShard
    inode: int


class StoredDocuments(Documents):
    """One split of a store in object storage, by document number: lengths are at hand, a shard is when it is read.

    Picklable: a worker process maps the copies again.
    """

    def __init__(self, copies: Copies, split: str) -> None:
        """Map the lengths, which were fetched. Raises IntegrityError: they are not those of the shards."""
        self.copies = copies
        self.name = split
        self.shards = copies.split(split)
        self.folder = copies.folder / split
        self.empty = 0
        self.first = np.concatenate([[0], np.cumsum([shard.rows for shard in self.shards], dtype=np.int64)])
        path = copies.folder / lengths_name(split)
        self._lengths: NDArray[np.int32] = np.load(path, mmap_mode="r")
        if self._lengths.shape != (3, len(self)):
            raise IntegrityError(f"{path} is of shape {self._lengths.shape}, not {(3, len(self))}", PUT_ANEW)
        self._opened: dict[int, _Opened] = {}

    def __reduce__(self) -> tuple[type[StoredDocuments], tuple[Copies, str]]:  # type: ignore[override]
        """Send where the copies are, not the data."""
        return StoredDocuments, (self.copies, self.name)

    def lengths_of(self, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the tokens of some documents, int64 [numbers]."""
        return np.asarray(self._lengths[0, numbers], np.int64)

    def prompt_lengths_of(self, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the tokens before the first trained one of some documents, int64 [numbers]."""
        return np.asarray(self._lengths[1, numbers], np.int64)

    def measured(self) -> Iterator[DocumentLengths]:
        """Yield the lengths of all documents, as many at once as a shard has; no shard is read."""
        for start, stop in pairwise(self.first.tolist()):
            yield DocumentLengths(*self._lengths[:, start:stop].astype(np.int64))

    def histogram(self) -> LengthHistogram:
        """Return how many documents have which length."""
        return LengthHistogram.of_all(lengths.tokens for lengths in self.measured())

    def _shard(self, at: int) -> DocumentsOfShard:
        opened = self._opened.get(at)
        if opened is None:
            if self.copies.limit:
                self._forget_evicted()
            opened = self._opened[at] = self._open(self.shards[at])
        return opened.documents

    def _open(self, shard: ShardRecord) -> _Opened:
        while True:
            path = self.copies.path(shard)
            try:
                (documents,) = documents_of_file(path)
                return _Opened(documents, path.stat().st_ino)
            except (IntegrityError, FileNotFoundError):
                if self.copies.has(shard):
                    raise

    def _forget_evicted(self) -> None:
        """Let go of what was evicted: its bytes stay on the disk as long as a process maps them."""
        for at, opened in [*self._opened.items()]:
            try:
                gone = (self.copies.folder / self.shards[at].file).stat().st_ino != opened.inode
            except FileNotFoundError:
                gone = True
            if gone:
                del self._opened[at]
