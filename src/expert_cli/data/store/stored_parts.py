"""The parts of a token store at a URL: what tasks give is put there, so that machines share nothing but the storage.

    URL/.parts-<12 hex>/
      parts.json                 what `parts.py` has in a folder
      train/000003-000.arrow     a shard, until it is a store's
      <task>.<12 hex>.npz        what the task gave, named by its content
      <task>.json                its record, put last

Each machine works in a folder of its own, which has what it did and what it has fetched of others. Storage has no locks: two
machines that would wait for each other's task may both do it. Both give the same, and a record names what its writer put.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from expert_cli.data.store.files import FINGERPRINT, ShardRecord
from expert_cli.data.store.inspect import PARTS
from expert_cli.data.store.parts import ABOUT, Given, SharedWork, read_about
from expert_cli.data.store.stored import AT_ONCE
from expert_cli.errors import InputError, IntegrityError
from expert_cli.utils.files import parse_json, parse_sealed, remove, sealed, write_sealed
from expert_cli.utils.object_storage import ObjectInfo, StoredFolder

LOOK_S = 2.0
"""How old what is known of the storage may be, at least: what another machine has done meanwhile is done twice at worst."""


@dataclass
class _Listed:
    objects: dict[str, ObjectInfo] = field(default_factory=dict)
    until: float = float("-inf")


@dataclass(frozen=True)
class StoredWork(SharedWork):
    """The work of some machines on one store at a URL. stores: what lies at that; `store`: this machine's folder for it."""

    stores: StoredFolder
    _listed: _Listed = field(default_factory=_Listed)

    @property
    def parts(self) -> StoredFolder:
        """What lies in the storage of the plan's work."""
        return self.stores / self.name

    def place(self, name: str = "") -> str:
        """Return where the parts lie, or an object of them, as it is told."""
        return str(self.parts / name if name else self.parts)

    def above(self, name: str = "") -> str:
        """Return where the stores lie, or one of them, as it is told."""
        return str(self.stores / name)

    def open(self, expert: str) -> None:
        """Begin, unless that was done; see `SharedWork`."""
        self.folder.mkdir(parents=True, exist_ok=True)
        super().open(expert)

    def about(self) -> tuple[str, str] | None:
        """Return what `SharedWork` does."""
        try:
            return read_about(self.parts.read(ABOUT))
        except InputError:  # there is none
            return None

    def write_about(self, told: Mapping[str, Any]) -> None:
        """Note what the parts are of, and what they have become."""
        self.parts.write(ABOUT, sealed(told))

    def has_store(self, key: str) -> bool:
        """Whether the store of a key lies beside the parts."""
        return (self.stores / key[:12]).info(FINGERPRINT) is not None

    def clear(self) -> None:
        """Remove what tasks gave, here and there."""
        self.parts.remove(name for name in self.parts.list() if name != ABOUT)
        with suppress(OSError):  # another process may look at it just now
            remove(self.folder)

    def is_done(self, name: str) -> bool:
        """Whether a task is done on any machine."""
        return f"{name}.json" in self._objects()

    def recorded(self, name: str) -> dict[str, Any] | None:
        """Return the record of a task, None if it is not done."""
        if not self.is_done(name):
            return None
        if super().recorded(name) is None:
            with suppress(InputError, ValueError):  # gone or damaged: not done
                write_sealed(self.folder / f"{name}.json", parse_sealed(self.parts.read(f"{name}.json")))
        return super().recorded(name)

    def result(self, name: str) -> Given:
        """Return what a task gave, fetched if need be. Raises IntegrityError: it is not there, or not as it was put."""
        recorded, path = self.recorded(name), self.folder / f"{name}.npz"
        if recorded and not path.is_file():
            try:
                self.parts.fetch(_given(name, recorded), path, sha256=str(recorded["sha256"]))
            except (InputError, IntegrityError) as error:
                raise self.lost(_given(name, recorded), name) from error
        return super().result(name)

    def fetch(self, names: Sequence[str]) -> None:
        """Bring what tasks gave to this machine, several at a time."""
        with ThreadPoolExecutor(AT_ONCE) as threads:
            for _ in threads.map(self.result, names):
                pass

    def share_out(self, name: str, about: Mapping[str, Any], shards: Sequence[str]) -> None:
        """Put what a task gave, its record last; its shards need no place here any more."""
        for shard in shards:
            self.parts.put(self.folder / shard, shard)
        self.parts.put(self.folder / f"{name}.npz", _given(name, about))
        self.parts.write(f"{name}.json", sealed(about))
        for shard in shards:
            (self.folder / shard).unlink()
        self._listed.objects[f"{name}.json"] = ObjectInfo(0, "")

    def others(self) -> list[str]:
        """Return what is different in parts of another plan at the URL; nothing where there are none."""
        for name in self.stores.list():
            plan, _, file = name.partition("/")
            if plan.startswith(PARTS) and file == ABOUT and plan != self.name:
                with suppress(ValueError, KeyError, TypeError):
                    told = parse_json(self.stores.read(name))["plan"]
                    return [str(self.stores / plan), *self.plan.changes(told)]
        return []

    def shards_lost(self, shards: Sequence[ShardRecord]) -> list[str]:
        """Return those of some shards that are not there as they were put, by their sizes."""
        there = self._objects()
        return [shard.file for shard in shards if shard.file not in there or there[shard.file].size != shard.bytes]

    def _objects(self) -> dict[str, ObjectInfo]:
        began = time.monotonic()
        if began > self._listed.until:
            self._listed.objects = self.parts.list()
            ended = time.monotonic()
            self._listed.until = ended + max(LOOK_S, 10 * (ended - began))  # of many objects a list takes seconds
        return self._listed.objects


def _given(name: str, about: Mapping[str, Any]) -> str:
    return f"{name}.{str(about['sha256'])[:12]}.npz"
