"""What lies in a folder that rows were saved in: a token store and its state, what `save_to_disk` wrote; what may be deleted.

<12 hex>/                      a token store, named by the first 12 of its key, as `files.py` describes it
.building-<12 hex>/            a build that was interrupted, or is under way
"""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

from filelock import FileLock, Timeout

from expert_cli.data.store.files import FINGERPRINT, SPLITS, STATE, STATS, FileHashCache, read_fingerprint, verify_store
from expert_cli.data.store.key import StoreKey
from expert_cli.errors import IntegrityError
from expert_cli.utils.files import facts_of, is_file, parse_json, remove
from expert_cli.utils.reporter import Reporter

BUILDING = ".building-"
STORE_NAME = re.compile(r"(\.building-)?[0-9a-f]{12}")


@dataclass(frozen=True)
class StoreState:
    """What lies where a store should lie: state "hit", "missing", "stale" or "damaged", and why."""

    state: str
    reason: str
    changes: tuple[str, ...] = ()


def inspect_store(folder: Path, key: StoreKey, hash_cache: FileHashCache, *, hash_all: bool = False) -> StoreState:
    """Say whether `folder` (the one above the key) holds this store, unharmed.

    stale: there is none with this key, but one of another key; `changes` tells what differs from the newest of them.
    """
    home = folder / key.sha256[:12]
    if not home.is_dir():
        return _other_store(folder, key)
    try:
        fingerprint = verify_store(home, partial(hash_cache.sha256, again=hash_all))
    except IntegrityError as error:
        return StoreState("damaged", error.message)
    if fingerprint["key"] != key.sha256:
        return StoreState("damaged", f"{home} holds another key than its name says")
    return StoreState("hit", f"{home} fits")


def _other_store(folder: Path, key: StoreKey) -> StoreState:
    found = facts_of(folder.glob(f"[0-9a-f]*/{FINGERPRINT}"))
    for path in sorted(found, key=lambda path: found[path].st_mtime, reverse=True):
        with suppress(IntegrityError):
            changes = key.changes(read_fingerprint(path.parent)["parts"])
            return StoreState("stale", f"{path.parent} was made from something else", tuple(changes))
    return StoreState("missing", f"no store in {folder}")


def read_stats(home: Path) -> dict[str, Any]:
    """Return the statistics of a verified store."""
    return dict(parse_json((home / STATS).read_bytes()))


def store_kind(folder: Path) -> Literal["token_store", "saved"] | None:
    """Return what a folder is; a folder named like a store is one, also when its fingerprint is gone."""
    if is_file(folder / FINGERPRINT):
        return "token_store"
    if is_file(folder / SPLITS) or is_file(folder / STATE):
        return "saved"
    return "token_store" if STORE_NAME.fullmatch(folder.name) else None


def recorded_key(folder: Path) -> tuple[str, str]:
    """Return (key, "") of a token store whole by its fingerprint, names and sizes, else ("", what is wrong).

    Hashes no file of the store.
    """
    try:
        key = str(verify_store(folder, sha256=None)["key"])
    except IntegrityError as error:
        if isinstance(error.__cause__, FileNotFoundError):
            return "", f"no {FINGERPRINT}: an interrupted or foreign build"
        return "", error.message.removeprefix(f"{folder}: ")
    if not re.fullmatch(r"[0-9a-f]{64}", key) or not key.startswith(folder.name):
        return "", f"{FINGERPRINT} belongs to another folder, {key[:12]}"
    return key, ""


def lock_of(home: Path) -> FileLock:
    """Return the lock that the builder of a store holds, of the store's folder or of its build."""
    return FileLock(home.with_name(f".lock-{home.name.removeprefix(BUILDING)}"))


def prune(folder: Path, keep: str, expert: str, report: Reporter) -> None:
    """Delete the stores in `folder` that were built for `expert` and have another key than `keep`, and its broken builds.

    A name proves nothing: a folder is a store if our own fingerprint lies in it. A folder with a store's name that stays is
    told; an unfinished build has a hidden name of our own.
    """
    for path in sorted(folder.iterdir()):
        is_other = STORE_NAME.fullmatch(path.name) and path.name.removeprefix(BUILDING) != keep[:12]
        if not is_other or path.is_symlink() or not path.is_dir():
            continue
        owner = expert if path.name.startswith(BUILDING) else _owner(path)
        if owner is None:
            report.warning(f"{path} is not deleted: it has the name of a token store, but no {FINGERPRINT} of one")
            continue
        if owner != expert:
            report.info(f"kept      {path}, built for {owner}")
            continue
        try:
            with lock_of(path).acquire(timeout=0):
                remove(path)
            report.info(f"deleted   {path}")
        except Timeout:
            report.info(f"kept      {path}, which another process is building")


def _owner(home: Path) -> str | None:
    """Return the expert that a store belongs to, "" of a build; None for what is neither."""
    try:
        written = read_fingerprint(home)
        return str(written.get("expert", "")) if str(written["key"]).startswith(home.name) else None
    except (IntegrityError, KeyError):
        return None
