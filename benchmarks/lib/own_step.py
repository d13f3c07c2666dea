"""A manifest trained for some steps in this process: by the product's own step, or by the stock Trainer on its documents."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
from transformers import TrainerCallback, set_seed

from expert_cli.benchmark.stock_trainer import stock_run
from expert_cli.config.plan import make_plan
from expert_cli.config.resolve import Overrides
from expert_cli.config.run_config import RunConfig
from expert_cli.data.packing.packed_dataset import TrainingData
from expert_cli.hardware import machine
from expert_cli.hardware.devices import DEVICES
from expert_cli.inference.expert import load_base_of
from expert_cli.model import isolation
from expert_cli.model.adapter import add_adapter
from expert_cli.model.flops import Flops, flops
from expert_cli.model.kernels.kernel_plan import (
    KernelPlan,
    apply_adapter_kernels,
    apply_kernels,
    kernel_plan,
    with_capture,
)
from expert_cli.model.layers import compile_layers, enable_activation_checkpointing
from expert_cli.model.loading.quantize import autocast_of
from expert_cli.pipeline.pretokenize import store_for
from expert_cli.pipeline.token_rows import choose_token_rows
from expert_cli.pipeline.training_data import DataInputs, training_data, training_inputs
from expert_cli.runs.signals import StopRequest
from expert_cli.runs.status import RunStatus
from expert_cli.training.checkpoint import Checkpoints
from expert_cli.training.fit import fit
from expert_cli.utils.reporter import NullReporter

CONFIG: dict[str, Any] = {
    "adapter_type": "lora",
    "rank": 16,
    "alpha": 32,
    "dropout": 0.0,
    "target_modules": "all-linear",
    "learning_rate": 2e-4,
    "lr_scheduler": "constant",
    "warmup_steps": 0,
    "gradient_accumulation_steps": 1,
    "packing": True,
    "bf16": True,
    "optim": "adamw_torch_fused",
    "save_strategy": "no",
    "report_to": "none",
}
"""`training.config` of what is measured, but for its sizes."""


class Prepared(NamedTuple):
    """A run, what its rows are made of, and its packs."""

    run: RunConfig
    inputs: DataInputs
    data: TrainingData


class Trained(NamedTuple):
    """Of a run that was trained: real and trained tokens a step, what they cost, and the kernel plan's lines."""

    real: float
    trained: float
    cost: Flops
    kernels: Mapping[str, str]

    @property
    def flops(self) -> float:
        """Floating-point operations of a step."""
        return self.cost.of(1, 0) * self.real + self.cost.of(0, 1) * self.trained


def write_manifest(
    folder: Path, model: Path, quantization: str, rows: Sequence[tuple[str, str]], config: Mapping[str, Any]
) -> Path:
    """Write a manifest and its rows, questions and answers, into `folder`; return the manifest's path."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = [json.dumps({"question": question, "answer": answer}) + "\n" for question, answer in rows]
    (folder / "rows.jsonl").write_text("".join(lines), encoding="utf-8")
    fields = {"instruction": "question", "response": "answer"}
    manifest = {
        "name": "expert-bench",
        "schema_version": "2.0",
        "base_models": [{"name": str(model), "quantization": quantization}],
        "training": {"dataset": {"path": "rows.jsonl", "field_mapping": fields}, "config": {**CONFIG, **config}},
    }
    (folder / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
    return folder / "manifest.json"


def prepare(manifest: Path, steps: int) -> Prepared:
    """Read a manifest, build or open its token store, and lay out its packs for so many steps."""
    asked = Overrides(max_steps=steps, output=manifest.parent / "run", offline=True)
    run = make_plan(manifest, machine.inspect(), asked).run
    run.output.mkdir(parents=True, exist_ok=True)
    inputs = training_inputs(run, NullReporter())
    return Prepared(run, inputs, training_data(store_for(run, inputs, NullReporter()), inputs, run, NullReporter()))


def own_step(
    asked: Prepared, callbacks: Sequence[TrainerCallback], *, liger: bool = True, fused_lora: bool = True
) -> Trained:
    """Train as `expert-cli train` does, but that its kernels can be left out one by one."""
    run, _, data = asked
    DEVICES[run.compute.device].set_flags(tf32=run.compute.tf32)
    set_seed(run.seed)
    model, kernels = _own_model(asked, liger=liger, fused_lora=fused_lora)
    set_seed(run.seed)
    done = fit(
        model,
        data,
        run=run,
        kernels=kernels,
        checkpoints=Checkpoints(run.output / "checkpoints", {"processes": 1}, None, RunStatus()),
        report=NullReporter(),
        stop=StopRequest(run.output),
        callbacks=callbacks,
    )
    kernels = kernels.with_line("capture", *done.capture)
    lines = {name: f"{line.used}: {line.reason}" for name, line in kernels.lines.items()}
    lines |= {"adjusted": "; ".join(done.adjusted)} if done.adjusted else {}
    cost = flops(model.get_base_model(), data.train.document_lengths, recomputed=False)
    return Trained(done.real_tokens / done.steps, done.trained_tokens / done.steps, cost, lines)


def _own_model(asked: Prepared, *, liger: bool, fused_lora: bool) -> tuple[Any, KernelPlan]:
    run, inputs, data = asked
    with_liger, with_lora = (replace(run.compute, fused_kernels="auto" if on else "off") for on in (liger, fused_lora))
    here = machine.inspect()
    base = load_base_of(run, inputs.source.folder)
    kernels = apply_kernels(kernel_plan(with_liger, run.model, here), base, with_liger, here)
    isolation.prove(base, kernels.layout, kernels.attention, data.longest, autocast=autocast_of(run.compute.dtype))
    model = add_adapter(base, run.adapter, choose_token_rows(base, run, inputs.renderer).indices)
    kernels = apply_adapter_kernels(kernels, model, with_lora)
    enable_activation_checkpointing(base, run.compute.checkpointing, reentrant=run.compute.reentrant)
    compile_layers(base, run.compute)
    return model, with_capture(kernels, run)


def stock_step(asked: Prepared, callbacks: Sequence[TrainerCallback]) -> Trained:
    """Train with the stock Trainer and PEFT, the documents of a batch end to end."""
    run, inputs, data = asked
    run, trainer, tokens = stock_run("flattening", run, inputs, data.train)
    for callback in callbacks:
        trainer.add_callback(callback)
    trainer.train()
    real, trained, _ = tokens[-1] / len(tokens)
    model: Any = trainer.model
    cost = flops(model.get_base_model(), data.train.document_lengths, recomputed=False)
    return Trained(float(real), float(trained), cost, {})


def free_memory() -> None:
    """Give back what the last run took."""
    import gc

    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
