"""Every data set on this machine: where it lies, how big it is, when it was last used, which expert names it.

hub cache       <HF_HUB_CACHE>/datasets--org--name/{refs,snapshots,blobs}
Arrow cache     <HF_DATASETS_CACHE>/org___name/config/version/hash/*.arrow, made by the library `datasets`
token stores    <root>/datasets_optimized/**, and wherever a manifest's `pretokenized_cache` points
experts' files  experts/<name>/**: a row a folder, of the files that manifests name and of those beside them
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

from expert_cli.config.data_files import PLAIN_TEXT, format_name
from expert_cli.data.store.inspect import BUILDING, recorded_key, store_files, store_kind
from expert_cli.errors import InputError
from expert_cli.inventory.dataset import DatasetEntry, Kind, Status, dataset_option, examine, name_in
from expert_cli.inventory.hf_cache import HfCaches, arrow_name, arrow_rows, holds_data, hub_folder, snapshot
from expert_cli.inventory.manifest_references import CurrentKey, Key, ManifestReferences, read_experts
from expert_cli.inventory.tree import INFO_NAMES
from expert_cli.utils.filesystem import is_file, is_folder, real_path, subfolders
from expert_cli.utils.paths import STORES
from expert_cli.utils.reporter import Reporter, late_progress

MAX_DEPTH = 5
NO_DATA = frozenset({"weights", "tests"})
RUN_FILES = ("run.json", "adapter_config.json")


@dataclass(frozen=True)
class Inventory:
    """All data sets, place by place, and the caches that were looked into."""

    caches: HfCaches
    datasets: tuple[DatasetEntry, ...]

    @property
    def bytes(self) -> int:
        """Size of all data sets; a file that belongs to two counts once."""
        return sum({inode: size for row in self.datasets for inode, size in row.tree.inodes.items()}.values())

    def as_json(self) -> dict[str, Any]:
        """Return the document that `find-datasets --json` prints."""
        return {"hf_cache": str(self.caches.home), "datasets": [row.as_json() for row in self.datasets]}


def take_inventory(
    experts: Path | None, caches: HfCaches, report: Reporter, current_key: CurrentKey | None = None
) -> Inventory:
    """List all data sets; `experts` holds a folder an expert, or is one expert's folder.

    `current_key` gives the key that a plan's token store must have now, None where it cannot be told; without it no store is
    called fresh or stale. Raises InputError: `experts` is not a folder.
    """
    homes: list[Path] = []
    if experts is not None:
        experts = real_path(experts)
        if not is_folder(experts):
            raise InputError(f"{experts}: no such folder of experts", "name one: --experts DIR")
        homes = [experts] if is_file(experts / "manifest.json") else subfolders(experts)
    named = read_experts(homes, report, current_key)
    seen = count(1)
    with late_progress(report, "looking at data sets", None, "files") as show:
        search = _Search(named, experts, caches, lambda: show(next(seen)))
        rows = [*search.hub(), *search.arrow(), *search.stores(), *search.local(homes), *search.missing()]
    places = list(dict.fromkeys(row.place for row in rows))
    rows.sort(key=lambda row: (places.index(row.place), row.name.lower()))
    return Inventory(caches, tuple(rows))


class _Search:
    """One walk over all places. `seen`: what is listed already, links resolved."""

    def __init__(
        self, experts: Sequence[ManifestReferences], folder: Path | None, caches: HfCaches, pulse: Callable[[], None]
    ) -> None:
        self.experts = experts
        self.folder = folder or Path()  # without one nothing is named, and nothing but caches is listed
        self.caches = caches
        self.pulse = pulse
        self.seen: set[Path] = set()
        self.sources = {key: source for expert in experts for key, source in expert.sources.items()}
        self.hub_ids = [key for key in self.sources if isinstance(key, str)]
        self.roots = [*(expert.root for expert in experts), *([folder.parent] if folder else [])]

    def hub(self) -> Iterator[DatasetEntry]:
        """The data sets of the hub cache."""
        for cache, name, folder in self.caches.hub_datasets():
            current, is_there = snapshot(folder), holds_data(folder)
            note = "" if current else "refs/main names no snapshot that is here"
            note = note if is_there else "no data file is downloaded"
            row = self._row(name, cache, folder, "hub", [name], note, name)
            if row.experts and not is_there:
                row = replace(row, status="missing", option="")
            yield examine(row, (folder / "snapshots", folder / "blobs"), self.pulse, partial(_is_below, current))

    def arrow(self) -> Iterator[DatasetEntry]:
        """The data sets of the Arrow cache. Training does not read them, so that one that is named may be missing as well."""
        for cache, name, folder in self.caches.arrow_datasets():
            row = self._row(name, cache, folder, "arrow_cache", [i for i in self.hub_ids if arrow_name(i) == name])
            found = examine(row, [folder], self.pulse, lambda _: False)
            if found.tree.inodes:
                yield replace(found, rows=arrow_rows(folder))

    def stores(self) -> Iterator[DatasetEntry]:
        """What lies in `datasets_optimized` and where manifests keep their token stores."""
        kept = sorted(path for expert in self.experts for path in expert.stores)
        for root in dict.fromkeys([*(root / STORES for root in self.roots), *kept]):
            for kind, path, files in self._found(root):
                yield self._local(root, path, kind, files) if kind == "folder" else self._store(root, path, kind)

    def local(self, homes: Sequence[Path]) -> Iterator[DatasetEntry]:
        """The sources that manifests name, files of one folder in one row, and what else lies in the experts' folders."""
        folders: dict[Path, list[Path]] = {}
        for path in sorted({key for key in self.sources if isinstance(key, Path)} - self.seen):
            self.seen.add(path)
            if is_folder(path):
                yield self._local(self.folder, path, store_kind(path) or "folder", [path])
            else:
                folders.setdefault(path.parent, []).append(path)
        for folder, named in folders.items():
            # Beside a file in an expert's folder lie that expert's; of another folder nothing is known.
            beside = self._loose(folder) if folder.is_relative_to(self.folder) else []
            self.seen.update(map(real_path, beside))
            yield self._local(self.folder, folder, "folder", sorted([*named, *beside]))
        for home in homes:
            for kind, path, files in self._found(home):
                yield self._local(self.folder, path, kind, files)

    def missing(self) -> Iterator[DatasetEntry]:
        """What manifests name and is not on this machine."""
        place = self.caches.hubs[0]
        for name in sorted({*self.hub_ids} - {name for _, name, _ in self.caches.hub_datasets()}):
            yield replace(self._row(name, place, hub_folder(place, name), "hub", [name]), status="missing")
        for tried, source in self.sources.items():
            if isinstance(tried, tuple):
                row = self._row(source.path, self.folder, Path(tried[0]), "file", [tried])
                yield replace(row, status="missing")

    def _found(self, folder: Path, depth: int = MAX_DEPTH) -> Iterator[tuple[Kind, Path, list[Path]]]:
        """Yield (kind, path, files) of the data sets in a folder; nothing twice, and no outputs of runs."""
        real = real_path(folder)
        if real in self.seen or any(is_file(folder / name) for name in RUN_FILES):
            return
        self.seen.add(real)
        kind = store_kind(folder)
        files = [folder] if kind else self._loose(folder)
        if files:
            yield kind or "folder", folder, files
        for child in subfolders(folder) if depth and not kind else []:
            if child.name.startswith(BUILDING) or not (child.name.startswith(".") or child.name in NO_DATA):
                yield from self._found(child, depth - 1)

    def _loose(self, folder: Path) -> list[Path]:
        """The data files right in a folder that were not listed yet; not those that describe a data set or an expert."""
        _, _, names = next(os.walk(folder), ("", [], []))
        is_expert = "manifest.json" in names
        files = []
        for path in map(folder.joinpath, sorted(names)):
            self.pulse()
            told = (
                path.name.startswith(".") or path.name in INFO_NAMES or (is_expert and path.suffix.lower() == ".json")
            )
            # A text file may be anything: it is listed where a manifest names it.
            if format_name(path) not in ("", PLAIN_TEXT) and not told and real_path(path) not in self.seen:
                files.append(path)
        return files

    def _row(
        self, name: str, place: Path, path: Path, kind: Kind, keys: Sequence[Key], note: str = "", option: str = ""
    ) -> DatasetEntry:
        """Return the row of what manifests call by these keys; "used" if any does."""
        experts = tuple(sorted({expert.name for expert in self.experts if not expert.sources.keys().isdisjoint(keys)}))
        return DatasetEntry(name, place, path, kind, "used" if experts else "unused", experts, note, option)

    def _local(self, place: Path, path: Path, kind: Kind, files: Sequence[Path]) -> DatasetEntry:
        """What lies in a folder, or is a folder (`files` is that alone); one file of a folder is listed as itself."""
        if kind == "folder" and len(files) == 1 and files[0] != path:
            kind, path = "file", files[0]
        named = [file for file in dict.fromkeys(map(real_path, (path, *files))) if file in self.sources]
        partly = 0 < len(named) < len(files) and real_path(path) not in named
        note = f"{len(named)} of {len(files)} files named" if partly else ""
        name, option = str(path) if path == place else name_in(place, path), dataset_option(kind, path, files)
        row = self._row(name, place, path, kind, named, note, option)
        if kind not in ("saved", "token_store"):
            return examine(row, files, self.pulse)
        listed, fault = store_files(path)
        if fault:
            row = replace(row, status="damaged", note=fault, option="")
        return examine(row, files, self.pulse, listed.__contains__)

    def _store(self, root: Path, path: Path, kind: Kind) -> DatasetEntry:
        """A folder in a place for token stores; one that `save_to_disk` wrote is foreign unless a manifest names it."""
        owners = [expert for expert in self.experts if {real_path(path), real_path(path.parent)} & expert.stores]
        row = self._local(root, path, kind, [path])
        row = replace(row, experts=tuple(sorted({*row.experts, *(expert.name for expert in owners)})))
        if kind == "saved":
            return replace(row, status="foreign") if row.status == "unused" else row
        if path.name.startswith(BUILDING):
            note = "an unfinished build: pretokenize goes on with it"
            return replace(row, status="used" if owners else "unused", note=note, rows=None)
        key, fault = recorded_key(path)
        status = "damaged" if fault or row.status == "damaged" else _freshness(key, owners)
        return replace(row, status=status, note=fault or row.note)


def _is_below(folder: Path | None, path: Path) -> bool:
    return folder in path.parents


def _freshness(key: str, owners: Sequence[ManifestReferences]) -> Status:
    """Fresh and stale are said only where the keys of now are known: a store of another base model is not stale."""
    known = {known for expert in owners for known in expert.keys}
    return "unused" if not owners else "fresh" if key in known else "used" if None in known else "stale"
