"""Estimates what a planned run will need and cost. Trains nothing, except with `--probe`, and writes only the token store."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import psutil

from expert_cli.config.effects import Effect
from expert_cli.config.plan import Plan
from expert_cli.config.resolve import Overrides
from expert_cli.errors import InputError
from expert_cli.estimate import memory_estimate as memories
from expert_cli.estimate.memory_estimate import CONTEXT_BYTES, MB, TRAINER_BYTES
from expert_cli.estimate.throughput import Figure, by_formula, probe
from expert_cli.hardware.machine import Machine
from expert_cli.model.kernels.attention_backends import loaded_with
from expert_cli.model.kernels.kernel_plan import Kernel, free_bytes
from expert_cli.model.loading.quantize import DTYPES, meta_base, weights_dtype
from expert_cli.model.vocabulary_rows import stored_weights
from expert_cli.pipeline.pretokenize import store_for
from expert_cli.pipeline.token_rows import choose_token_rows
from expert_cli.pipeline.training_data import laid_out, training_data, training_inputs
from expert_cli.utils.reporter import Reporter
from expert_cli.utils.text import first_line

MEMORY_ERROR_PCT = {"cpu": 30, "cuda": 25}
"""Error of the sum. CPU: 2.8 standard deviations (t, 5 degrees of freedom) of the six fitted settings. GPU: assumed."""
EVALUATED = 0.5
"""An evaluated token costs a forward pass, half of what a trained one costs with a frozen base model."""


@dataclass(frozen=True)
class RunEstimate:
    """What a run needs, every figure with its error (in per cent) and its source.

    The keys of `train --plan --json`, explained in docs/INTERFACE.md. MB are 2**20 bytes. seconds: of the training loop,
    including evaluations.
    """

    steps: int
    epochs: float
    tokens_per_step: float
    tokens_total: int
    store: Mapping[str, str]
    vram_mb: Mapping[str, float]
    memory_source: str
    seconds: float
    seconds_error_pct: float
    seconds_source: str
    tokens_per_s: float
    cost: float | None
    advice: Sequence[str]
    effects: Sequence[Effect]
    kernels: Mapping[str, Kernel]

    def as_json(self) -> dict[str, Any]:
        """Return the document of `train --plan --json`."""
        return asdict(self)


def estimate_run(
    plan: Plan,
    machine: Machine,
    overrides: Overrides,
    report: Reporter,
    *,
    hourly: float | None = None,
    probing: bool = False,
    locked: bool = False,
    trusting: bool = False,
) -> RunEstimate:
    """Return the estimate of a run. probing: train a few steps in a separate process and measure them.

    hourly: price of an hour on the machine. locked, trusting: as for `store_for`. Raises the errors of a run before its first
    step; with `probing`, also those of its steps.
    """
    if probing and plan.run.compute.fsdp:
        hint = "plan without it, or with fsdp=false"
        raise InputError("--probe does not work with fsdp: it runs in one process", hint)
    process = psutil.Process().memory_info().rss + TRAINER_BYTES  # with the training libraries loaded, before any data
    inputs = training_inputs(plan.run, report)
    plan = laid_out(plan, inputs, report)
    run, device = plan.run, plan.run.compute.device
    store = store_for(run, inputs, report, locked=locked, trusting=trusting)
    work = memories.work_of(run, training_data(store, inputs, run, report).train, store.stats)
    dtype = weights_dtype(run.model.quantization, DTYPES[run.compute.dtype])
    folder = inputs.source.folder
    base = meta_base(folder, dtype=dtype, attention=loaded_with(run.compute.attention))
    rows = choose_token_rows(base, run, inputs.renderer, weights_of=partial(stored_weights, folder))
    model = memories.meta_adapter(base, run.adapter, rows.indices)
    step = memories.largest_step(run, machine, model, work, free_bytes(device))
    speed = by_formula(run, work, model)
    memory, unknown = _memory(step, process if device == "cpu" else CONTEXT_BYTES)
    what = "formula, checked on one CPU" if device == "cpu" else "formula, not yet checked on a GPU"
    peak = Figure(sum(memory.values()), MEMORY_ERROR_PCT[device], what + unknown)
    if probing:
        report.info("training a few steps to measure them")
        speed, peak = probe(run, overrides)
    seconds = (work.tokens + EVALUATED * work.evaluated_tokens) / speed.value
    without = "; without the rounds of training.rft" if run.rft is not None else ""
    without += "; without the answers of evaluation.every_steps" if run.watch.answers else ""
    return RunEstimate(
        steps=work.schedule.steps,
        epochs=work.schedule.steps / work.schedule.steps_per_epoch,
        tokens_per_step=work.tokens / work.schedule.steps,
        tokens_total=work.tokens,
        store={"path": store.place, "status": store.status, "reason": store.reason},
        vram_mb={
            **{name: round(size / MB, 1) for name, size in (*memory.items(), ("total", peak.value))},
            "error_pct": peak.error_pct,
        },
        memory_source=peak.source,
        seconds=seconds,
        seconds_error_pct=speed.error_pct,
        seconds_source=speed.source + without,
        tokens_per_s=speed.value,
        cost=None if hourly is None else hourly * seconds / 3600,
        advice=[*filter(None, [rows.missing, rows.line, run.optim.warmup_fault(work.schedule.steps)])],
        effects=plan.effects,
        kernels=step.kernels.lines,
    )


def _memory(step: memories.Step, process: int) -> tuple[Mapping[str, int], str]:
    """Return the bytes of every component, and in words what is not included."""
    try:
        return memories.components(step, process), ""
    except RuntimeError as error:
        told = f"; without activations, whose size depends on what is read ({first_line(error)}): --probe measures it"
        return memories.components(step, process, activations=0), told


def parse_price(text: str) -> float:
    """Parse the price of an hour: "2.50/h" or "2.50". Raises InputError."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)(?:/h)?", text)
    if match is None:
        raise InputError(f"--price {text}: is not a price per hour", "write it like --price 2.50/h")
    return float(match[1])
