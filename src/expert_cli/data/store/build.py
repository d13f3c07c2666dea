"""Sources -> a verified token store: opened if it fits, built if there is none, rebuilt where it is stale or damaged."""

from __future__ import annotations

import gc
import hashlib
import json
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from expert_cli.config.run_config import DataConfig
from expert_cli.data.rows.cache import Unchanged
from expert_cli.data.store.contents import Counted, StoreBuild, split_stats
from expert_cli.data.store.documents import Documents, data_files
from expert_cli.data.store.files import FileHashCache
from expert_cli.data.store.inspect import StoreState, has_stores, inspect_store, read_stats, store_kind
from expert_cli.data.store.key import StoreInputs, StoreKey
from expert_cli.data.store.token_store import Contents, build
from expert_cli.errors import IntegrityError
from expert_cli.utils.reporter import Reporter


@dataclass(frozen=True)
class TokenStore:
    """A store that is ready: where, how it came to be there, and what its statistics say.

    status: "hit" (it was there and fits), "built", "rebuilt" (stale or damaged before; `reason` says which). `source_bytes`
    over `seconds` is the speed from first read to verified store; both are 0 for a hit. url: where it lies in object storage,
    too, else "".
    """

    home: Path
    status: str
    reason: str
    key: StoreKey
    stats: Mapping[str, Any]
    seconds: float
    source_bytes: int
    url: str = ""

    @property
    def place(self) -> str:
        """Where it lies, as it is told."""
        return self.url or str(self.home)

    def split(self, name: str) -> Documents | None:
        """Return the documents of a split, None if the store has none."""
        folder = self.home / name
        if name == "train" and not folder.is_dir():
            folder = self.home  # a data set without splits that another program saved
        return Documents(folder) if folder.is_dir() else None

    def training(self) -> Documents:
        """Return the documents that train. Raises IntegrityError without any."""
        return self.split("train") or Documents(self.home / "train")


def store_state(
    data: DataConfig, inputs: StoreInputs, folder: Path, *, verify: bool = False
) -> tuple[StoreKey, StoreState]:
    """Return the key that these inputs give, and what lies in `folder` for it; remembers file hashes there."""
    key = inputs.key(data)
    state = inspect_store(folder, key, inputs.hashes, hash_all=verify)
    if folder.is_dir():
        inputs.hashes.save()
    return key, state


def tokenize(
    data: DataConfig,
    inputs: StoreInputs,
    folder: Path,
    report: Reporter,
    *,
    expert: str = "",
    verify: bool = False,
    force: bool = False,
    locked: bool = False,
) -> TokenStore:
    """Return the store for this data in `folder`, building it if need be. expert: whom it is built for.

    Raises InputError (rows that cannot be used, files that change while they are read), EnvironmentProblem (disk),
    IntegrityError (`locked` and no store fits).
    """
    started = time.monotonic()
    files = Unchanged(inputs.located.files())
    # Where no store lies one will be built: the engine loads and the rows are looked at while the sources are hashed.
    begun = None if locked or has_stores(folder) else StoreBuild(data, inputs, report)
    with ThreadPoolExecutor(1) as thread:
        hashed = thread.submit(store_state, data, inputs, folder, verify=verify)
        if begun:
            _ = begun.selection  # looks at the rows, and keeps what was seen
        key, state = hashed.result()
    home = folder / key.sha256[:12]
    if state.state == "hit" and not force:
        return TokenStore(home, "hit", state.reason, key, read_stats(home), 0.0, 0)
    if locked:
        raise IntegrityError(f"the token store is {state.state}: {state.reason}", "; ".join(state.changes))
    if force or state.state != "missing":
        report.info(f"store     {'is built anew, as asked' if force else f'{state.state}: {state.reason}'}")
    for change in state.changes:
        report.info(f"store     {change}")
    gc.freeze()  # what is loaded by now stays: a pass over torch's objects takes 0.2 s, and rows set off several
    build_ = begun or StoreBuild(data, inputs, report)
    contents = Contents(
        build_.splits,
        build_.shards,
        lambda building: build_.stats(lambda split: Counted.of(Documents(building / split))),
        files.require,
        expert,
        files.require_everywhere,
    )
    # One that lies there and is stale itself, or not: beside a store of another key another process may have built this one.
    anew = force or (state.state == "stale" and not state.changes)
    home = build(folder, key, contents, inputs.hashes, report, force=anew)
    status = "built" if state.state == "missing" else "rebuilt"
    return TokenStore(home, status, state.reason, key, read_stats(home), time.monotonic() - started, files.bytes())


def foreign_store(folder: Path) -> Path | None:
    """Return a data set that another program saved where stores lie (`folder` itself or one below), None without one."""
    below = sorted(path for path in folder.glob("[!.]*") if path.is_dir())
    return next((place for place in (folder, *below) if store_kind(place) == "saved"), None)


def trusted_sha256(home: Path, hash_cache: FileHashCache) -> str:
    """Return one hash over the rows that another program saved: of each split the hashes of its files, in their order.

    Raises IntegrityError: a file is missing.
    """
    splits = [split for split in ("train", "validation") if (home / split).is_dir()]
    try:
        hashes = [[split, *map(hash_cache.sha256, data_files(home / split))] for split in splits or ["."]]
    except OSError as error:
        raise IntegrityError(f"{error.filename}: {error.strerror}", "save the data set again") from error
    return hashlib.sha256(json.dumps(hashes).encode()).hexdigest()


def adopt_foreign_store(home: Path, key: StoreKey, vocab_size: int) -> TokenStore:
    """Return a store that another program made, after checking its columns and the range of its ids.

    Raises IntegrityError if they do not fit the tokenizer.
    """
    trusted = TokenStore(home, "hit", "made by another program, trusted as asked", key, {}, 0.0, 0)
    stats: dict[str, Any] = {}
    for split in ("train", "validation"):
        documents = trusted.split(split)
        if documents is None:
            continue
        smallest, largest = documents.id_range()
        if smallest < 0 or largest >= vocab_size:
            message = f"{documents.folder}: ids run from {smallest} to {largest}, the tokenizer has {vocab_size}"
            hint = "it was made with another tokenizer; leave --trust-store out to build a store"
            raise IntegrityError(message, hint)
        stats[split] = split_stats(Counted.of(documents), None, len(documents) + documents.empty, "another program", {})
    return replace(trusted, stats=stats)
