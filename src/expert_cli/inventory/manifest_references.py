"""Which data sets the experts' manifests name, where their token stores lie, and the keys those must have now."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from expert_cli.config.data_sources import resolve_sources, test_sources
from expert_cli.config.plan import Plan, make_plan
from expert_cli.config.resolve import Overrides
from expert_cli.config.run_config import SourceSpec
from expert_cli.config.settings import Settings
from expert_cli.data.sources.folder import matching_files
from expert_cli.errors import ExpertError
from expert_cli.hardware.machine import inspect
from expert_cli.manifest.reader import LoadedManifest, load_manifest
from expert_cli.utils.filesystem import is_file, is_folder, real_path
from expert_cli.utils.paths import project_root, store_folder
from expert_cli.utils.reporter import Reporter

CurrentKey = Callable[[Plan], str | None]
Key = str | Path | tuple[str, ...]
"""What a source is known by: a hub id, a URL, a path with its links resolved, or the places where it was looked for in vain."""


class ManifestReferences:
    """What one manifest names. `sources`: rows to train, evaluate and test with. `stores`: folders that token stores lie in.

    `keys`: those its stores have now, one a base model, None for one that cannot be told.
    """

    def __init__(self, loaded: LoadedManifest, current_key: CurrentKey | None) -> None:
        """Look the sources up. Raises InputError, ManifestError: one of no known form."""
        self.name, written = loaded.manifest.name, loaded.manifest.training
        self.root = project_root(loaded.path)
        data = resolve_sources(loaded, Settings(written.dataset), self.root, None, None, evaluates=False)
        tests = [source for _, source in test_sources(loaded, self.root)]
        named = (*data.train, *data.validation, *tests)
        self.sources = {key: source for source in named for key in _keys(source)}
        # Every base model may have a folder of its own; where none is written it is the expert's.
        own = {base.config.pretokenized_cache for base in loaded.manifest.bases if base.config}
        caches = {written.config.pretokenized_cache, *filter(None, own)}
        self.stores = frozenset(store_folder(self.root, self.name, folder or "") for folder in caches)
        self.keys = frozenset(_store_keys(loaded, current_key) if current_key else [None])


def default_experts(here: Path) -> Path | None:
    """Return the folder `experts` of `here` or of its nearest ancestor that has one."""
    return next((folder / "experts" for folder in (here, *here.parents) if is_folder(folder / "experts")), None)


def read_experts(homes: Sequence[Path], report: Reporter, current_key: CurrentKey | None) -> list[ManifestReferences]:
    """Read the manifest of every folder that has one; a manifest that does not load is a warning."""
    experts = []
    for manifest in filter(is_file, (home / "manifest.json" for home in homes)):
        try:
            experts.append(ManifestReferences(load_manifest(manifest), current_key))
        except (ExpertError, OSError) as error:
            report.warning(f"{error}; what this manifest names is not known")
    return experts


def _keys(source: SourceSpec) -> Sequence[Key]:
    if source.kind == "files":
        return [real_path(path) for path in matching_files(source.path)]
    return [source.tried or real_path(Path(source.path)) if source.is_local else source.path]


def _store_keys(loaded: LoadedManifest, current_key: CurrentKey) -> Iterator[str | None]:
    machine = inspect()
    for base in loaded.manifest.bases:
        try:
            yield current_key(make_plan(loaded.path, machine, Overrides(base_model=base.name, offline=True)))
        except ExpertError:
            yield None
