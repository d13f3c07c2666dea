"""Where an adapter comes from: what its folder, and the run directory around it, tell."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from expert_cli.errors import InputError, LockedOrDamaged
from expert_cli.paths import RunPaths

WEIGHTS = "adapter_model.safetensors"
CONFIG = "adapter_config.json"


@dataclass(frozen=True)
class Origin:
    """An adapter folder and its making; "" and None for what nothing tells (an adapter outside of a run directory).

    template: the fingerprint of the prompt template. manifest: the file it was trained from, which may be gone.
    """

    adapter: Path
    run: Path | None
    base_model: str
    base_sha256: str
    template: str
    manifest: Path | None


def find_adapter(folder: Path) -> Origin:
    """Return the adapter in `folder`: an adapter folder, a checkpoint, or a run directory.

    Raises InputError where there is none, LockedOrDamaged where its files cannot be read.
    """
    found = next((path for path in (folder, RunPaths(folder).adapter) if (path / CONFIG).is_file()), None)
    if found is None:
        raise InputError(f"{folder}: no adapter there", "give a run directory, or the folder adapter/ in one")
    if not (found / WEIGHTS).is_file():
        raise InputError(f"{found}: no {WEIGHTS}", "weights in other formats can run code when they are read: not used")
    adapter = found.resolve()
    base = str(_read(adapter / CONFIG).get("base_model_name_or_path") or "")
    run = next((path for path in list(adapter.parents)[:2] if RunPaths(path).run_json.is_file()), None)
    if run is None:
        return Origin(adapter, None, base, "", "", None)
    recorded = _read(RunPaths(run).run_json)
    config, identity = recorded.get("config", {}), recorded.get("identity", {})
    return Origin(
        adapter,
        run,
        config.get("model", {}).get("name", base),
        recorded.get("model", {}).get("sha256", ""),
        identity.get("template", ""),
        Path(config["manifest"]) if "manifest" in config else None,
    )


def _read(path: Path) -> dict[str, Any]:
    try:
        value: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return value
    except (OSError, ValueError) as error:
        raise LockedOrDamaged(f"{path} cannot be read: {error}", "train again, or fetch the adapter again") from error
