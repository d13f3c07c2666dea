"""A step that does not fit: smaller micro-batches at the same effective batch, then recomputation, then a clear end."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model
from transformers import TrainingArguments

from expert_cli.data.packing.batches import Collator, PackedBatchSampler
from expert_cli.data.packing.order import epoch_order
from expert_cli.data.packing.step_schedule import Schedule
from expert_cli.errors import TrainingFailed
from expert_cli.model.activation_checkpointing import decoder_layers
from expert_cli.model.kernels import attention
from expert_cli.model.kernels.chunked_loss import CausalLoss
from expert_cli.training.checkpointing import checkpoint, resume
from expert_cli.training.oom import fit_memory, recompute_all
from expert_cli.training.trainer import ExpertTrainer
from expert_cli.utils.reporter import NullReporter
from tests import run_blocks, tiny
from tests.packs import packed

OPTIM = replace(run_blocks.OPTIM, batch_size=6, learning_rate=1e-3, scheduler="constant", optim="adamw_torch")
WATCH = replace(run_blocks.LOG_SAVE_EVAL, save_every_s=0.0)


def trainer(folder: Path, room: list[int]) -> ExpertTrainer:
    """Return a trainer of 12 packs of 8 tokens whose model has memory for `room[0]` tokens."""
    base = tiny.tiny_model()
    attention.use(base, "documents")
    forward = base.get_decoder().forward

    def limited(*args: Any, **kwargs: Any) -> Any:
        if kwargs["input_ids"].numel() > room[0]:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return forward(*args, **kwargs)

    base.get_decoder().forward = limited
    data = packed(folder, *[(4, 4)] * 12, packing="off")
    made = ExpertTrainer(
        optim_config=OPTIM,
        watch=WATCH,
        batches=PackedBatchSampler(
            Schedule(data.packs.count, 6, 1, 1, 1.0, -1), lambda epoch: epoch_order(12, 1, epoch)
        ),
        model=CausalLoss(get_peft_model(base, LoraConfig(r=2, target_modules=["q_proj"]))),
        args=TrainingArguments(output_dir=str(folder / "out"), use_cpu=True, report_to="none", save_strategy="no"),
        train_dataset=data,
        data_collator=Collator(0),
    )
    made.prepare()
    return made


FITS = {
    "all of it": (48, 6, 1, []),
    "half": (24, 3, 2, ["6 x 1 -> 3 x 2"]),
    "one": (8, 1, 6, ["6 x 1 -> 3 x 2", "3 x 2 -> 1 x 6"]),
}


@pytest.mark.parametrize(("tokens", "batch", "accumulation", "adjusted"), FITS.values(), ids=FITS.keys())
def test_the_micro_batch_shrinks_and_the_effective_batch_stays(
    tmp_path: Path, tokens: int, batch: int, accumulation: int, adjusted: list[str]
) -> None:
    made = trainer(tmp_path, [tokens])
    found = fit_memory(made, lambda: False, NullReporter(), may_adjust=True)
    schedule = made.batches.schedule
    assert (schedule.batch_size, schedule.accumulation, schedule.packs_per_step) == (batch, accumulation, 6)
    assert found == [f"micro-batch {text}" for text in adjusted]
    assert all(p.grad is None for p in made.gradients.parameters)


def test_recomputation_comes_after_the_smallest_batch(tmp_path: Path) -> None:
    room = [7]
    made = trainer(tmp_path, room)

    def recompute_all() -> bool:
        room[0] += 1
        return True

    assert fit_memory(made, recompute_all, NullReporter(), may_adjust=True)[-1] == "gradient checkpointing on"
    assert made.batches.schedule.batch_size == 1


def test_what_does_not_fit_at_all_ends_with_what_would(tmp_path: Path) -> None:
    with pytest.raises(TrainingFailed, match="a full step of 1 packs does not fit") as caught:
        fit_memory(trainer(tmp_path, [7]), lambda: False, NullReporter(), may_adjust=True)
    assert "max_seq_length" in caught.value.hint


def test_on_oom_error_changes_nothing(tmp_path: Path) -> None:
    made = trainer(tmp_path, [24])
    with pytest.raises(TrainingFailed, match="a full step of 6 packs does not fit"):
        fit_memory(made, lambda: True, NullReporter(), may_adjust=False)
    assert made.batches.schedule.batch_size == 6


def test_recomputation_is_switched_on_once_and_a_checkpoint_remembers_it(tmp_path: Path) -> None:
    made = trainer(tmp_path, [7])
    with pytest.raises(TrainingFailed, match="a full step of 1 packs does not fit"):
        fit_memory(made, partial(recompute_all, made, "off"), NullReporter(), may_adjust=True)
    assert all(layer.gradient_checkpointing for layer in decoder_layers(made.model.base))
    written = resume.save(made, made.model.model, tmp_path / "checkpoints", {})
    assert checkpoint.read(written.path).trainer["recomputes"] is True


def test_what_the_manifest_recomputes_is_not_switched_on_again(tmp_path: Path) -> None:
    made = trainer(tmp_path, [48])
    assert recompute_all(made, "selective") is False
    assert made.recomputes is False
