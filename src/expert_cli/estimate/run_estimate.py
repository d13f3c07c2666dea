"""A plan -> what the run will need and cost. Trains nothing and writes nothing but the token store."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

import psutil

from expert_cli.config.effects import Effect
from expert_cli.config.plan import FOR_EVERY_BASE, Plan
from expert_cli.config.resolve import Overrides
from expert_cli.config.run_config import RunConfig
from expert_cli.data.packing.batches import few_steps, fixed_shape, orders_of
from expert_cli.errors import InputError
from expert_cli.estimate.memory_estimate import (
    CONTEXT_BYTES,
    MB,
    TRAINER_BYTES,
    Shape,
    StepSettings,
    Workload,
    components,
    meta_adapter,
    shape_of,
    step_settings,
    work_of,
)
from expert_cli.estimate.throughput import Figure, ProbeResult, by_formula, earlier_runs, probe
from expert_cli.hardware.devices import DEVICES
from expert_cli.hardware.machine import Machine
from expert_cli.model.flops import flops
from expert_cli.model.kernels.attention_backends import loaded_with
from expert_cli.model.kernels.kernel_plan import Kernel, KernelPlan, free_bytes
from expert_cli.model.loading.quantize import DTYPES, meta_base, weights_dtype
from expert_cli.model.vocabulary_rows import stored_weights
from expert_cli.pipeline.pretokenize import store_for
from expert_cli.pipeline.token_rows import choose_token_rows
from expert_cli.pipeline.training_data import laid_out, training_inputs
from expert_cli.utils.reporter import Reporter

MEMORY_ERROR_PCT = {"cpu": 30, "gpu": 25}
"""How far off the sum may be. CPU: 2.8 standard deviations (t, 5 degrees of freedom) of the six settings that its numbers were
fitted to. GPU: assumed."""
PROBE_ERROR_PCT = 15
"""Repeated probes differ by up to 6 %."""
EVALUATED = 0.5
"""A token that is only evaluated costs the forward pass, half of what a trained one costs on a frozen base model."""


@dataclass(frozen=True)
class RunEstimate:
    """What a run will need, every figure with how far off it may be (in per cent) and where it comes from.

    The keys of `train --plan --json`, which docs/INTERFACE.md explains. MB are 2**20 bytes. seconds: of the training loop,
    evaluations included; answers that are run in it are not.
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
    price: Price | None
    advice: Sequence[str]
    effects: Sequence[Effect]
    kernels: Mapping[str, Kernel]

    def as_json(self) -> dict[str, Any]:
        """Return what `train --plan --json` prints."""
        return asdict(self)


def estimate_run(
    plan: Plan,
    machine: Machine,
    overrides: Overrides,
    report: Reporter,
    *,
    price: Price | None = None,
    probing: bool = False,
    locked: bool = False,
    trusting: bool = False,
) -> RunEstimate:
    """Say what a run will need. probing: train a few steps in a process of their own and measure them.

    locked, trusting: as `store_for` takes them. Raises what a run raises before its first step, with `probing` also what
    its steps raise.
    """
    process = psutil.Process().memory_info().rss + TRAINER_BYTES  # now, with the training libraries, before any data
    inputs = training_inputs(plan.run, report)
    plan = laid_out(plan, inputs, report)
    run, device = plan.run, plan.run.compute.device
    store = store_for(run, inputs, report, locked=locked, trusting=trusting)
    work = work_of(run, store)
    dtype = weights_dtype(run.model.quantization, DTYPES[run.compute.dtype])
    folder = inputs.source.folder
    base = meta_base(folder, dtype=dtype, attention=loaded_with(run.compute.attention))
    rows = choose_token_rows(base, run, inputs.renderer, weights_of=partial(stored_weights, folder))
    model = meta_adapter(base, run.adapter, rows.indices)
    shape = shape_of(model)
    setting = step_settings(run, machine, model, shape, work, free_bytes(device))
    if probing:
        report.info("training a few steps to measure them")
    if probing and run.compute.fsdp:
        raise InputError(
            "--probe: with fsdp several processes train, the probe is one", "plan without it, or with fsdp=false"
        )
    measured = probe(run, overrides) if probing else None
    memory = components(shape, setting, process if device == "cpu" else CONTEXT_BYTES)
    peak = _peak(memory, measured, setting)
    earlier = earlier_runs(run.output.parent.glob("*"), run, inputs.source.sha256, machine)
    speed = measured.speed if measured else earlier or by_formula(run, work, model)
    seconds = (work.tokens + EVALUATED * work.evaluated_tokens) / speed.value
    without = "; without the answers of evaluation.every_steps" if run.watch.execution_eval_steps else ""
    without += "; without the rounds of training.rft" if run.rft is not None else ""
    card_bytes = machine.gpus[0].memory_bytes if device != "cpu" else 0
    int4 = needless_int4(shape, setting, memory["process"], card_bytes)
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
        cost=price.cost(seconds) if price else None,
        price=price,
        advice=[*int4, *filter(None, [rows.missing, rows.line, few_steps(work.schedule)])],
        effects=plan.effects,
        kernels=_with_shape(setting.kernels, run, work, model).lines,
    )


def _with_shape(kernels: KernelPlan, run: RunConfig, work: Workload, model: Any) -> KernelPlan:
    """Return the plan with the shape that a step is recorded at, and what its padding costs."""
    if kernels.lines["capture"].used == "off":
        return kernels
    cost = flops(model.get_base_model(), work.packs.document_lengths, recomputed=False)
    order_of = orders_of(run, work.packs)
    shape = fixed_shape(work.packs, work.schedule, order_of, run.data.max_seq_length, cost.of(0, 1) / cost.of(1, 0))
    return kernels.with_line("capture", kernels.lines["capture"].used, str(shape))


def needless_int4(shape: Shape, setting: StepSettings, process: int, gpu_bytes: int) -> tuple[str, ...]:
    """Return one sentence where 4-bit weights save no memory that is needed. gpu_bytes: of the card, 0 on a CPU."""
    run = setting.run
    if run.model.quantization != "int4":
        return ()
    if setting.kernels.dequantized:
        why = f"the weights are kept unpacked, in {run.compute.dtype}"
    else:
        plain = replace(setting, run=replace(run, model=replace(run.model, quantization="none")))
        needs = sum(components(shape, plain, process).values())
        if needs * (1 + MEMORY_ERROR_PCT[DEVICES[run.compute.device].kind] / 100) > gpu_bytes:
            return ()
        why = f"without it the run needs {needs / 2**30:.1f} GB of the card's {gpu_bytes / 2**30:.0f} GB"
    return (f"int4 saves no memory that is needed here: {why}; {FOR_EVERY_BASE}",)


def _peak(memory: Mapping[str, int], measured: ProbeResult | None, setting: StepSettings) -> Figure:
    """Return the bytes at the peak."""
    device = setting.run.compute.device
    if measured is None:
        what = "checked on one CPU" if device == "cpu" else "not yet checked on a GPU"
        if "recurrence" in setting.kernels.lines:
            what += "; what layers with a state keep beside their linear layers is not in it: --probe measures it"
        return Figure(sum(memory.values()), MEMORY_ERROR_PCT[DEVICES[device].kind], f"formula, {what}")
    if device == "cpu":
        return Figure(measured.resident_bytes, PROBE_ERROR_PCT, "probe: the largest resident set of real steps")
    allocated = int(measured.allocated_mb * MB) + CONTEXT_BYTES
    return Figure(allocated, PROBE_ERROR_PCT, "probe: what PyTorch held in real steps, and an assumed CUDA context")


_CURRENCY = r"([$€£]|[A-Z]{3})?"
_WRITTEN = re.compile(rf"\s*{_CURRENCY}\s*(\d+(?:\.\d+)?)\s*{_CURRENCY}\s*(?i:/\s*h(?:our)?)?\s*")


@dataclass(frozen=True)
class Price:
    """A price an hour; `currency` as the user wrote it, a sign or a code, "" for none."""

    per_hour: float
    currency: str

    def cost(self, seconds: float) -> float:
        """Return what so many seconds cost."""
        return self.per_hour * seconds / 3600


def parse_price(text: str) -> Price:
    """Return the price that --price names: "2.50/h", "2.50", "$2.50/h", "2.50 EUR/h". Raises InputError."""
    match = _WRITTEN.fullmatch(text)
    if match is None:
        raise InputError(f"--price {text}: is not a price an hour", "write it like --price 2.50/h")
    return Price(float(match[2]), match[1] or match[3] or "")
