"""run.json of a run directory: what the run is, before it trains."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

import torch

from expert_cli.config.init_adapter import provenance
from expert_cli.config.plan import Plan
from expert_cli.data.store.build import TokenStore
from expert_cli.hardware.machine import Machine
from expert_cli.model.kernels.select import KernelPlan
from expert_cli.model.loading.sources import LocalModel
from expert_cli.pipeline.pretokenize import DataInputs
from expert_cli.runs.metrics import items, read_json
from expert_cli.runs.paths import RunPaths
from expert_cli.training.checkpointing.resume import Checkpoints
from expert_cli.utils.files import write_json


def write_run_json(
    paths: RunPaths,
    plan: Plan,
    machine: Machine,
    inputs: DataInputs,
    store: TokenStore,
    kernels: KernelPlan,
    checkpoints: Checkpoints,
) -> None:
    """Write what the run is; one that goes on keeps its start and adds where it went on."""
    resumed = checkpoints.resumed
    files = [str(path) for path in inputs.located.files()]
    now = datetime.now(UTC).isoformat(timespec="seconds")
    earlier = read_json(paths.run_json) if resumed else {}
    resumes = [*items(earlier, "resumes"), {"time": now, "from": str(resumed.path)}] if resumed is not None else []
    write_json(
        paths.run_json,
        {
            **run_facts(plan, machine, inputs.source, checkpoints.status.command),
            "started": earlier.get("started", now),
            "resumes": resumes,
            "identity": dict(checkpoints.identity),
            "kernels": kernels.as_json(),
            "template": inputs.template.name,
            "data": {"files": dict(zip(files, checkpoints.identity["data"], strict=True)), **store.stats},
            "store": {"path": store.place, "key": store.key.sha256, "parts": dict(store.key.parts)},
            "torch_threads": torch.get_num_threads(),
        },
    )


def run_facts(plan: Plan, machine: Machine, source: LocalModel, command: str) -> dict[str, Any]:
    """Return what run.json says of every run, by whatever method. source: the base model."""
    return {
        "schema_version": 1,
        "command": command,
        "config": asdict(plan.run),
        "effects": [asdict(effect) for effect in plan.effects],
        "defaults": [asdict(default) for default in plan.defaults],
        "init_adapter": provenance(plan.run),
        "model": {"name": source.name, "kind": source.kind, "sha256": source.sha256},
        "machine": asdict(machine),
    }
