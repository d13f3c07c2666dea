"""The parts of a token store become one: byte for byte the store that a single process builds."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from expert_cli.config.run_config import DataConfig
from expert_cli.data.rows.cache import Unchanged
from expert_cli.data.rows.selected import Split
from expert_cli.data.store.build import TokenStore, store_state
from expert_cli.data.store.files import ShardRecord, shard_name, write_fingerprint
from expert_cli.data.store.inspect import read_stats
from expert_cli.data.store.key import StoreInputs, StoreKey
from expert_cli.data.store.part_build import PartBuild
from expert_cli.data.store.parts import Part, SharedWork
from expert_cli.data.store.stored import StoreWriter
from expert_cli.data.store.stored_parts import StoredWork
from expert_cli.data.store.token_store import Contents, build
from expert_cli.errors import IntegrityError
from expert_cli.utils.reporter import Reporter


def seal_parts(
    data: DataConfig, inputs: StoreInputs, shared: SharedWork, report: Reporter, *, expert: str = ""
) -> TokenStore:
    """Return the store that the parts make. Raises IntegrityError: one is missing, or not as it was written."""
    started = time.monotonic()
    files = Unchanged(inputs.located.files())
    parts = PartBuild(data, inputs, shared, report)
    lacks, lacking = parts.missing()
    if lacks:
        raise IntegrityError(*_missing(shared, lacks, lacking))
    with report.progress("hashing the sources", None):
        key, state = store_state(data, inputs, shared.store)
    contents = Contents(
        parts.build.splits, parts.shards, lambda _: parts.stats(), files.require, expert, files.require_everywhere
    )
    if isinstance(shared, StoredWork):
        home, stats = shared.store, _seal_at_url(parts, shared, key, contents, report)
    else:
        home = build(shared.store, key, contents, inputs.hashes, report)
        stats = read_stats(home)
    shared.seal(key.sha256)
    return TokenStore(home, "built", state.reason, key, stats, time.monotonic() - started, files.bytes())


def _seal_at_url(
    parts: PartBuild, shared: StoredWork, key: StoreKey, contents: Contents, report: Reporter
) -> dict[str, Any]:
    """Copy the shards of the parts within the storage, put what else makes a store there, and return its statistics."""
    shared.folder.mkdir(parents=True, exist_ok=True)
    shards: list[tuple[str, ShardRecord]] = []
    counts: dict[Split, int] = {}
    for split in parts.build.splits:
        shared.fetch(parts.names(split))
        records = [*parts.records(split)]
        shards += [(one.file, replace(one, file=shard_name(split, number))) for number, one in enumerate(records)]
        counts[split] = sum(one.rows for one in records)
    writer = StoreWriter(shared.stores / key.sha256[:12], report)
    writer.copy(shared.parts, shards)
    contents.unchanged_at_end()
    with tempfile.TemporaryDirectory(dir=shared.folder, prefix=".store-") as folder:
        home = Path(folder) / key.sha256[:12]
        for split in counts:
            (home / split).mkdir(parents=True)
        records = [record for _, record in shards]
        write_fingerprint(home, key.sha256, dict(key.parts), records, contents.stats, expert=contents.expert)
        writer.seal_with(home, {split: (count, parts.lengths(split)) for split, count in counts.items()})
        return read_stats(home)


def _missing(shared: SharedWork, lacks: str, lacking: Sequence[Part]) -> tuple[str, str]:
    """What to say of parts that are not there, and what to do."""
    do = "pretokenize --part i/N for every i up to N, with the same manifest and options"
    told = f"{shared.above()}: there are no parts of this token store"
    if shared.about() is not None:
        which = f"part {', '.join(map(str, lacking))} of the token store is not whole: " if lacking else ""
        told = f"{shared.place()}: {which}{lacks}"
    if others := shared.others():
        told += f"; the parts in {others[0]} are of another: {'; '.join(others[1:])}"
    if lacking:
        do = ", ".join(f"pretokenize --part {part}" for part in lacking)
    return told, f"Run {do}; then seal again."
