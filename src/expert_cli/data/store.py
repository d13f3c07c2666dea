"""The token store: documents as ids on disk, written once, found again by what they are made of."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from expert_cli.console import Reporter
from expert_cli.data.assemble import Encoded
from expert_cli.data.columns import left_unread
from expert_cli.data.fingerprint import FINGERPRINT, PROGRESS
from expert_cli.data.storefiles import (
    STATS,
    Memo,
    ShardRecord,
    find_damage,
    read_fingerprint,
    seal,
    write_shard,
)
from expert_cli.data.storekey import StoreKey
from expert_cli.data.storestate import BUILDING
from expert_cli.errors import EnvironmentProblem, LockedOrDamaged
from expert_cli.files import CANNOT_WRITE, IN_THE_WAY, parse_json, remove, sha256_of, write_json

LOCK_POLL_S = 0.5
RULE_OF_COLUMNS = "rule_of_columns"
"""The key of a store's statistics, by split, that says by which rule its columns were read."""
_STORES = f"[0-9a-f]*/{FINGERPRINT}"


def _unchecked() -> None:
    """Of shards that are made from nothing that can change."""


@dataclass(frozen=True)
class Contents:
    """What a store is filled with.

    `shards(split, skip)` yields the shards of a split from number `skip` on; the same shards every time. `stats` is asked at
    the end, with the folder of what was written. `unchanged` raises InputError if what the shards are made from is not what
    the key was made from any more. expert: whom the store is for.
    """

    splits: Sequence[str]
    shards: Callable[[Any, int], Iterable[Encoded]]
    stats: Callable[[Path], Mapping[str, Any]]
    unchanged: Callable[[], None] = _unchecked
    expert: str = ""


@dataclass(frozen=True)
class StoreState:
    """What lies where a store should lie: state "hit", "missing", "stale" or "damaged", and why."""

    state: str
    reason: str
    changes: tuple[str, ...] = ()


def look(folder: Path, key: StoreKey, memo: Memo, *, hash_all: bool = False) -> StoreState:
    """Say whether `folder` (the one above the key) holds this store, unharmed.

    stale: there is none with this key, but one of another key; `changes` tells what differs from the newest of them. Or there
    is one whose rows may have said something that was not read.
    """
    home = folder / key.sha256[:12]
    if not home.is_dir():
        return _other_store(folder, key)
    try:
        fingerprint = read_fingerprint(home)
    except LockedOrDamaged as error:
        return StoreState("damaged", error.message)
    if fingerprint["key"] != key.sha256:
        return StoreState("damaged", f"{home} holds another key than its name says")
    damage = find_damage(home, fingerprint, memo, hash_all=hash_all)
    if damage:
        return StoreState("damaged", damage)
    unread = _left_unread(home)
    return StoreState("stale", f"{home} {unread}") if unread else StoreState("hit", f"{home} fits")


def _left_unread(home: Path) -> str:
    """What a store of before rows could say that they are not trained has not read of them; "" where that changes nothing."""
    splits = [split for split in read_stats(home).values() if isinstance(split, dict) and RULE_OF_COLUMNS not in split]
    if any("ignored" not in split for split in splits):
        return "is of an older version and does not say which columns it left unread"
    unread = left_unread(name for split in splits for name in split["ignored"])
    return f"left {', '.join(unread)} of the rows unread" if unread else ""


def has_stores(folder: Path) -> bool:
    """Whether any store, of whatever key, lies in `folder`."""
    return any(folder.glob(_STORES))


def lies_in(folder: Path, key: StoreKey) -> bool:
    """Whether the store of this key lies in `folder`, whole or not."""
    try:
        return bool(read_fingerprint(folder / key.sha256[:12])["key"] == key.sha256)
    except LockedOrDamaged:
        return False


def _other_store(folder: Path, key: StoreKey) -> StoreState:
    others = sorted(folder.glob(_STORES), key=lambda path: path.stat().st_mtime, reverse=True)
    for path in others:
        try:
            found = read_fingerprint(path.parent)
        except LockedOrDamaged:
            continue
        changes = key.changes(found["parts"])
        return StoreState("stale", f"{path.parent} was made from something else", tuple(changes))
    return StoreState("missing", f"no store in {folder}")


def build(
    folder: Path, key: StoreKey, contents: Contents, memo: Memo, report: Reporter, *, force: bool = False
) -> Path:
    """Build a store, or go on with a build that was interrupted, and return its folder.

    force: build even if it is there. Waits while another process builds the same store and then uses that one. Raises
    EnvironmentProblem when the disk is full (nothing of this build is left) or the folder cannot be written; InputError when
    the sources change meanwhile.
    """
    home = folder / key.sha256[:12]
    building = folder / f"{BUILDING}{key.sha256[:12]}"
    with _disk_problems(folder, building), _lock(folder, key, report):
        memo.refresh()
        if home.exists() and not home.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, "is a file, not a folder", str(home))
        if not force and look(folder, key, memo).state == "hit":
            return home
        records = _finished(building)
        _note_progress(building, contents, records)
        for split in contents.splits:
            done = sum(record.file.startswith(f"{split}/") for record in records)
            _write_shards(building, split, contents, done, records)
        contents.unchanged()
        seal(building, key.sha256, dict(key.parts), records, contents.stats, expert=contents.expert)
        (building / PROGRESS).unlink()
        remove(home)
        building.rename(home)
        state = look(folder, key, memo, hash_all=True)
        memo.save()
        if state.state != "hit":
            raise LockedOrDamaged(f"the store that was just written is {state.state}: {state.reason}", "check the disk")
    return home


def _write_shards(building: Path, split: str, contents: Contents, done: int, records: list[ShardRecord]) -> None:
    """Write each shard while the next one is made, and append its record; what was made is recorded, come what may."""

    def write(number: int, encoded: Encoded) -> None:
        record = write_shard(building, split, number, encoded)
        contents.unchanged()  # a shard made from what came later would be taken for one of this key
        records.append(record)
        _note_progress(building, contents, records)

    with ThreadPoolExecutor(1) as thread:
        waiting: Future[None] | None = None
        try:
            for number, encoded in enumerate(contents.shards(split, done), start=done):
                before, waiting = waiting, None
                if before:
                    before.result()
                waiting = thread.submit(write, number, encoded)
        finally:
            if waiting:
                waiting.result()


def _note_progress(building: Path, contents: Contents, records: Sequence[ShardRecord]) -> None:
    write_json(building / PROGRESS, {"expert": contents.expert, "shards": [asdict(record) for record in records]})


def _finished(building: Path) -> list[ShardRecord]:
    """Return the shards of an interrupted build, up to the first that is not there as recorded; remove what has none."""
    _refuse_foreign(building)
    good: list[ShardRecord] = []
    for record in [] if building.is_symlink() else _recorded(building):
        path = building / record.file
        if not path.is_file() or path.stat().st_size != record.bytes or sha256_of(path) != record.sha256:
            break
        good.append(record)
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
        return [ShardRecord(**shard) for shard in parse_json((building / PROGRESS).read_bytes())["shards"]]
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
        lock.acquire(timeout=0)
    except Timeout:
        report.say("another process builds this token store; waiting for it")
        lock.acquire(poll_interval=LOCK_POLL_S)
    try:
        yield
    finally:
        lock.release()


@contextmanager
def _disk_problems(folder: Path, building: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno in IN_THE_WAY:
            hint = "move it away, or put the store elsewhere: pretokenize --output DIR"
            message = f"cannot write the token store in {folder}: {error.filename2 or error.filename}: {error.strerror}"
            raise EnvironmentProblem(message, hint) from error
        if error.errno not in CANNOT_WRITE:
            raise
        with suppress(OSError):
            remove(building)
        hint = "free some space, or put the store elsewhere: pretokenize --output DIR"
        raise EnvironmentProblem(f"cannot write the token store in {folder}: {error.strerror}", hint) from error


def read_stats(home: Path) -> dict[str, Any]:
    """Return the statistics of a verified store."""
    stats: dict[str, Any] = parse_json((home / STATS).read_bytes())
    return stats
