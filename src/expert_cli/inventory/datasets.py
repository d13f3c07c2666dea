"""Lists the data sets on this machine, and those that manifests name but that are missing.

hub cache     <HF_HUB_CACHE>/datasets--org--name, as `huggingface_hub.scan_cache_dir` lists it
Arrow cache   <HF_DATASETS_CACHE>/org___name, made by the library `datasets`; training does not read it
token stores  <root>/datasets_optimized/**, and where manifests' `pretokenized_cache` points
named         the files and folders that manifests name, existing or missing
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from stat import S_ISREG
from typing import Literal

from expert_cli.config.data_sources import resolve_sources, test_sources
from expert_cli.config.run_config import SourceKind
from expert_cli.config.settings import Settings
from expert_cli.data.store.lookup import BUILDING, STORE_NAME
from expert_cli.data.store.store_files import read_stats, verify_store
from expert_cli.errors import ExpertError, IntegrityError
from expert_cli.manifest.reader import load_manifest
from expert_cli.utils.files import facts_of, files_below, matching
from expert_cli.utils.paths import STORES, project_root, store_folder
from expert_cli.utils.reporter import Reporter

Kind = SourceKind | Literal["arrow_cache", "token_store"]
Status = Literal["used", "unused", "missing", "fresh", "stale", "damaged"]
StoreUser = tuple[str, Path, str]  # expert, its manifest, one of its base models
CurrentKey = Callable[[Path, str], str | None]
"""(manifest, its base model) -> the current key of its token store; None if it cannot be computed."""


@dataclass(frozen=True)
class DatasetEntry:
    """A row of `find-datasets --json`; docs/schemas/find-datasets.schema.json explains the keys."""

    name: str
    path: str
    kind: Kind
    bytes: int
    files: int
    rows: int | None
    last_used: str | None
    experts: tuple[str, ...]
    status: Status
    note: str


def find_datasets(experts: Path, hub: Path, arrow: Path, report: Reporter, key: CurrentKey) -> Iterator[DatasetEntry]:
    """Yield all data sets. experts: a folder of experts, or one expert. A broken manifest only gives a warning."""
    named: dict[tuple[SourceKind, str], set[str]] = defaultdict(set)
    stores: dict[Path, list[StoreUser]] = defaultdict(list)
    for manifest in sorted([*experts.glob("manifest.json"), *experts.glob("*/manifest.json")]):
        try:
            loaded, root = load_manifest(manifest), project_root(manifest)
            written, expert = loaded.manifest.training, loaded.manifest.name
            data = resolve_sources(loaded, Settings(written.dataset), root, None, None, evaluates=False)
            sources = *data.train, *data.validation, *test_sources(loaded, root)
        except ExpertError as error:
            report.warning(f"{error}; the data of this manifest is not known")
            continue
        for source in sources:
            named[source.kind, (*source.tried, source.path)[0]].add(expert)
        for base in loaded.manifest.bases:
            folder = (base.config and base.config.pretokenized_cache) or written.config.pretokenized_cache or ""
            stores[store_folder(root, expert, folder)].append((expert, manifest, base.name))
    yield from _hub_cache(hub, {place: users for (kind, place), users in named.items() if kind == "hub"}, report)
    for built in sorted(arrow.glob("[!._]*/")):
        if built.name != "downloads":
            yield _entry("arrow_cache", built.name.replace("___", "/"), built, (), files_below(built))
    optimized = (project_root(experts / "manifest.json") / STORES).resolve()
    found = {*optimized.rglob("*"), *(path for folder in stores for path in folder.glob("*"))}
    for store in sorted(path for path in found if STORE_NAME.fullmatch(path.name)):
        yield _token_store(store, stores.get(store.parent, []), key)
    for (kind, place), users in sorted(named.items(), key=lambda item: item[0][1]):
        if kind not in ("hub", "url"):
            path = Path(place)
            files = [*matching(place)] if kind == "files" else [path, *files_below(path)]
            yield _entry(kind, _shown(path), path, users, files)


def _hub_cache(hub: Path, named: Mapping[str, Collection[str]], report: Reporter) -> Iterator[DatasetEntry]:
    from huggingface_hub import CacheNotFound, scan_cache_dir

    cached = {}
    with suppress(CacheNotFound):
        cache = scan_cache_dir(hub)
        cached = {repo.repo_id: repo.revisions for repo in cache.repos if repo.repo_type == "dataset"}
        for warning in cache.warnings:
            report.warning(str(warning))
    for name in sorted({*cached, *named}):
        revisions, path = cached.get(name, ()), hub / f"datasets--{name.replace('/', '--')}"
        blobs = {file.blob_path for revision in revisions for file in revision.files}
        yield _entry("hub", name, path, named.get(name, ()), blobs)


def _token_store(store: Path, users: Collection[StoreUser], current_key: CurrentKey) -> DatasetEntry:
    """Return the entry of a token store; it counts as stale only if all current keys are known."""
    entry = _entry("token_store", _shown(store), store, {name for name, *_ in users}, files_below(store))
    if store.name.startswith(BUILDING):
        return replace(entry, note="an unfinished build: pretokenize begins it anew")
    try:
        key = str(verify_store(store, sha256=None)["key"])
    except IntegrityError as error:
        return replace(entry, status="damaged", note=error.message.removeprefix(f"{store}: "))
    keys = {current_key(manifest, base) for _, manifest, base in users}
    status: Status = "fresh" if key in keys else "stale" if keys and None not in keys else entry.status
    return replace(entry, status=status, rows=sum(split["rows"] for split in read_stats(store).values()))


def _entry(kind: Kind, name: str, path: Path, users: Collection[str], files: Iterable[Path]) -> DatasetEntry:
    facts = [fact for fact in facts_of(files).values() if S_ISREG(fact.st_mode)]
    last = datetime.fromtimestamp(max((fact.st_mtime for fact in facts), default=0), UTC).isoformat(timespec="seconds")
    told = sum(fact.st_size for fact in facts), len(facts), None, last if facts else None
    is_source = kind not in ("arrow_cache", "token_store")
    status: Status = "missing" if is_source and not facts else "used" if users else "unused"
    return DatasetEntry(name, str(path), kind, *told, tuple(sorted(users)), status, "")


def _shown(path: Path) -> str:
    """Return a path relative to the working directory, or the full path if it is elsewhere."""
    here = Path.cwd()
    return path.relative_to(here).as_posix() if path.is_relative_to(here) else str(path)
