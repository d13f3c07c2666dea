"""`training.config` as it stands for one base model, and where each value of it was written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, get_args

from expert_cli.errors import ManifestIssue
from expert_cli.manifest.json_text import Path_
from expert_cli.manifest.reader import LoadedManifest
from expert_cli.manifest.schema import Adapter, Base
from expert_cli.manifest.training_config import TrainingConfig
from expert_cli.manifest.types import AdapterType

OF_ADAPTERS = {"type": "adapter_type", "r": "rank"}
"""Keys of adapter entries that have another name in `training.config`."""


@dataclass(frozen=True)
class Merged:
    """The merged values and where each came from.

    base: the base model, at `index` of the manifest; None for one that it does not list. dropped: keys of `training.config`
    whose value an option of the command line set aside, and that option.
    """

    loaded: LoadedManifest
    base: Base
    index: int | None
    values: TrainingConfig
    origins: Mapping[str, str]
    dropped: Mapping[str, str]

    @property
    def entry(self) -> Path_:
        """The path of the base model's entry, in either schema."""
        return ("base_model",) if self.loaded.manifest.base_model is not None else ("base_models", self.index or 0)

    def fault(self, key: str, message: str, hint: str = "", *, origin: str = "") -> ManifestIssue:
        """Return a fault where the value of a key was written, as it is called there. origin: in another layer than its own."""
        origin, manifest = origin or self.origins.get(key, ""), self.loaded.manifest
        block: Path_ = (*self.entry, "config") if origin.startswith("base model") else ("training", "config")
        written = manifest.training.config.model_fields_set
        names = {old for old, new in TrainingConfig.old_names.items() if new == key and old in written - {key}}
        if origin == "adapters[0]":
            block = (*(() if manifest.base_model and manifest.adapters else self.entry), "adapters", 0)
            names = {old for old, new in OF_ADAPTERS.items() if new == key}
        return self.loaded.text.fault((*block, next(iter(names), key)), message, hint)


def adapter_block(adapter: Adapter) -> dict[str, Any]:
    """Return an adapter entry under the names of `training.config`, which repeats it and decides."""
    kind = adapter.type if adapter.type in get_args(AdapterType) else None
    named = {"adapter_type": kind, "rank": adapter.r or adapter.rank}
    named |= {name: getattr(adapter, name) for name in ("alpha", "dropout", "target_modules")}
    return {name: value for name, value in named.items() if value is not None}
