"""A trainer of 12 packs of 8 tokens on a tiny model, in one process or in several."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig, get_peft_model
from transformers import TrainingArguments

from expert_cli.data.packing.batches import Collator, PackedBatchSampler
from expert_cli.data.packing.order import epoch_order
from expert_cli.data.packing.step_schedule import Schedule
from expert_cli.model.kernels import attention
from expert_cli.model.kernels.chunked_loss import CausalLoss
from expert_cli.training.trainer import ExpertTrainer
from tests import run_blocks, tiny
from tests.packs import packed

OPTIM = replace(run_blocks.OPTIM, batch_size=6, learning_rate=1e-3, scheduler="constant", optim="adamw_torch")
WATCH = replace(run_blocks.LOG_SAVE_EVAL, save_every_s=0.0)
IMPOSSIBLE = 1 << 50
"""Bytes that no machine has: asking for them fails as memory that has run out does."""


def small_trainer(
    folder: Path, base: Any = None, *, batch: int = 6, accumulation: int = 1, rank: int = 2, longest: int = 0
) -> ExpertTrainer:
    """Return a prepared trainer of a LoRA adapter on `base` (a tiny Llama).

    longest > 0: its batches have one fixed shape, with room for packs of so many tokens.
    """
    base = tiny.tiny_model() if base is None else base
    attention.use(base, "documents")
    data = packed(folder, *[(4, 4)] * 12, packing="off")
    arguments = TrainingArguments(output_dir=str(folder / "out"), use_cpu=True, report_to="none", save_strategy="no")
    together = batch * accumulation * arguments.world_size
    schedule = Schedule(data.packs.count, together, batch, arguments.world_size, 1.0, -1)
    torch.manual_seed(0)
    model = get_peft_model(base, LoraConfig(r=rank, target_modules=["q_proj"]))
    made = ExpertTrainer(
        optim_config=replace(OPTIM, batch_size=batch, gradient_accumulation_steps=accumulation),
        watch=WATCH,
        batches=PackedBatchSampler(schedule, lambda epoch: epoch_order(12, 1, epoch), rank=arguments.process_index),
        model=CausalLoss(model),
        args=arguments,
        train_dataset=data,
        data_collator=Collator(0, longest=longest),
    )
    made.prepare()
    return made
