"""A manifest, rows and a tiny model in a folder, and a training run of them in this process."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import manifests

from expert_cli import machine, run
from expert_cli.config import Overrides
from expert_cli.console import Reporter, Silent
from expert_cli.outcome import RunResult
from expert_cli.plan import make_plan

ROWS = [
    {"instruction": f"Add {a} and {b}.", "input": "", "output": str(a + b)} for a in range(1, 9) for b in range(1, 9)
]
QUICK: dict[str, Any] = {
    "batch_size": 8,
    "max_steps": 6,
    "learning_rate": 0.02,
    "max_seq_length": 64,
    "logging_steps": 2,
    "bf16": False,
    "fp16": False,
    "lr_scheduler": "constant",
}


def project(folder: Path, model: Path, rows: list[dict[str, str]] | None = None, **config: Any) -> Path:
    """Write a manifest and its rows into `folder`; return the manifest's path."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = "".join(json.dumps(row) + "\n" for row in rows or ROWS)
    (folder / "train.jsonl").write_text(lines, encoding="utf-8")
    manifest = manifests.small(**{**QUICK, **config})
    manifest["base_models"][0]["name"] = str(model)
    manifest["training"]["dataset"] = {"path": "train.jsonl"}
    return manifests.write(folder, manifest)


def train(
    manifest: Path, options: run.RunOptions = run.RunOptions(), report: Reporter = Silent(), **overrides: Any
) -> RunResult:
    """Train in this process."""
    facts = machine.inspect()
    plan = make_plan(manifest, facts, Overrides(**overrides))
    return run.train(plan, facts, report, options)
