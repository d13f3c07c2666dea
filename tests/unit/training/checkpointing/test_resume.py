"""A run that goes on from a checkpoint takes the very steps it would have taken, with every optimizer the tool offers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig, PeftModel, get_peft_model

from expert_cli.errors import InputError
from expert_cli.manifest.keys.optim import OPTIMIZERS
from expert_cli.model.adapter import adapter_parts
from expert_cli.model.flat_parameters import optimizer_bytes
from expert_cli.training.checkpointing.checkpoint import CheckpointState, read, write
from expert_cli.training.checkpointing.optimizer_state import load_optimizer, optimizer_parts
from expert_cli.training.checkpointing.resume import Resumed
from expert_cli.training.trainer import ExpertTrainer
from tests.recorders import Recorder
from tests.small_trainer import WATCH, small_trainer
from tests.tiny import tiny_model

# bitsandbytes says so for every parameter; on a CPU a paged optimizer is an ordinary one.
pytestmark = pytest.mark.filterwarnings("ignore:Paged optimizers are not supported on CPU")
EVERY_OTHER = replace(WATCH, save_strategy="steps", save_steps=2, save_total_limit=None)


def trainer(folder: Path, optim: str, **settings: Any) -> ExpertTrainer:
    """A trainer of two epochs of four steps, with dropout and more numbers than bitsandbytes keeps in fp32 (4,096)."""
    asked = {"batch": 3, "epochs": 2.0, "watch": EVERY_OTHER, "scheduler": "cosine", "optim": optim}
    return small_trainer(folder, **{"adapter": {"r": 16, "lora_dropout": 0.1}, **asked, **settings})


def gone_on(made: ExpertTrainer, home: Path) -> ExpertTrainer:
    made.checkpoints = replace(made.checkpoints, resumed=Resumed(home, read(home)))
    made.train(resume_from_checkpoint=str(home))
    return made


def bits(tensors: dict[str, torch.Tensor]) -> dict[str, bytes]:
    return {
        name: tensor.detach().contiguous().view(-1).view(torch.uint8).numpy().tobytes()
        for name, tensor in tensors.items()
    }


@pytest.mark.parametrize("optim", OPTIMIZERS)
def test_it_goes_on_as_if_nothing_had_happened(tmp_path: Path, optim: str) -> None:
    whole = trainer(tmp_path / "whole", optim)
    whole.train()
    for step in (2, 6):
        again = gone_on(trainer(tmp_path / f"from {step}", optim), tmp_path / f"whole/checkpoints/checkpoint-{step}")
        assert again.progress.losses == whole.progress.losses
        assert (again.progress.real, again.progress.trained) == (whole.progress.real, whole.progress.trained)
        assert torch.equal(again.flat.flat, whole.flat.flat)
        (mine, numbers), (theirs, wanted) = (optimizer_parts(one.optimizer.optimizer) for one in (again, whole))
        assert (bits(mine), numbers) == (bits(theirs), wanted)
        assert again.lr_scheduler.state_dict() == whole.lr_scheduler.state_dict()
        assert again.state.log_history[-2]["learning_rate"] == whole.state.log_history[-2]["learning_rate"]
    tensors, _ = optimizer_parts(whole.optimizer.optimizer)
    if optim != "adafactor":  # which is told of the flat buffer, and keeps rows and columns
        found = sum(tensor.nbytes for tensor in tensors.values())
        assert (
            found - 2100 <= optimizer_bytes(whole.flat.flat, optim) <= found
        )  # bitsandbytes' table of 256 values, twice


def test_a_recorded_run_goes_on_from_an_eager_one_and_back(tmp_path: Path) -> None:
    """Of one AdamW, which the recorded one is with a learning rate in fp32."""
    losses = []
    for name, graphs in (("recorded", (None, Recorder())), ("eager", (Recorder(), None))):
        first, then = (
            trainer(tmp_path / f"{name}{number}", "adamw_torch", graphs=one, fixed=True)
            for number, one in enumerate(graphs)
        )
        (first if first.graphs else then).try_step()
        first.train()
        home = tmp_path / f"{name}0/checkpoints/checkpoint-2"
        losses += [first.progress.losses, gone_on(then, home).progress.losses]
    assert all(one == pytest.approx(losses[0], rel=1e-6) for one in losses)


@pytest.mark.parametrize("optim", [name for name in OPTIMIZERS if name != "sgd"])
def test_state_is_written_into_the_tensors_that_are_there(tmp_path: Path, optim: str) -> None:
    made = trainer(tmp_path, optim, epochs=0.25)
    made.train()
    optimizer = made.optimizer.optimizer
    tensors, numbers = optimizer_parts(optimizer)
    assert tensors
    wanted = {name: tensor.clone() for name, tensor in tensors.items()}
    places = {name: tensor.data_ptr() for name, tensor in tensors.items()}
    for tensor in tensors.values():
        tensor.zero_()
    load_optimizer(optimizer, wanted, numbers)
    found, _ = optimizer_parts(optimizer)
    assert bits(found) == bits(wanted)
    assert {name: tensor.data_ptr() for name, tensor in found.items()} == places


@pytest.mark.parametrize(
    "adapter", [{}, {"use_dora": True}, {"modules_to_save": ["norm"]}], ids=["lora", "dora", "trained norm"]
)
def test_peft_loads_a_checkpoint_as_it_is(tmp_path: Path, adapter: dict[str, Any]) -> None:
    torch.manual_seed(0)
    config = LoraConfig(r=4, target_modules=["q_proj"], init_lora_weights=False, **adapter)
    model = get_peft_model(tiny_model(), config)  # type: ignore[arg-type]
    write(tmp_path, 2, CheckpointState(*adapter_parts(model), {}, {}, {}))
    loaded = PeftModel.from_pretrained(tiny_model(), tmp_path / "checkpoint-2")  # type: ignore[arg-type]
    ids = torch.arange(3, 20)[None]
    with torch.no_grad():
        assert torch.equal(loaded.eval()(input_ids=ids).logits, model.eval()(input_ids=ids).logits)


def test_a_checkpoint_of_another_adapter_is_refused(tmp_path: Path) -> None:
    trainer(tmp_path / "one", "sgd").train()
    other = trainer(tmp_path / "other", "sgd", adapter={"r": 8})
    with pytest.raises(InputError, match=r"does not fit this adapter: 4 tensors differ, the first is base_"):
        gone_on(other, tmp_path / "one/checkpoints/checkpoint-2")


def test_the_best_step_is_kept_and_loaded(tmp_path: Path) -> None:
    watch = replace(EVERY_OTHER, eval_strategy="steps", eval_steps=2, load_best_model_at_end=True, save_total_limit=2)
    made = trainer(tmp_path, "sgd", watch=watch, learning_rate=1e-3)
    made._loss_and_tokens = lambda _: torch.tensor([abs(made.state.global_step - 4.0), 1.0])  # type: ignore[method-assign]
    made.train()
    best = tmp_path / "checkpoints" / "checkpoint-4"
    assert (made.state.best_global_step, made.state.best_model_checkpoint) == (4, str(best))
    assert {path.name for path in best.parent.iterdir()} == {"checkpoint-4", "checkpoint-6", "checkpoint-8"}
    adapter, _ = adapter_parts(made.model.model)
    assert bits(adapter) == bits(read(best).adapter)
