"""A trainer of 12 packs of 8 tokens on a tiny model, in one process or in several; `train()` needs nothing else."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig, get_peft_model
from transformers import PrinterCallback, TrainingArguments

from expert_cli.data.packing.batches import Collator, PackedBatchSampler
from expert_cli.data.packing.fixed_shape import fixed_shape
from expert_cli.data.packing.order import epoch_order
from expert_cli.data.packing.step_schedule import Schedule
from expert_cli.model.kernels import attention
from expert_cli.model.kernels.chunked_loss import CausalLoss
from expert_cli.runs.status import RunStatus
from expert_cli.training.callbacks import StepCallback
from expert_cli.training.checkpointing.resume import Checkpoints
from expert_cli.training.trainer import ExpertTrainer
from tests import run_blocks, tiny
from tests.packs import packed

OPTIM = replace(run_blocks.OPTIM, batch_size=6, learning_rate=1e-3, scheduler="constant", optim="adamw_torch")
WATCH = replace(run_blocks.LOG_SAVE_EVAL, save_every_s=0.0)
IMPOSSIBLE = 1 << 50
"""Bytes that no machine has: asking for them fails as memory that has run out does."""
TOKENS = 8


def small_trainer(
    folder: Path,
    base: Any = None,
    *,
    batch: int = 6,
    accumulation: int = 1,
    epochs: float = 1.0,
    fixed: bool = False,
    graphs: Any = None,
    adapter: Any = None,
    **arguments: Any,
) -> ExpertTrainer:
    """Return a trainer of a LoRA adapter on `base` (a tiny Llama), which has logged, evaluated and written nothing.

    fixed: its batches have one shape, as with graphs, which record the step. adapter: settings of LoRA. arguments: more of
    transformers'.
    """
    base = tiny.tiny_model() if base is None else base
    attention.use(base, "documents")
    data = packed(folder, *[(TOKENS // 2, TOKENS // 2)] * 12, packing="off")
    args = TrainingArguments(
        **{
            "output_dir": str(folder / "out"),
            "use_cpu": True,
            "report_to": "none",
            "save_strategy": "no",
            "logging_steps": 1,
            "learning_rate": OPTIM.learning_rate,
            "lr_scheduler_type": "constant",
            "optim": OPTIM.optim,
            "disable_tqdm": True,
            **arguments,
        }
    )
    together = batch * accumulation * args.world_size
    schedule = Schedule(12, together, batch, args.world_size, epochs, -1)

    def order_of(epoch: int) -> Any:
        return epoch_order(12, 1, epoch)

    torch.manual_seed(0)
    model = get_peft_model(base, LoraConfig(**{"r": 2, "target_modules": ["q_proj"], **(adapter or {})}))
    made = ExpertTrainer(
        optim_config=replace(OPTIM, batch_size=batch, gradient_accumulation_steps=accumulation, optim=args.optim.value),
        watch=WATCH,
        batches=PackedBatchSampler(schedule, order_of, rank=args.process_index),
        model=CausalLoss(model),
        args=args,
        train_dataset=data,
        data_collator=Collator(0),
        shape_of=lambda now: fixed_shape(data, now, order_of, TOKENS, 1.0) if fixed or graphs else None,
        graphs=graphs,
        checkpoints=Checkpoints(model, folder / "checkpoints", {}, None, RunStatus()),
    )
    made.remove_callback(PrinterCallback)
    made.add_callback(StepCallback(WATCH, schedule.steps_per_epoch, lambda: False))
    return made
