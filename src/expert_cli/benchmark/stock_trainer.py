"""How people train without this tool: transformers' Trainer and PEFT on the same manifest, with presets of settings.

    padded       every row padded to the longest of its batch (DataCollatorForSeq2Seq)
    flattening   the rows of a batch end to end, none sees another (DataCollatorWithFlattening)
    unoptimized  what unchanged scripts do: fp16 on a GPU, fp32 on a CPU; no TF32; eager attention; activations recomputed;
                 AdamW that is not fused; no worker processes; every row padded to max_seq_length

Everything that decides what is learned is the manifest's: base model and its quantization, documents, which tokens are
trained, adapter and its first random tensors (same seed), learning rate and schedule, clipping. Rows are tokenized beforehand.

A row is a document of this tool's packs. Both sides see the same rows in the same order in as many steps, so losses can be
compared at equal trained tokens; where borders of steps fall differs by a few rows, for each of the Trainer's steps has as many
as the tool's have on average.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

import datasets
import numpy as np
from numpy.typing import NDArray
from transformers import (
    DataCollatorForSeq2Seq,
    DataCollatorWithFlattening,
    PrinterCallback,
    Trainer,
    TrainerCallback,
    set_seed,
)

from expert_cli.config.plan import make_plan
from expert_cli.config.resolve import Overrides
from expert_cli.config.run_config import RunConfig
from expert_cli.console.terminal import Console
from expert_cli.data.packing.batches import PackedBatchSampler, orders_of, schedule_of
from expert_cli.data.packing.packed_dataset import IGNORE_INDEX, PackedDataset
from expert_cli.errors import ExpertError, InputError, TrainingFailed
from expert_cli.hardware import machine
from expert_cli.hardware.devices import DEVICES, is_out_of_memory
from expert_cli.inference.expert import load_base_of
from expert_cli.manifest.key import Dtype
from expert_cli.model.adapter import add_adapter
from expert_cli.model.flops import Flops
from expert_cli.model.layers import enable_activation_checkpointing
from expert_cli.pipeline.pretokenize import store_for
from expert_cli.pipeline.token_rows import choose_token_rows
from expert_cli.pipeline.training_data import DataInputs, packed, training_inputs
from expert_cli.runs.run_paths import RunPaths
from expert_cli.training.arguments import training_arguments
from expert_cli.training.callbacks import MetricsCallback
from expert_cli.training.health import TrainingState
from expert_cli.training.step_timer import StepTimer
from expert_cli.utils.files import write_json
from expert_cli.utils.reporter import Bar, NullReporter
from expert_cli.utils.text import first_line

Ints = NDArray[np.int64]
Row = dict[str, list[int]]
"""`input_ids` and `labels` of one document."""


def main(job: Path) -> int:
    """Train as a file of `measured_run.run_once` says; return the exit code. A failure is printed as JSON."""
    told = json.loads(job.read_text(encoding="utf-8"))
    asked = told["overrides"]
    overrides = Overrides(**{**asked, "output": Path(asked["output"]), "settings": tuple(asked["settings"])})
    try:
        train_baseline(told["preset"], Path(told["manifest"]), overrides)
    except ExpertError as error:
        Console("train", as_json=True).fail(error.message, error.hint, error.exit_code)
        return error.exit_code
    return 0


def train_baseline(preset: str, manifest: Path, overrides: Overrides) -> None:
    """Train, and leave metrics.jsonl and report.json in the output folder as the tool does.

    overrides: output and max_steps among them. Raises ExpertErrors, TrainingFailed when memory runs out.
    """
    run = make_plan(manifest, machine.inspect(), overrides).run
    if run.optim.scheduler == "one_cycle":
        hint = "--set training.config.lr_scheduler=linear"
        raise InputError("lr_scheduler one_cycle: the stock Trainer has none", hint)
    paths, device = RunPaths(run.output), DEVICES[run.compute.device]
    paths.output.mkdir(parents=True, exist_ok=True)
    inputs = training_inputs(run, NullReporter())
    store = store_for(run, inputs, NullReporter())
    _, trainer, tokens = stock_run(preset, run, inputs, packed(store.training(), run))
    progress = TrainingState()
    metrics = MetricsCallback(progress, StepTimer(device), paths.metrics, Flops(0.0, 0.0), None)
    metrics.bar = Bar()
    for callback in (StepTokens(tokens, progress), metrics):
        trainer.add_callback(callback)
    try:
        trainer.train()
    except RuntimeError as error:
        if not is_out_of_memory(error):
            raise
        raise TrainingFailed(f"out of memory: {first_line(error)}", "halve batch_size") from error
    write_json(paths.report_json, {"peak_memory_mb": metrics.peak_memory_mb})


COLLATORS: dict[str, Any] = {
    "padded": lambda tokenizer, _: DataCollatorForSeq2Seq(tokenizer),
    "flattening": lambda *_: DataCollatorWithFlattening(),
    "unoptimized": lambda tokenizer, length: DataCollatorForSeq2Seq(tokenizer, padding="max_length", max_length=length),
}
"""Preset -> what makes its collator of a tokenizer and max_seq_length."""


def stock_run(preset: str, run: RunConfig, inputs: DataInputs, packs: PackedDataset) -> tuple[RunConfig, Trainer, Ints]:
    """Return the run as the preset has it, a Trainer that is ready, and the tokens up to the end of each of its steps.

    Those are int64 [steps, 3]: real ones, trained ones, padding.
    """
    rows, per_step = _rows(run, packs)
    run = _settings(preset, run, per_step)
    rows = rows[: run.optim.max_steps * run.optim.gradient_accumulation_steps * run.optim.batch_size]
    tokenizer = inputs.tokenizer.hf
    tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token
    DEVICES[run.compute.device].set_flags(tf32=run.compute.tf32)
    set_seed(run.seed)  # the adapter's first values are drawn where the tool draws them
    base = load_base_of(run, inputs.source.folder)
    model = add_adapter(base, run.adapter, choose_token_rows(base, run, inputs.renderer).indices)
    enable_activation_checkpointing(base, run.compute.checkpointing, reentrant=run.compute.reentrant)
    set_seed(run.seed)
    trainer = Trainer(
        model=model,
        args=training_arguments(run, RunPaths(run.output).checkpoints, train_sampling_strategy="sequential"),
        train_dataset=datasets.Dataset.from_list(rows),
        data_collator=COLLATORS[preset](tokenizer, run.data.max_seq_length),
    )
    trainer.remove_callback(PrinterCallback)
    return run, trainer, _tokens_of_steps(rows, run, trainer.data_collator)


def _settings(preset: str, run: RunConfig, per_step: float) -> RunConfig:
    """Return the run as the preset has it, its batch size counted in rows. per_step: rows of a step on average."""
    optim = run.optim
    run = replace(
        run,
        optim=replace(optim, batch_size=max(1, round(per_step / optim.gradient_accumulation_steps))),
        loader=replace(run.loader, packing="off", group_by_length=False),
        compute=replace(run.compute, torch_compile=False, fused_kernels="off", dequantized_copy="never"),
    )
    if preset != "unoptimized":
        return run
    batch = min(optim.batch_size, max(1, round(per_step)))  # the manifest's is one of rows, and the rest is accumulated
    accumulation = max(1, round(per_step / batch))
    dtype: Dtype = "fp32" if run.compute.device == "cpu" else "fp16"
    quantization = run.model.quantization if run.model.quantization in ("int4", "int8") else "none"
    return replace(
        run,
        model=replace(run.model, quantization=quantization),
        optim=replace(optim, batch_size=batch, gradient_accumulation_steps=accumulation, optim="adamw_torch"),
        loader=replace(run.loader, num_workers=0, pin_memory=False, prefetch_factor=None),
        compute=replace(run.compute, dtype=dtype, tf32=False, attention="eager", checkpointing="all"),
    )


def _rows(run: RunConfig, packs: PackedDataset) -> tuple[list[Row], float]:
    """Return the documents of the run's packs in the order of its steps, and how many a step has on average.

    They are those of twice as many steps, for a batch of rows may be rounded up. A document that is split over packs is as many
    rows.
    """
    batches, steps = PackedBatchSampler(schedule_of(run, packs, 1), orders_of(run, packs)), run.optim.max_steps
    rows: list[list[Row]] = []
    for epoch, numbers in map(batches.packs_of, range(2 * steps)):
        rows.append([row for number in numbers.tolist() for row in _documents(packs[epoch, number])])
    return [*chain.from_iterable(rows)], sum(map(len, rows[:steps])) / steps


def _documents(pack: Any) -> Iterator[Row]:
    ids, labels = pack["input_ids"].tolist(), pack["labels"].tolist()
    starts = (pack["position_ids"] == 0).nonzero().flatten().tolist()
    for start, stop in pairwise([*starts, len(ids)]):
        yield {"input_ids": ids[start:stop], "labels": labels[start:stop]}


def _tokens_of_steps(rows: list[Row], run: RunConfig, collator: Any) -> Ints:
    """Return what `stock_run` does; every batch is made once for it, before the time is taken."""
    counts = []
    for first in range(0, len(rows), run.optim.batch_size):
        batch = rows[first : first + run.optim.batch_size]
        made, real = collator(batch), sum(len(row["input_ids"]) for row in batch)
        counts.append((real, int((made["labels"] != IGNORE_INDEX).sum()), made["labels"].numel() - real))
    by_batch = np.array(counts, np.int64).reshape(-1, run.optim.gradient_accumulation_steps, 3)
    return np.cumsum(by_batch.sum(axis=1), axis=0)


class StepTokens(TrainerCallback):
    """Tells `MetricsCallback`, which comes behind it, the tokens up to the step that is done."""

    def __init__(self, tokens: Ints, progress: TrainingState) -> None:
        """Tokens: as `stock_run` returns them."""
        self.tokens, self.progress = tokens, progress

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:  # noqa: ARG002
        """Count the step's."""
        self.progress.real, self.progress.trained, self.progress.padded = self.tokens[state.global_step - 1].tolist()
