"""A trainer of 12 packs of 8 tokens on a tiny model, in one process or in several; `train()` needs nothing else."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from peft import LoraConfig, get_peft_model
from transformers import PrinterCallback, TrainerCallback

from expert_cli.data.packing.batches import Collator, PackedBatchSampler, Schedule, fixed_shape
from expert_cli.data.packing.random_fit import epoch_order
from expert_cli.manifest.keys.log_save_eval import LogSaveEvalConfig
from expert_cli.model.kernels import attention
from expert_cli.model.kernels.chunked_loss import CausalLoss
from expert_cli.runs.status import RunStatus
from expert_cli.training.arguments import training_arguments
from expert_cli.training.callbacks import StepCallback
from expert_cli.training.checkpoint import Checkpoints
from expert_cli.training.trainer import ExpertTrainer
from tests import run_blocks, tiny
from tests.packs import packed
from tests.recorders import BrokenRecorder

OPTIM = replace(run_blocks.OPTIM, learning_rate=1e-3, scheduler="constant", warmup=0, optim="adamw_torch")
WATCH = replace(run_blocks.LOG_SAVE_EVAL, save_every_s=0.0, save_strategy="no", eval_strategy="no", logging_steps=1)
IMPOSSIBLE = 1 << 50
"""Bytes that no machine has: asking for them fails as memory that has run out does."""
TOKENS = 8


def small_trainer(
    folder: Path,
    base: Any = None,
    *,
    batch: int = 6,
    accumulation: int = 1,
    fixed: bool = False,
    graphs: Any = None,
    adapter: Any = None,
    watch: LogSaveEvalConfig = WATCH,
    stop_asked: Callable[[], bool] = lambda: False,
    callbacks: Sequence[TrainerCallback] = (),
    documents: Sequence[tuple[int, int]] = [(TOKENS // 2, TOKENS // 2)] * 12,
    **optim: Any,
) -> ExpertTrainer:
    """Return a trainer of a LoRA adapter on `base` (a tiny Llama).

    fixed: its batches have one shape, as with graphs, which record the step. adapter: settings of LoRA. documents: tokens of
    the prompt and of the answer of each pack, twelve of them. optim: settings of the run's optimizer and schedule. What
    evaluates is one pack.
    """
    base = tiny.tiny_model() if base is None else base
    attention.use(base, "documents")
    data = packed(folder / "train", *documents, packing="off")
    asked = {"epochs": 1.0, "batch_size": batch, "gradient_accumulation_steps": accumulation, "max_steps": -1}
    run: Any = SimpleNamespace(
        optim=replace(OPTIM, **asked | optim),
        watch=watch,
        loader=SimpleNamespace(num_workers=0, pin_memory=False, prefetch_factor=None),
        compute=replace(run_blocks.COMPUTE, dtype="fp32"),
        seed=0,
    )
    args = training_arguments(run, folder / "checkpoints")
    together = batch * accumulation * args.world_size
    schedule = Schedule(12, together, batch, args.world_size, run.optim.epochs, -1)

    def order_of(epoch: int) -> Any:
        return epoch_order(12, 1, epoch)

    torch.manual_seed(0)
    model = get_peft_model(base, LoraConfig(**{"r": 2, "target_modules": ["q_proj"], **(adapter or {})}))
    made = ExpertTrainer(
        optim_config=run.optim,
        watch=watch,
        batches=PackedBatchSampler(schedule, order_of, rank=args.process_index),
        model=CausalLoss(model),
        args=args,
        train_dataset=data,
        eval_dataset=packed(folder / "eval", (4, 4), packing="off"),
        data_collator=Collator(0),
        shape_of=lambda now: fixed_shape(data, now, order_of, TOKENS) if fixed or graphs else None,
        graphs=graphs,
        checkpoints=Checkpoints(folder / "checkpoints", {}, None, RunStatus()),
        callbacks=[StepCallback(watch, schedule.steps_per_epoch, stop_asked), *callbacks],
    )
    made.remove_callback(PrinterCallback)
    if isinstance(graphs, BrokenRecorder):
        graphs.gradient = made.flat.gradient
    return made
