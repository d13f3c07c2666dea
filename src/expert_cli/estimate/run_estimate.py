"""A plan -> what the run will need and cost. Trains nothing and writes nothing but the token store."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import psutil
import torch
from peft import PeftModel

from expert_cli.config.plan import Plan
from expert_cli.config.resolve import Overrides, resolve
from expert_cli.config.run_config import RunConfig
from expert_cli.config.validate import FOR_EVERY_BASE
from expert_cli.data.packing.dataset import plan_packs
from expert_cli.data.store.build import TokenStore
from expert_cli.errors import InputError
from expert_cli.estimate.gpu_fit import BatchShape, GpuFit, fit_gpus
from expert_cli.estimate.memory import CONTEXT_BYTES, MB, TRAINER_BYTES, StepSettings, components, growth_bytes
from expert_cli.estimate.model_shape import Shape, linear_weights, meta_model, shape_of, stored_bytes
from expert_cli.estimate.prices import Price, rented
from expert_cli.estimate.probe import STEPS as PROBED_STEPS
from expert_cli.estimate.probe import ProbeResult, probe
from expert_cli.estimate.throughput import ERROR_PCT, Throughput, by_formula, earlier_runs
from expert_cli.estimate.workload import Workload, work_of
from expert_cli.hardware.machine import Gpu, Machine
from expert_cli.model.flops import flops
from expert_cli.model.kernels.select import KernelPlan, kernel_plan, predict_kernels
from expert_cli.model.loading.quantize import DTYPES
from expert_cli.pipeline.pretokenize import resolve_inputs, store_for
from expert_cli.utils.reporter import Reporter

MEMORY_ERROR_PCT = {"cpu": 30, "cuda": 25}
"""How far off the sum may be. CPU: 2.8 standard deviations (t, 5 degrees of freedom) of the six settings that its numbers were
fitted to, benchmarks/check_plan.py; docs/BENCHMARKS.md says how others came out. GPU: assumed."""
PROBE_ERROR_PCT = 15
"""Repeated probes differ by up to 6 %; what a CPU's memory grows by in a longer run is added by formula."""
EVALUATED = 0.5
"""A token that is only evaluated costs the forward pass, half of what a trained one costs on a frozen base model."""


@dataclass(frozen=True)
class RunEstimate:
    """What a run will need, every figure with how far off it may be (in per cent) and where it comes from."""

    plan: Plan
    work: Workload
    store: Mapping[str, str]
    kernels: KernelPlan
    memory: Mapping[str, int]
    memory_bytes: int
    memory_error_pct: float
    memory_source: str
    throughput: Throughput
    price: Price | None
    cards: tuple[GpuFit, ...]
    advice: tuple[str, ...]

    @property
    def seconds(self) -> float:
        """Seconds of the training loop, evaluations included; answers that are run in it are not."""
        return (self.work.tokens + EVALUATED * self.work.evaluated_tokens) / self.throughput.tokens_per_s

    @property
    def seconds_source(self) -> str:
        """Where the seconds come from, and what is not in them."""
        runs_answers = self.plan.run.watch.execution_eval_steps > 0
        return self.throughput.source + ("; without the answers of evaluation.every_steps" if runs_answers else "")

    def as_json(self) -> dict[str, Any]:
        """Return what `train --plan --json` prints. MB are 2**20 bytes."""
        schedule = self.work.schedule
        return {
            "steps": schedule.steps,
            "epochs": self.work.epochs,
            "tokens_per_step": self.work.tokens / schedule.steps,
            "tokens_total": self.work.tokens,
            "store": dict(self.store),
            "vram_mb": {
                **{name: round(size / MB, 1) for name, size in self.memory.items()},
                "total": round(self.memory_bytes / MB, 1),
                "error_pct": self.memory_error_pct,
            },
            "memory_source": self.memory_source,
            "seconds": self.seconds,
            "seconds_error_pct": self.throughput.error_pct,
            "seconds_source": self.seconds_source,
            "tokens_per_s": self.throughput.tokens_per_s,
            "cost": self.price.cost(self.seconds) if self.price else None,
            "price": asdict(self.price) if self.price else None,
            "cards": [card.as_json() for card in self.cards],
            "advice": list(self.advice),
            "effects": [effect.as_json() for effect in self.plan.effects],
            "kernels": {name: asdict(kernel) for name, kernel in self.kernels.lines.items()},
        }


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
    run = plan.run
    inputs = resolve_inputs(run, report)
    store = store_for(run, inputs, report, locked=locked, trusting=trusting)
    work = _work(run, store)
    model = _meta(run, inputs.source.folder)
    shape = shape_of(model)
    kernels = _kernels(run, machine, model, shape)
    measured = _probed(run, overrides, report) if probing else None
    is_cpu = run.compute.device == "cpu"
    setting = setting_of(run, kernels, work, run.optim.batch_size)
    process = process if is_cpu else CONTEXT_BYTES
    memory = components(shape, setting, process)
    total, error, source = _total(memory, measured, setting)
    return RunEstimate(
        plan,
        work,
        {"path": str(store.home), "status": store.status, "reason": store.reason},
        kernels,
        memory,
        total,
        error,
        source,
        _pace(run, work, machine, model, inputs.source.sha256, measured),
        price or (None if is_cpu else rented(machine.gpus[0].name)),
        tuple(_cards(plan, machine, overrides, model, shape, work)),
        needless_int4(shape, setting, process, 0 if is_cpu else machine.gpus[0].memory_bytes),
    )


def needless_int4(shape: Shape, setting: StepSettings, process: int, gpu_bytes: int) -> tuple[str, ...]:
    """Return one sentence where 4-bit weights save no memory that is needed. gpu_bytes: of the card, 0 on a CPU."""
    if setting.quantization != "int4":
        return ()
    if setting.dequantized:
        why = f"the weights are kept unpacked, in {setting.dtype}"
    else:
        plain = sum(components(shape, replace(setting, quantization="none"), process).values())
        if plain * (1 + MEMORY_ERROR_PCT[setting.device] / 100) > gpu_bytes:
            return ()
        why = f"without it the run needs {plain / 2**30:.1f} GB of the card's {gpu_bytes / 2**30:.0f} GB"
    return (f"int4 saves no memory that is needed here: {why}; {FOR_EVERY_BASE}",)


def _work(run: RunConfig, store: TokenStore) -> Workload:
    documents = store.split("train")
    if documents is None:
        raise InputError(f"the token store {store.home} has no training rows", "check training.dataset")
    packs = plan_packs(documents, run.data.max_seq_length, run.loader.packing, run.loader.overflow, run.seed)
    return work_of(run, store, packs)


def _probed(run: RunConfig, overrides: Overrides, report: Reporter) -> ProbeResult:
    report.info("training a few steps to measure them")
    return probe(run, overrides)


def _pace(
    run: RunConfig, work: Workload, machine: Machine, model: PeftModel, base_sha256: str, measured: ProbeResult | None
) -> Throughput:
    """Return the pace from the best source there is: the probe, earlier runs, arithmetic."""
    if measured is not None:
        error = max(ERROR_PCT["probe"], round(measured.spread_pct))
        return Throughput(measured.tokens_per_s, error, "probe: real steps, just now")
    folders = [folder for folder in run.output.parent.glob("*") if folder.is_dir()]
    earlier = earlier_runs(folders, run, base_sha256, machine)
    if earlier is not None:
        return earlier
    cost = flops(model.get_base_model(), work.packs.document_lengths, recomputed=run.compute.checkpointing == "all")
    micro_tokens = run.optim.batch_size * float(work.packs.packs.of(0).lengths.mean())
    return by_formula(cost, work.trained_share, micro_tokens, run.compute.device, run.compute.dtype)


def setting_of(run: RunConfig, kernels: KernelPlan, work: Workload, batch: int) -> StepSettings:
    """Return what memory depends on, for micro-batches of `batch` packs."""
    fixed = run.data.max_seq_length * batch if kernels.fixed_shape else 0
    tokens, longest = work.largest(batch, kernels.layout, fixed)
    return StepSettings(
        device=run.compute.device,
        dtype=run.compute.dtype,
        quantization=run.model.quantization,
        dequantized=kernels.dequantized,
        checkpointing=run.compute.checkpointing,
        attention=kernels.attention,
        fused=kernels.fused,
        fused_lora=kernels.lines["fused"].used == "lora",
        full_logits=kernels.full_logits,
        optim=run.optim.optim,
        adapter=run.adapter.type,
        rank=run.adapter.rank,
        dropout=run.adapter.dropout > 0,
        tokens=tokens,
        longest=longest,
        trained=round(tokens * work.trained_share),
        steps=work.schedule.steps,
    )


def _meta(run: RunConfig, folder: Any) -> PeftModel:
    quantized = {"bf16": "bf16", "fp16": "fp16"}.get(run.model.quantization, run.compute.dtype)
    attention = "eager" if run.compute.attention == "eager" else "sdpa"
    return meta_model(folder, run.adapter, dtype=DTYPES[quantized], attention=attention)


def _kernels(run: RunConfig, machine: Machine, model: PeftModel, shape: Shape) -> KernelPlan:
    is_nf4 = run.model.quantization == "int4"
    return predict_kernels(
        kernel_plan(run.compute, run.model, machine),
        model,
        run.compute,
        dequantized_bytes=2 * linear_weights(shape) if is_nf4 else 0,
        stored=stored_bytes(shape, run.model.quantization, DTYPES[run.compute.dtype].itemsize),
    )


def _cards(
    plan: Plan, machine: Machine, overrides: Overrides, model: PeftModel, shape: Shape, work: Workload
) -> list[GpuFit]:
    """Judge the manifest as it would be decided on a machine with a GPU of Ampere's generation or later."""
    other = replace(machine, gpus=(Gpu("a card", 0, (8, 6)),), torch_cuda=torch.version.cuda or "12")
    run = resolve(plan.loaded, other, replace(overrides, device="cuda"))
    kernels = predict_kernels(
        kernel_plan(run.compute, run.model, other), model, run.compute, dequantized_bytes=0, stored=0
    )
    setting = setting_of(run, kernels, work, run.optim.batch_size)
    fixed = run.data.max_seq_length * run.optim.batch_size if kernels.fixed_shape else 0
    batch = BatchShape(run.optim.batch_size, run.optim.gradient_accumulation_steps, kernels.layout, fixed)
    dequantized_copy = run.compute.dequantized_copy
    return fit_gpus(shape, setting, batch, work, dequantized_copy=dequantized_copy, error_pct=MEMORY_ERROR_PCT["cuda"])


def _total(memory: Mapping[str, int], measured: ProbeResult | None, setting: StepSettings) -> tuple[int, float, str]:
    """Return the bytes at the peak, the error in per cent and the words for where they come from."""
    device = setting.device
    if measured is None:
        what = "checked on one CPU" if device == "cpu" else "not yet checked on a GPU"
        return sum(memory.values()), MEMORY_ERROR_PCT[device], f"formula, {what}"
    if device == "cpu":
        probed = measured.resident_bytes
        later = growth_bytes(setting, probed) - growth_bytes(replace(setting, steps=PROBED_STEPS), probed)
        words = "probe: the largest resident set of real steps, and what more of them add by formula"
        return probed + max(0, later), PROBE_ERROR_PCT, words
    allocated = int(measured.allocated_mb * MB) + CONTEXT_BYTES
    return allocated, PROBE_ERROR_PCT, "probe: what PyTorch held in real steps, and an assumed CUDA context"
