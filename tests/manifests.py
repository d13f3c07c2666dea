"""A small valid manifest and ways to write it down, for tests."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


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
