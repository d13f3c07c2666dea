"""Numbers -> verdict: one row a situation, borders from both sides; gains are bounds that follow from the shares."""

from __future__ import annotations

from typing import Any

import pytest

from expert_cli.benchmark.diagnosis import diagnose
from expert_cli.benchmark.evidence import Evidence
from expert_cli.runs.metrics import read_json
from tests.schemas import SCHEMAS

C = "training.config."
SCHEMA = read_json(SCHEMAS / "benchmark.schema.json")
VERDICTS = SCHEMA["oneOf"][0]["properties"]["verdict"]["enum"]
Settings = dict[str, Any]
CUDA: Settings = {
    "device": "cuda",
    "num_workers": 0,
    "pin_memory": True,
    "packing": "best_fit",
    "batch_size": 8,
    "gradient_accumulation_steps": 4,
    "checkpointing": "off",
    "attention": "sdpa",
    "torch_compile": True,
    "save_strategy": "steps",
    "save_steps": 100,
    "eval_strategy": "steps",
    "eval_steps": 50,
}
BY_TIME: Settings = {**CUDA, "save_strategy": "no", "save_every_s": 30.0}
CPU: Settings = {**CUDA, "device": "cpu", "torch_compile": False}


def shares(data: float = 0.0, other: float = 0.0, **more: float) -> dict[str, float]:
    rest = 1 - data - other - sum(more.values())
    return {
        "data": data,
        "forward": 0.3 * rest,
        "backward": 0.6 * rest,
        "optimizer": 0.1 * rest,
        "other": other,
        **more,
    }


def on_gpu(idle: float | None = 0.03, settings: Settings = CUDA, **facts: Any) -> Evidence:
    known: dict[str, Any] = {"on_gpu": True, "idle": idle, "free_memory": 0.5, "settings": settings, "cores": 16}
    return Evidence(**{**known, "shares": shares(), **facts})


def on_cpu(settings: Settings = CPU, **facts: Any) -> Evidence:
    return Evidence(**{"settings": settings, "cores": 4, "shares": shares(), "cpu_use": 0.95, **facts})


CASES: dict[str, tuple[Evidence, str, float | None]] = {
    # evidence, verdict, bound of the first advice (0: no advice; None: advice without a bound)
    "nothing known": (Evidence(), "not enough data", 0),
    "no step yet, GPU busy": (on_gpu(shares={}), "not enough data", 0),
    "60 % waiting": (on_gpu(0.7, shares=shares(0.6)), "waiting for data", 2.5),
    "waiting hidden behind a busy GPU": (on_gpu(0.05, shares=shares(0.2)), "healthy", 0),
    "waiting, utilization not told": (on_gpu(None, shares=shares(0.25)), "waiting for data", 4 / 3),
    "waiting just notable": (on_cpu(shares=shares(0.10)), "waiting for data", 1 / 0.9),
    "waiting just not notable": (on_cpu(shares=shares(0.0999)), "healthy", 0),
    "copying from pageable memory": (
        on_gpu(0.3, {**CUDA, "pin_memory": False}, shares=shares(0.05, host_to_device=0.2)),
        "waiting for data",
        4 / 3,
    ),
    "spilling outweighs all else": (
        on_gpu(0.7, shares=shares(0.6), spilled_mb=4_000),
        "memory spilling to the host",
        None,
    ),
    "shared memory just too much": (on_gpu(spilled_mb=64.0), "memory spilling to the host", None),
    "checkpoints": (on_gpu(0.2, run_shares=shares(checkpoint=0.2)), "checkpointing", 1 / 0.85),
    "checkpoints by time": (on_gpu(0.2, BY_TIME, run_shares=shares(checkpoint=0.2)), "checkpointing", 1 / 0.85),
    "evaluation": (on_gpu(shares=shares(eval=0.4)), "evaluation", 1 / 0.7),
    "evaluation before waiting, the larger wins": (on_cpu(shares=shares(0.2, eval=0.3)), "evaluation", 1 / 0.775),
    "GPU idles, nothing waits": (on_gpu(0.6), "launch-bound", 2.5),
    "GPU idles just not notably": (on_gpu(0.099), "healthy", 0),
    "program around the steps, no NVML": (on_gpu(None, shares=shares(other=0.25)), "launch-bound", 0),
    "padding": (on_gpu(settings={**CUDA, "packing": "off"}, padding_share=0.5), "compute-bound", 2.0),
    "padding just not notable": (on_gpu(settings={**CUDA, "packing": "off"}, padding_share=0.0999), "healthy", 0),
    "recomputing with memory free": (on_gpu(settings={**CUDA, "checkpointing": "all"}), "compute-bound", 1 / 0.7),
    "eager attention": (on_gpu(settings={**CUDA, "attention": "eager"}), "compute-bound", None),
    "all well": (on_gpu(mfu=0.45), "healthy", 0),
    "steps alone are known": (Evidence(shares=shares()), "compute-bound", 0),
}


def test_every_verdict_of_the_schema_is_given() -> None:
    assert {name for _, name, _ in CASES.values()} == set(VERDICTS)


@pytest.mark.parametrize(("evidence", "name", "bound"), CASES.values(), ids=CASES.keys())
def test_verdicts(evidence: Evidence, name: str, bound: float | None) -> None:
    verdict = diagnose(evidence)
    assert verdict.name == name, verdict
    assert verdict.evidence
    if bound == 0 and name not in ("launch-bound", "compute-bound"):
        assert verdict.advice == ()
    elif bound:
        assert verdict.advice[0].at_most == pytest.approx(bound)
    elif bound is None:
        assert verdict.advice
        assert all(advice.at_most is None for advice in verdict.advice)


CHANGES: dict[str, tuple[Evidence, list[dict[str, str]]]] = {
    "two workers first": (on_gpu(0.7, shares=shares(0.6)), [{f"{C}dataloader_num_workers": "2"}]),
    "no more workers than cores": (on_cpu({**CPU, "num_workers": 3}, shares=shares(0.6)), []),
    "half of the batch, twice the accumulation": (
        on_gpu(spilled_mb=900.0),
        [{f"{C}batch_size": "4", f"{C}gradient_accumulation_steps": "8"}, {f"{C}gradient_checkpointing": "true"}],
    ),
    "rarer or smaller evaluations": (
        on_cpu(shares=shares(eval=0.5)),
        [{f"{C}eval_steps": "200"}, {"--validation": "PATH"}],
    ),
    "a larger batch, then compiling": (
        on_gpu(0.6, {**CUDA, "torch_compile": False}),
        [{f"{C}batch_size": "16", f"{C}gradient_accumulation_steps": "2"}, {f"{C}torch_compile": "true"}],
    ),
    "a base model that is not packed": (
        on_gpu(settings={**CUDA, "packing": "off", "packing_asked": "best_fit"}, padding_share=0.5),
        [{f"{C}group_by_length": "true"}],
    ),
    "two of three, those that bring most": (
        on_gpu(settings={**CUDA, "packing": "off", "checkpointing": "all", "attention": "eager"}, padding_share=0.5),
        [{f"{C}packing": "true"}, {f"{C}gradient_checkpointing": "false"}],
    ),
}


@pytest.mark.parametrize(("evidence", "changes"), CHANGES.values(), ids=CHANGES.keys())
def test_advice(evidence: Evidence, changes: list[dict[str, str]]) -> None:
    assert [dict(advice.changes) for advice in diagnose(evidence).advice] == changes
