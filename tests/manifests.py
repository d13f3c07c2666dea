"""A small valid manifest and ways to write it down, for tests."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from expert_cli.config.resolve import Overrides, decide
from expert_cli.config.run_config import RunConfig
from expert_cli.hardware.machine import Machine
from expert_cli.manifest.reader import LoadedManifest


def small(**config: Any) -> dict[str, Any]:
    """Return a valid schema 2.0 manifest; `config` adds to or replaces `training.config`."""
    return {
        "name": "expert-small",
        "schema_version": "2.0",
        "base_models": [{"name": "Qwen/Qwen3-0.6B", "quantization": "none"}],
        "training": {
            "dataset": {"path": "datasets/train.jsonl"},
            "config": {"adapter_type": "lora", "rank": 4, "alpha": 8, "learning_rate": 1e-3, **config},
        },
    }


def write(folder: Path, manifest: dict[str, Any]) -> Path:
    """Write a manifest into `folder` and return its path."""
    path = folder / "manifest.json"
    path.write_text(json.dumps(manifest, indent=2), encoding="utf-8")
    return path


ROOT = Path(__file__).parents[1]
SHIPPED = sorted([*ROOT.glob("experts/*/manifest*.json"), *ROOT.glob("examples/*/manifest.json")])
SHARED = sorted(Path(os.environ.get("EXPERT_CLI_MANIFESTS", ROOT.parent / "shared" / "manifests")).glob("*.json"))
"""Manifests of other people, where they are on this machine."""


def name_of(path: Path) -> str:
    """Return the name of a manifest in a test's id."""
    return f"{path.parent.name}/{path.name}"


def resolve(loaded: LoadedManifest, machine: Machine, overrides: Overrides = Overrides()) -> RunConfig:
    """Return the run that a manifest comes to."""
    return decide(loaded, machine, overrides)[0]
