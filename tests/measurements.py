"""Measurements with given numbers, and runs that return them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema_rs

from expert_cli.benchmark.measured_run import Run, RunCounts, RunMeasurement, Variant
from expert_cli.config.resolve import Overrides
from expert_cli.hardware.machine import Machine
from expert_cli.runs.metrics import SHARES

MACHINE = Machine("Linux", 2, 24 * 2**30, (), cpu_bf16=True, torch_cuda="", versions=(("python", "3.11"),))


SCHEMA = json.loads((Path(__file__).parents[1] / "docs/schemas/benchmark.schema.json").read_text(encoding="utf-8"))


def valid(document: Any) -> Any:
    """Return the document as it is, once its schema accepts it."""
    whole = {"schema_version": 1, "command": "benchmark", **document}
    jsonschema_rs.validator_for(SCHEMA).validate(json.loads(json.dumps(whole)))
    return document


def measured(seed: int, speed: float, loss: float = 2.0) -> RunMeasurement:
    shares = dict.fromkeys(SHARES, 0.1)
    return RunMeasurement(seed, speed, 0.5, shares, speed, ((10, loss), (10, loss)))


def runner(answer: Callable[[Variant, int], RunMeasurement], asked: list[tuple[str, int]]) -> Run:
    """Return what stands for `run_once`; `asked` gets (side, seed) of every call."""

    def run(side: Variant, overrides: Overrides, counts: RunCounts, seed: int) -> RunMeasurement:
        asked.append((side.name, seed))
        return answer(side, seed)

    return run
