"""The token store: documents as ids on disk, written once, found again by what they are made of."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from itertools import takewhile
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from expert_cli.data.store.files import (
    FINGERPRINT,
    PROGRESS,
    FileHashCache,
    ShardRecord,
    read_fingerprint,
    shard_name,
    write_fingerprint,
    write_shard,
)
from expert_cli.data.store.inspect import BUILDING, inspect_store
from expert_cli.data.store.key import StoreKey
from expert_cli.data.tokenize.assemble import Encoded
from expert_cli.errors import IntegrityError
from expert_cli.utils.disk_errors import disk_errors
from expert_cli.utils.files import parse_json, remove, write_json
from expert_cli.utils.reporter import Reporter
from expert_cli.utils.verified_folder import VerifiedFolder

LOCK_POLL_S = 0.5


@dataclass(frozen=True)
class Contents:
    """What a store is filled with.

    `shards(split, skip)` yields the shards of a split from number `skip` on; the same shards every time. `stats` is asked at
    the end, with the folder of what was written. `unchanged` raises InputError if what the shards are made from is not what
    the key was made from any more; `unchanged_at_end` does, however long it takes to tell. expert: whom the store is for.
    """

    splits: Sequence[str]
    shards: Callable[[Any, int], Iterable[Encoded]]
    stats: Callable[[Path], Mapping[str, Any]]
    unchanged: Callable[[], None] = lambda: None
    expert: str = ""
    unchanged_at_end: Callable[[], None] = lambda: None


def lies_in(folder: Path, key: StoreKey) -> bool:
    """Whether the store of this key lies in `folder`, whole or not."""
    try:
        return bool(read_fingerprint(folder / key.sha256[:12])["key"] == key.sha256)
    except IntegrityError:
        return False


def build(
    folder: Path, key: StoreKey, contents: Contents, hash_cache: FileHashCache, report: Reporter, *, force: bool = False
) -> Path:
    """Build a store, or go on with a build that was interrupted, and return its folder.

    force: build even if it is there. Waits while another process builds the same store and then uses that one. Raises
    EnvironmentProblem when the disk is full (nothing of this build is left) or the folder cannot be written; InputError when
    the sources change meanwhile.
    """
    home = folder / key.sha256[:12]
    building = folder / f"{BUILDING}{key.sha256[:12]}"
    failed, elsewhere = f"cannot write the token store in {folder}", "put the store elsewhere: pretokenize --output DIR"
    with disk_errors(failed, elsewhere, unfinished=building), _lock(folder, key, report):
        hash_cache.refresh()
        if home.exists() and not home.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, "is a file, not a folder", str(home))
        if not force and inspect_store(folder, key, hash_cache).state == "hit":
            return home
        records = _finished(building)
        _note_progress(building, contents, records)
        for split in contents.splits:
            done = sum(record.file.startswith(f"{split}/") for record in records)
            _write_shards(building, split, contents, done, records)
        contents.unchanged()
        contents.unchanged_at_end()
        write_fingerprint(building, key.sha256, dict(key.parts), records, contents.stats, expert=contents.expert)
        (building / PROGRESS).unlink()
        remove(home)
        building.rename(home)
        state = inspect_store(folder, key, hash_cache, hash_all=True)
        hash_cache.save()
        if state.state != "hit":
            raise IntegrityError(f"the store that was just written is {state.state}: {state.reason}", "check the disk")
    return home


def _write_shards(building: Path, split: str, contents: Contents, done: int, records: list[ShardRecord]) -> None:
    """Write each shard while the next one is made, and append its record; what was made is recorded, come what may."""

    def write(number: int, made: Encoded) -> None:
        record = write_shard(building, shard_name(split, number), made)
        contents.unchanged()  # a shard made from what came later would be taken for one of this key
        records.append(record)
        _note_progress(building, contents, records)

    with ThreadPoolExecutor(1) as thread:
        waiting: Future[None] | None = None
        try:
            for number, made in enumerate(contents.shards(split, done), start=done):
                before, waiting = waiting, None
                if before:
                    before.result()
                waiting = thread.submit(write, number, made)
        finally:
            if waiting:
                waiting.result()


def _note_progress(building: Path, contents: Contents, records: Sequence[ShardRecord]) -> None:
    told = {"expert": contents.expert, "shards": [asdict(record) for record in records]}
    write_json(building / PROGRESS, told)


def _finished(building: Path) -> list[ShardRecord]:
    """Return the shards of an interrupted build, up to the first that is not there as recorded; remove what has none."""
    _refuse_foreign(building)
    recorded = [] if building.is_symlink() else _recorded(building)
    good = list(takewhile(lambda one: not VerifiedFolder(building, {one.file: asdict(one)}).damage(), recorded))
    if not good:
        remove(building)
    return good


def _refuse_foreign(building: Path) -> None:
    """Raise FileExistsError for what no build began: it writes its progress file first, its fingerprint last. Links may go."""
    if building.is_symlink() or not building.exists():
        return
    names = [path.name for path in building.iterdir()] if building.is_dir() else [""]
    if not {PROGRESS, FINGERPRINT} & set(names) and not all(name.startswith(f".{PROGRESS}.") for name in names):
        raise FileExistsError(errno.EEXIST, "was not made by a build of this store", str(building))


def _recorded(building: Path) -> list[ShardRecord]:
    """Return what a build's progress file tells, nothing where it is missing or damaged."""
    try:
        told = parse_json((building / PROGRESS).read_bytes())
        return [ShardRecord(**shard) for shard in told["shards"]]
    except (OSError, ValueError, KeyError, TypeError):
        return []


def lock_of(home: Path) -> FileLock:
    """Return the lock that the builder of a store holds, of the store's folder or of its build."""
    return FileLock(home.with_name(f".lock-{home.name.removeprefix(BUILDING)}"))


@contextmanager
def _lock(folder: Path, key: StoreKey, report: Reporter) -> Iterator[None]:
    """Hold the lock of one store. The operating system frees it when its owner dies."""
    folder.mkdir(parents=True, exist_ok=True)
    lock = lock_of(folder / key.sha256[:12])
    try:
        held = lock.acquire(timeout=0)
    except Timeout:
        report.info("another process builds this token store; waiting for it")
        held = lock.acquire(poll_interval=LOCK_POLL_S)
    with held:
        yield
