"""What people start from, to compare with: the Hugging Face Trainer and peft as they come, on the same manifest.

    fp16 on a GPU, fp32 on a CPU; no TF32; eager attention; gradient checkpointing; AdamW that is not fused;
    rows tokenized one by one in the loop, by `tokenizers`, without worker processes; every row padded to max_seq_length

Everything that decides what is learned is the manifest's: base model and its quantization, rows, template, which tokens are
trained, adapter and its first random tensors (same seed), learning rate and schedule, clipping. Kinder than many a script:
`prepare_model_for_kbit_training` is left out, which would hold norms and head in fp32.

An effective batch of packs and one of rows are not the same: two packs of 512 tokens hold nine rows of the SQL data. With as
many rows as there are packs, this side would take four times the steps for the same tokens, each of a quarter of the size,
and at equal tokens the losses would differ for that alone. So a step takes as many rows as one of the tool's steps does on
average, in the order in which the tool's packs hold them: both sides see the same rows in the same order, in as many
optimizer steps, and losses at equal trained tokens are of the same rows. Borders of steps fall on other rows by a few.
The micro-batch is the manifest's batch_size, as rows; the rest is accumulated.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import Dataset
from transformers import (
    PrinterCallback,
    Trainer,
    TrainerCallback,
    TrainerControl,
    TrainerState,
    TrainingArguments,
    set_seed,
)

from expert_cli.config import recorded
from expert_cli.config.plan import make_plan
from expert_cli.config.resolve import Overrides
from expert_cli.config.run_config import RunConfig
from expert_cli.data.packing.batches import PackedBatchSampler
from expert_cli.data.packing.dataset import IGNORE_INDEX, PackedDataset, plan_packs, truncate_middle
from expert_cli.data.rows.selection import batches, select_rows
from expert_cli.data.templates.segment import Document
from expert_cli.data.tokenize.encoder import Encoder
from expert_cli.errors import InputError, TrainingFailed
from expert_cli.hardware import machine
from expert_cli.model.adapter import add_adapter
from expert_cli.model.flops import flops
from expert_cli.model.kernels.select import set_torch_flags
from expert_cli.model.loading.quantize import DTYPES, load_base
from expert_cli.pipeline.pretokenize import DataInputs, describe, resolve_inputs, store_for
from expert_cli.runs.paths import RunPaths
from expert_cli.training.arguments import training_arguments
from expert_cli.training.fit import orders_of, schedule_of
from expert_cli.training.metrics_callback import MetricsCallback
from expert_cli.training.state import TrainingState
from expert_cli.training.step_timer import Phase, StepTimer
from expert_cli.utils.files import write_json
from expert_cli.utils.reporter import NullBar, NullReporter


def train_baseline(manifest: Path, overrides: Overrides) -> None:
    """Train, and leave metrics.jsonl, run.json and report.json in the output folder as the tool does.

    Raises ExpertErrors, TrainingFailed when memory runs out.
    """
    facts = machine.inspect()
    run = make_plan(manifest, facts, overrides).run
    if run.optim.scheduler == "one_cycle":
        hint = "--set training.config.lr_scheduler=linear"
        raise InputError("lr_scheduler one_cycle: the stock Trainer has none", hint)
    paths = RunPaths(run.output)
    paths.output.mkdir(parents=True, exist_ok=True)
    inputs = resolve_inputs(run, NullReporter())
    store = store_for(run, inputs, NullReporter())
    documents = store.split("train")
    if documents is None:
        raise InputError(f"the token store {store.home} has no training rows", "check training.dataset")
    packs = plan_packs(documents, run.data.max_seq_length, run.loader.packing, run.loader.overflow, run.seed)
    rows, batch, accumulation = rows_of_steps(run, packs)
    texts = texts_of(run, inputs, set(rows), len(documents))
    stock = baseline_config(run, batch, accumulation)
    model = _model(stock, inputs)
    origin = {"name": inputs.source.name, "kind": inputs.source.kind, "sha256": inputs.source.sha256}
    made = {"store": {"parts": dict(store.key.parts)}, "model": origin, "machine": asdict(facts)}
    write_json(paths.run_json, {"config": recorded.config(stock), **made})
    collator = TokenizeAndPad(Encoder(inputs.tokenizer.backend), inputs.tokenizer.pad_id, stock)
    metrics_callback = _fit(model, TextDataset([texts[row] for row in rows]), collator, stock, paths)
    report = {"peak_memory_mb": metrics_callback.peak_memory_mb, "store": describe(run, store).as_json()}
    write_json(paths.report_json, report)


def _model(run: RunConfig, inputs: DataInputs) -> Any:
    """Load the base and put a fresh adapter on it, at the same place in the random numbers as the tool does."""
    set_seed(run.seed)
    set_torch_flags(run.compute)
    base = load_base(
        inputs.source.folder,
        quantization=run.model.quantization,
        dtype=DTYPES[run.compute.dtype],
        device=run.compute.device,
        attention="eager",
        rope_scaling=dict(run.model.rope_scaling),
    )
    model = add_adapter(base, run.adapter)
    set_seed(run.seed)
    return model


def baseline_config(run: RunConfig, batch: int, accumulation: int) -> RunConfig:
    """Return the run with everything that decides its speed as it is where nobody has decided."""
    on_gpu = run.compute.device == "cuda"
    quantization = run.model.quantization if run.model.quantization in ("int4", "int8") else "none"
    optim = replace(run.optim, batch_size=batch, gradient_accumulation_steps=accumulation, optim="adamw_torch")
    loader = replace(
        run.loader,
        num_workers=0,
        pin_memory=False,
        prefetch_factor=None,
        packing="off",
        group_by_length=False,
    )
    compute = replace(
        run.compute,
        dtype="fp16" if on_gpu else "fp32",
        tf32=False,
        attention="eager",
        checkpointing="all",
        torch_compile=False,
        fused_kernels="off",
        dequantized_copy="never",
    )
    return replace(
        run, optim=optim, loader=loader, compute=compute, model=replace(run.model, quantization=quantization)
    )


def rows_of_steps(run: RunConfig, packs: PackedDataset) -> tuple[list[int], int, int]:
    """Return the documents to train on, in the order of the tool's own packs, and their micro-batch and accumulation.

    A document that was split over packs is taken once, where it begins.
    """
    steps = PackedBatchSampler(schedule_of(run, packs, 1), orders_of(run, packs))
    rows: list[int] = []
    for step in range(run.optim.max_steps):
        rows += _documents(packs, *steps.packs_of(step))
    per_step = max(1, round(len(rows) / run.optim.max_steps))
    batch = min(run.optim.batch_size, per_step)
    accumulation = max(1, round(per_step / batch))
    wanted = run.optim.max_steps * batch * accumulation
    step = run.optim.max_steps
    while len(rows) < wanted:
        rows += _documents(packs, *steps.packs_of(step))
        step += 1
    return rows[:wanted], batch, accumulation


def _documents(data: PackedDataset, epoch: int, chosen: NDArray[np.int64]) -> list[int]:
    packs = data.packs.of(epoch)
    pieces = packs.pieces_of(chosen)
    return packs.documents[pieces[packs.starts[pieces] == 0]].tolist()  # type: ignore[no-any-return]


def texts_of(run: RunConfig, inputs: DataInputs, wanted: Collection[int], documents: int) -> Mapping[int, Document]:
    """Return documents of the store as the text they were made from. documents: how many the store holds.

    Raises InputError if the rows are not those of the store.
    """
    found: dict[int, Document] = {}
    number = 0
    selection = select_rows(run.data, inputs.located, NullReporter(), refused=inputs.template.refused)
    for batch in batches(selection.sources("train"), run.data):
        for document in inputs.template.documents(batch.rows):
            if any(segment.trained and segment.text for segment in document):
                if number in wanted:
                    found[number] = document
                number += 1
    if number != documents:
        raise InputError(f"the rows give {number} documents, the token store holds {documents}", "pretokenize --force")
    return found


class TextDataset(Dataset[Document]):
    """Texts in the order in which they are trained."""

    def __init__(self, texts: Sequence[Document]) -> None:
        """Take the texts."""
        self.texts = texts

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.texts)

    def __getitem__(self, index: int) -> Document:
        """Return one row, not yet tokenized."""
        return self.texts[index]


class TokenizeAndPad:
    """Texts -> a batch of rows as long as max_seq_length: `input_ids`, `attention_mask`, `labels`, int64 [rows, length].

    counts: real tokens, trained ones and padding of every batch made so far.
    """

    def __init__(self, encoder: Encoder, pad_id: int, run: RunConfig) -> None:
        """Take what encodes; longer rows are shortened as the tool shortens them."""
        self.encoder = encoder
        self.pad_id = pad_id
        self.length = run.data.max_seq_length
        self.timer = StepTimer(on_gpu=run.compute.device == "cuda")
        self.counts: list[tuple[int, int, int]] = []

    def __call__(self, texts: Sequence[Document]) -> dict[str, torch.Tensor]:
        """Return one batch."""
        with self.timer.phase("data"):
            ids = torch.full((len(texts), self.length), self.pad_id)
            labels = torch.full_like(ids, IGNORE_INDEX)
            mask = torch.zeros_like(ids)
            for row, text in enumerate(texts):
                encoded = self.encoder.encode([text])
                tokens, trained = (
                    torch.from_numpy(a) for a in truncate_middle(encoded.ids, encoded.trained, self.length)
                )
                ids[row, : len(tokens)] = tokens
                labels[row, : len(tokens)] = torch.where(trained, tokens, IGNORE_INDEX)
                mask[row, : len(tokens)] = 1
            labels[:, 0] = IGNORE_INDEX
            real = int(mask.sum())
            self.counts.append((real, int((labels != IGNORE_INDEX).sum()), ids.numel() - real))
        return {"input_ids": ids, "attention_mask": mask, "labels": labels}


class _Steps(TrainerCallback):
    """Tells forward, backward and optimizer apart, and counts tokens; it must come before the `MetricsCallback`.

    The Trainer makes batches ahead of their step, so a step's tokens are found by its number.
    """

    def __init__(self, collator: TokenizeAndPad, progress: TrainingState, model: torch.nn.Module) -> None:
        self.collator = collator
        self.progress = progress
        self._open = ExitStack()
        model.register_forward_pre_hook(lambda *_: self._begin("forward"))
        model.register_forward_hook(lambda *_: self._begin("backward"))

    def _begin(self, phase: Phase) -> None:
        self._open.close()
        self._open.enter_context(self.collator.timer.phase(phase))

    def on_train_begin(self, *_: Any, **__: Any) -> None:
        self.collator.timer.lap()

    def on_substep_end(self, *_: Any, **__: Any) -> None:
        self._open.close()

    def on_pre_optimizer_step(self, *_: Any, **__: Any) -> None:
        self._begin("optimizer")

    def on_optimizer_step(self, *_: Any, **__: Any) -> None:
        self._open.close()

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:  # noqa: ARG002
        self._open.close()
        micro = args.gradient_accumulation_steps
        for real, trained, padded in self.collator.counts[(state.global_step - 1) * micro : state.global_step * micro]:
            self.progress.real += real
            self.progress.trained += trained
            self.progress.padded += padded
        self.progress.step = state.global_step


def _fit(model: Any, rows: TextDataset, collator: TokenizeAndPad, run: RunConfig, paths: RunPaths) -> MetricsCallback:
    """Let the Trainer train; every step is logged as the tool logs it."""
    arguments = training_arguments(run, paths.checkpoints)
    arguments.logging_steps = 1
    arguments.eval_strategy = arguments.save_strategy = "no"
    arguments.logging_nan_inf_filter = False  # a loss that is not finite would be logged as 0.0
    arguments.train_sampling_strategy = "sequential"
    arguments.gradient_checkpointing = True
    arguments.gradient_checkpointing_kwargs = {"use_reentrant": False}
    progress = TrainingState()
    cost = flops(model.get_base_model(), torch.tensor([run.data.max_seq_length]).numpy(), recomputed=True)
    metrics_callback = MetricsCallback(progress, collator.timer, paths.metrics, NullBar(), flops=cost, peak_flops=None)
    trainer = Trainer(
        model=model,
        args=arguments,
        train_dataset=rows,
        data_collator=collator,
        callbacks=[_Steps(collator, progress, model), metrics_callback],
    )
    trainer.remove_callback(PrinterCallback)
    try:
        trainer.train()
    except torch.OutOfMemoryError as error:
        raise TrainingFailed("out of GPU memory", "halve batch_size") from error
    return metrics_callback
