"""Which data sets the experts' manifests name, where their token stores lie, and the keys those must have now."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from expert_cli.config.data_sources import resolve_sources, test_sources
from expert_cli.config.plan import Plan, make_plan
from expert_cli.config.resolve import Overrides
from expert_cli.config.run_config import SourceSpec
from expert_cli.config.settings import Settings
from expert_cli.errors import ExpertError
from expert_cli.hardware.machine import inspect
from expert_cli.manifest.reader import LoadedManifest, load_manifest
from expert_cli.utils.filesystem import is_file, is_folder
from expert_cli.utils.paths import project_root, store_folder
from expert_cli.utils.reporter import Reporter

CurrentKey = Callable[[Plan], str | None]


@dataclass(frozen=True)
class ManifestReferences:
    """What one manifest names. `sources`: rows to train, evaluate and test with. `stores`: folders that token stores lie in.

    `keys`: those its stores have now, one a base model, None for one that cannot be told.
    """

    name: str
    root: Path
    sources: tuple[SourceSpec, ...]
    stores: frozenset[Path]
    keys: frozenset[str | None]


def default_experts(here: Path) -> Path | None:
    """Return the folder `experts` of `here` or of its nearest ancestor that has one."""
    return next((folder / "experts" for folder in (here, *here.parents) if is_folder(folder / "experts")), None)


def read_experts(
    homes: Sequence[Path], report: Reporter, current_key: CurrentKey | None
) -> tuple[ManifestReferences, ...]:
    """Read the manifest of every folder that has one; a manifest that does not load is a warning."""
    experts = []
    for home in homes:
        manifest = home / "manifest.json"
        if not is_file(manifest):
            continue
        try:
            experts.append(_expert(load_manifest(manifest), current_key))
        except (ExpertError, OSError) as error:
            report.warning(f"{error}; what this manifest names is not known")
    return tuple(experts)


def _expert(loaded: LoadedManifest, current_key: CurrentKey | None) -> ManifestReferences:
    root = project_root(loaded.path)
    data = resolve_sources(loaded, Settings(loaded.manifest.training.dataset), root, None, None, evaluates=False)
    return ManifestReferences(
        name=loaded.manifest.name,
        root=root,
        sources=(*data.train, *data.validation, *test_sources(loaded, root).values()),
        stores=_stores(loaded, root),
        keys=frozenset(_keys(loaded, current_key)),
    )


def _stores(loaded: LoadedManifest, root: Path) -> frozenset[Path]:
    """Every base model may have a folder of its own; where none is written it is the expert's."""
    shared = loaded.manifest.training.config.pretokenized_cache
    own = {base.config.pretokenized_cache for base in loaded.manifest.bases if base.config}
    written = {shared, *(folder for folder in own if folder)}
    return frozenset(store_folder(root, loaded.manifest.name, folder or "") for folder in written)


def _keys(loaded: LoadedManifest, current_key: CurrentKey | None) -> list[str | None]:
    if current_key is None:
        return [None]
    machine = inspect()
    keys: list[str | None] = []
    for base in loaded.manifest.bases:
        try:
            keys.append(current_key(make_plan(loaded.path, machine, Overrides(base_model=base.name, offline=True))))
        except ExpertError:
            keys.append(None)
    return keys
