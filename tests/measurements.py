"""Measurements with given numbers, and runs that return them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jsonschema_rs

from expert_cli.benchmark.measured_run import Curve, RunMeasurement, StepCounts, Variant
from expert_cli.config.resolve import Overrides
from expert_cli.hardware.machine import Gpu, Machine
from expert_cli.runs.metrics import SHARES

MACHINE = Machine("Linux", 2, 24 * 2**30, (), cpu_bf16=True, torch_cuda="", versions=(("python", "3.11"),))
GPU_MACHINE = Machine("Linux", 2, 24 * 2**30, (Gpu("H200", 1, (9, 0)),), True, "13.0", (("python", "3.11"),))


SCHEMA = json.loads((Path(__file__).parents[1] / "docs/schemas/benchmark.schema.json").read_text(encoding="utf-8"))


def valid(document: Any) -> Any:
    """Return the document as it is, once its schema accepts it."""
    whole = {"schema_version": 1, "command": "benchmark", **document}
    jsonschema_rs.validator_for(SCHEMA).validate(json.loads(json.dumps(whole)))
    return document


def measured(seed: int, speed: float, loss: float = 2.0, **changes: Any) -> RunMeasurement:
    values: dict[str, Any] = {
        "seed": seed,
        "seconds": 1.0,
        "tokens_per_s": speed,
        "tokens_per_step": 100.0,
        "padding_share": 0.5,
        "shares": dict.fromkeys(SHARES, 0.125),
        "peak_memory_mb": speed,
        "utilization": {"gpu": None, "cpu": 50.0, "others": 1.0},
        "curve": Curve((10, 10), (loss, loss)),
        "config": {"model": {"quantization": "int4"}, "optim": {"batch_size": 2}, "data": {"max_seq_length": 64}},
        "facts": {
            "model": {"name": "m", "kind": "folder", "sha256": "1"},
            "train_sha256": "2",
            "adjusted": [],
            "kernels": {"loss": "chunked"},
            "epoch_tokens": 1000.0,
        },
    }
    return RunMeasurement(**{**values, **changes})


def runner(
    answer: Callable[[Variant, int], RunMeasurement], asked: list[tuple[str, int]]
) -> Callable[[Variant, Overrides, StepCounts, Path, int, Callable[[int, float], None]], RunMeasurement]:
    """Return what stands for `run_once`; `asked` gets (side, seed) of every call."""

    def run(
        side: Variant,
        overrides: Overrides,
        length: StepCounts,
        folder: Path,
        seed: int,
        show: Callable[[int, float], None],
    ) -> RunMeasurement:
        asked.append((side.name, seed))
        show(length.steps, 1.0)
        return answer(side, seed)

    return run


def speeds(found: Mapping[str, float]) -> Callable[[Variant, int], RunMeasurement]:
    return lambda side, seed: measured(seed, found[side.name])
