"""The token store of a run whose stores lie in object storage: opened there, or built on this machine and put there."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from expert_cli.config.run_config import RunConfig
from expert_cli.data.rows.kinds import kind_named
from expert_cli.data.store.build import TokenStore, store_state
from expert_cli.data.store.copies import Copies
from expert_cli.data.store.inspect import StoreState, left_unread
from expert_cli.data.store.key import StoreInputs, StoreKey
from expert_cli.data.store.stored import StoreWriter, stored_fingerprint, stored_stats
from expert_cli.data.store.token_store import Written, tell_nobody
from expert_cli.errors import EnvironmentProblem, InputError, IntegrityError
from expert_cli.utils.object_storage import StoredFolder
from expert_cli.utils.reporter import Reporter
from expert_cli.utils.text import size_text

Build = Callable[[Written], TokenStore]
"""Opens a run's store on this machine, or builds it, and tells of every shard that it writes."""


@dataclass(frozen=True)
class AtUrl:
    """What is asked of a store in object storage.

    put: it has to lie there in the end; else one that is missing there is built on this machine, and stays there. copies_in:
    folder of the copies of its shards, None: this machine's for the URL. limit: bytes of shards that lie there at most; 0: all.
    """

    put: bool = False
    copies_in: Path | None = None
    limit: int = 0


@dataclass(frozen=True)
class StoredRun:
    """What lies at a run's URL; without a store that fits, `fingerprint` and `stats` are empty."""

    folder: StoredFolder
    state: StoreState
    fingerprint: dict[str, Any]
    stats: dict[str, Any]


def look_up(run: RunConfig, inputs: StoreInputs, key: StoreKey) -> StoredRun:
    """Look for the store of a key at a run's URL: two small reads. Raises EnvironmentProblem: `offline` forbids it, too."""
    folder = StoredFolder(run.store_url) / key.sha256[:12]
    if run.data.offline:  # a variable of the hub's client says nothing of a cluster's own storage
        told = "Leave --offline out, or name a folder of token stores."
        raise EnvironmentProblem(f"{folder}: is not looked at: --offline is given", told)
    try:
        found = stored_fingerprint(folder, key)
    except IntegrityError as error:
        return StoredRun(folder, StoreState("damaged", error.message), {}, {})
    if found is None:
        return StoredRun(folder, StoreState("missing", f"no store in {folder}"), {}, {})
    stats = stored_stats(folder, found)
    if column := left_unread(stats, kind_named(inputs.kind)):
        reason = f'{folder} was built before the column "{column}" was read'
        return StoredRun(folder, StoreState("stale", reason), {}, {})
    return StoredRun(folder, StoreState("hit", f"{folder} fits"), found, stats)


def stored_store(
    run: RunConfig, inputs: StoreInputs, report: Reporter, build: Build, asked: AtUrl, *, force: bool
) -> TokenStore:
    """Return the store of a run's URL: this machine's own, the one there, or one that is built. force: it is built anew."""
    key, local = store_state(run.data, inputs, run.store)
    here = local.state == "hit"
    if here and not (asked.put or force):
        return build(tell_nobody)
    found = look_up(run, inputs, key)
    if force or not found.fingerprint:
        return _built(found, build, report, put=asked.put)
    if here:
        return replace(build(tell_nobody), url=found.folder.url)
    copies = Copies.of(found.folder, found.fingerprint, asked.copies_in or run.store, asked.limit)
    copies.check(report)
    total, held = sum(shard.bytes for shard in copies.shards), copies.bytes()
    report.info(f"store     {found.folder}: {size_text(total)}, {size_text(held)} of it in {copies.folder}")
    told = (found.state.reason, key, found.stats)
    return TokenStore(copies.folder, "hit", *told, 0.0, 0, url=found.folder.url, copies=copies)


def _built(found: StoredRun, build: Build, report: Reporter, *, put: bool) -> TokenStore:
    started = time.monotonic()
    if found.state.state != "missing":
        report.info(f"store     {found.state.state}: {found.state.reason}")
    if not put:
        told = f"{found.folder}: no store that fits; one is built on this machine, and stays there"
        report.warning(f"{told}. pretokenize --output {found.folder.url.rpartition('/')[0]} puts it there")
        return build(tell_nobody)
    writer = StoreWriter(found.folder, report)
    store = build(writer.shard)
    writer.seal(store.home)
    status = "built" if found.state.state == "missing" else "rebuilt"
    return replace(store, status=status, url=found.folder.url, seconds=time.monotonic() - started)


def refuse_at_url(run: RunConfig, *options: str) -> None:
    """Raise InputError for options that ask for a folder of stores on a disk, where that of a run is a URL."""
    if run.store_url and options:
        raise InputError(
            f"{options[0]} does not go with token stores at {StoredFolder(run.store_url)}",
            "Name a folder: --output DIR. pretokenize --output URL puts the whole store there afterwards.",
        )
