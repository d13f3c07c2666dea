"""run.json of a run directory: what the run is, before it trains."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from expert_cli.config.init_adapter import provenance
from expert_cli.config.plan import Plan
from expert_cli.config.run_config import RunConfig
from expert_cli.config.run_identity import identity
from expert_cli.data.sources import content_of
from expert_cli.hardware.machine import Machine
from expert_cli.pipeline.inputs import DataInputs
from expert_cli.runs.metrics import items, part, read_json
from expert_cli.runs.paths import RunPaths
from expert_cli.utils.files import write_json


def identity_of(
    run: RunConfig,
    inputs: DataInputs,
    machine: Machine,
    processes: int,
    *,
    trusted: str = "",
    more_files: Sequence[str] = (),
) -> dict[str, Any]:
    """Return what a run has in common with an equal one. more_files: hashes of what it reads beside its rows."""
    return identity(
        run,
        files=[*(content_of(file, inputs.hashes.sha256) for file in inputs.located.files()), *more_files],
        store=dict(inputs.key(run.data).parts),
        trusted=trusted,
        base=inputs.source.sha256,
        template=inputs.template.fingerprint,
        processes=processes,
        versions=machine.versions,
    )


def write_run_json(
    plan: Plan,
    machine: Machine,
    inputs: DataInputs,
    what: Mapping[str, Any],
    command: str,
    *,
    resumed_from: str,
    more: Mapping[str, Any],
) -> None:
    """Write what the run is; one that goes on keeps its start and adds where it went on. what: its identity.

    resumed_from: "" for a run that begins. more: what else is known of it.
    """
    file = RunPaths(plan.run.output).run_json
    files = [str(path) for path in inputs.located.files()]
    now = datetime.now(UTC).isoformat(timespec="seconds")
    earlier = read_json(file) if resumed_from else {}
    write_json(
        file,
        {
            "schema_version": 1,
            "command": command,
            "config": asdict(plan.run),
            "effects": [asdict(effect) for effect in plan.effects],
            "defaults": [asdict(default) for default in plan.defaults],
            "init_adapter": provenance(plan.run),
            "model": {"name": inputs.source.name, "kind": inputs.source.kind, "sha256": inputs.source.sha256},
            "machine": asdict(machine),
            "started": earlier.get("started", now),
            "resumes": [*items(earlier, "resumes"), *([{"time": now, "from": resumed_from}] if resumed_from else [])],
            "identity": dict(what),
            **more,
            "data": {"files": dict(zip(files, what["data"], strict=False)), **part(more, "data")},
        },
    )
