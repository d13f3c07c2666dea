"""Computes the key of the token store that a run needs, and looks for this store, locally or at a URL.

The key depends only on contents: source files (in object storage, their versions), selected rows and columns, tokenizer,
template, trained turns, and the rule of the shards (`STORE_RULE`). The folder's name is the first 12 digits of the key. At a
URL, the fingerprint is uploaded last; a store is downloaded as a whole and used locally.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from expert_cli.config.run_config import DataConfig
from expert_cli.data.select import FlatMap, local_flat_map
from expert_cli.data.sources import LocatedData, content_of
from expert_cli.data.store.store_files import FINGERPRINT, STORE_RULE, names_outside, read_fingerprint, verify_store
from expert_cli.data.templates.chat import Template
from expert_cli.errors import InputError, IntegrityError
from expert_cli.utils.files import FileHashCache, facts_of, folder_beside, parse_sealed, remove
from expert_cli.utils.object_storage import StoredFolder
from expert_cli.utils.redaction import redact
from expert_cli.utils.reporter import Reporter
from expert_cli.utils.text import change, size_text

BUILDING = ".building-"
STORE_NAME = re.compile(r"(\.building-)?[0-9a-f]{12}")


@dataclass(frozen=True)
class StoreKey:
    """The parts of a store's key. The hash of all parts, `sha256`, names the store."""

    parts: tuple[tuple[str, str], ...]

    @property
    def sha256(self) -> str:
        """The key: the hash of all parts."""
        return hashlib.sha256(json.dumps(self.parts).encode()).hexdigest()

    @property
    def name(self) -> str:
        """The name of the store's folder."""
        return self.sha256[:12]

    def changes(self, other: Mapping[str, str]) -> list[str]:
        """Return one line for each part that differs in `other`: its name, the old value (of `other`), and the new value."""
        mine = {name: redact(value) for name, value in self.parts}
        names = [name for name in dict.fromkeys([*other, *mine]) if mine.get(name) != other.get(name)]
        return [f"{name}: {change(other.get(name, 'nothing'), mine.get(name, 'nothing'))}" for name in names]


def store_key(
    data: DataConfig, located: LocatedData, hash_cache: FileHashCache, *, tokenizer: str, template: str
) -> StoreKey:
    """Return the key of the store for this data, tokenizer (its hash) and template (its fingerprint)."""

    def sha256(value: object) -> str:
        return hashlib.sha256(json.dumps(value).encode()).hexdigest()

    parts = {"rule": str(STORE_RULE)}
    for name, sources in (("train", located.train), ("validation", located.validation)):
        files = [[one.revision, *(content_of(file, hash_cache.sha256) for file in one.files)] for one in sources]
        specs = [one.spec for one in sources]
        # the seed matters only for weights and shares
        seeds = [data.seed if spec.share or spec.weight % 1 else None for spec in specs]
        rows = [[spec.split, spec.weight, seed, spec.share] for spec, seed in zip(specs, seeds, strict=True)]
        parts |= {f"{name} data": sha256(files), f"{name} rows": json.dumps(rows)}
    parts |= {
        "split": json.dumps([data.validation_share, data.seed]) if data.validation_share else "none",
        "filters": json.dumps(asdict(data.filters)),
        "tokenizer": tokenizer,
        "template": template,
        "mapping": json.dumps({name: value for name, value in asdict(data.mapping).items() if value}),
        "trained turns": "answers" if data.completion_only else "everything",
    }
    if shown := data.schema_prompt:
        parts["schema prompt"] = json.dumps(asdict(replace(shown, databases=shown.database_column)))
        parts["databases"] = sha256([[path.name, hash_cache.sha256(path)] for path in shown.files()])
    return StoreKey(tuple(parts.items()))


@dataclass(frozen=True)
class StoreInputs:
    """The inputs of a store: data files, tokenizer and template. hashes: the cache of file hashes.

    Not part of the key are cases (hashes of the evaluation's questions) and flat_map (decides where rows are encoded).
    """

    located: LocatedData
    tokenizer: Any  # its `sha256` covers everything that token ids depend on
    template: Template
    hashes: FileHashCache
    cases: Sequence[bytes] = field(default=(), kw_only=True)
    flat_map: FlatMap = field(default=local_flat_map, kw_only=True)

    def key(self, data: DataConfig) -> StoreKey:
        """Return the current key. Raises IntegrityError if a file of the hub has changed."""
        made_by = {"tokenizer": self.tokenizer.sha256, "template": self.template.fingerprint}
        return store_key(data, self.located, self.hashes, **made_by)


@dataclass(frozen=True)
class StoreState:
    """The state of a store: "hit", "missing", "stale" or "damaged", and the reason."""

    state: str
    reason: str
    changes: tuple[str, ...] = ()


def inspect_store(folder: Path, key: StoreKey, hash_cache: FileHashCache, *, hash_all: bool = False) -> StoreState:
    """Return whether `folder` contains the intact store with this key, or how its newest other store differs."""
    home = folder / key.name
    if home.is_dir():
        try:
            fingerprint = verify_store(home, partial(hash_cache.sha256, again=hash_all))
            hash_cache.save()
        except IntegrityError as error:
            return StoreState("damaged", error.message)
        if fingerprint["key"] != key.sha256:
            return StoreState("damaged", f"{home} holds another key than its name says")
        return StoreState("hit", f"{home} fits")
    found = facts_of(folder.glob(f"[0-9a-f]*/{FINGERPRINT}"))
    for path in sorted(found, key=lambda path: found[path].st_mtime, reverse=True):
        with suppress(IntegrityError):
            changes = key.changes(read_fingerprint(path.parent)["parts"])
            return StoreState("stale", f"{path.parent} was made from something else", tuple(changes))
    return StoreState("missing", f"no store in {folder}")


def lock_of(home: Path) -> FileLock:
    """Return the lock that is held while a store is built. home: the store's folder, or the temporary one of its build."""
    return FileLock(home.with_name(f".lock-{home.name.removeprefix(BUILDING)}"))


def prune(folder: Path, keep: str, expert: str, report: Reporter) -> None:
    """Delete other stores in `folder` that were built for `expert` (by their fingerprints), and unfinished builds."""
    stores = (path for path in sorted(folder.iterdir()) if STORE_NAME.fullmatch(path.name) and not path.is_symlink())
    for path in (path for path in stores if path.name.removeprefix(BUILDING) != keep[:12]):
        with suppress(IntegrityError, KeyError, Timeout):
            if path.name.startswith(BUILDING) or read_fingerprint(path)["expert"] == expert:
                with lock_of(path).acquire(timeout=0):
                    remove(path)
                report.info(f"deleted   {path}")


# At a URL -------------------------------------------------------------------------------------------------------------


def look_up(place: StoredFolder, key: StoreKey) -> tuple[StoreState, dict[str, Any]]:
    """Return whether the store exists at its URL, and its fingerprint. Raises EnvironmentProblem."""
    if place.info(FINGERPRINT) is None:
        return StoreState("missing", f"no store in {place}"), {}
    try:
        body = parse_sealed(place.read(FINGERPRINT))
        damage = names_outside(body) or ("" if body["key"] == key.sha256 else f"{FINGERPRINT} belongs to another store")
        return StoreState("damaged", f"{place}: {damage}") if damage else StoreState("hit", f"{place} fits"), body
    except (ValueError, KeyError, TypeError):
        return StoreState("damaged", f"{place}: {FINGERPRINT} is not of its form"), {}


def fetch_store(place: StoredFolder, key: StoreKey, folder: Path, report: Reporter) -> StoreState:
    """Download a store to `folder` and verify it, if it exists at its URL; return its state."""
    found, fingerprint = look_up(place, key)
    if found.state != "hit":
        return found
    home, size = folder / key.name, sum(file["bytes"] for file in fingerprint["files"].values())
    report.info(f"store     fetching {size_text(size)} of {place}")
    try:
        with folder_beside(home) as beside:
            place.get([*fingerprint["files"], FINGERPRINT], beside)
            verify_store(beside)
            with lock_of(home):
                remove(home)
                beside.rename(home)
    except (InputError, IntegrityError) as error:  # an object is missing or differs from what was uploaded
        return StoreState("damaged", f"{place}: {error.message}")
    return found


def put_store(home: Path, place: StoredFolder, report: Reporter) -> None:
    """Upload a store, which counts as a store only when it is complete. Raises EnvironmentProblem."""
    place.remove(FINGERPRINT)
    place.put(home, [*read_fingerprint(home)["files"]])
    place.put(home, [FINGERPRINT])
    report.info(f"store     uploaded to {place}; a copy remains in {home}")
