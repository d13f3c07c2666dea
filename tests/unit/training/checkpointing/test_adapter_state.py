"""A run that goes on from a checkpoint takes the very steps it would have taken, with every optimizer the tool offers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from expert_cli.training.checkpointing.adapter_state import adapter_parts, estimate_bytes, load_adapter
from expert_cli.training.checkpointing.serialization import capture_rng, load_optimizer, restore_rng, serialize
from expert_cli.training.state import Position
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import Trainer, TrainingArguments, get_scheduler

from expert_cli.manifest.keys.optim import OPTIMIZERS
from expert_cli.training.checkpointing.checkpoint import CheckpointState, read, write
from tests.tiny import tiny_model

# bitsandbytes says so for every parameter; on a CPU a paged optimizer is an ordinary one.
pytestmark = pytest.mark.filterwarnings("ignore:Paged optimizers are not supported on CPU")


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """Threads only wait for each other over tensors this small."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@dataclass
class Run:
    """A model with an adapter (rank 64: bitsandbytes keeps less than 4,096 numbers in fp32), optimizer and schedule."""

    model: PeftModel
    optimizer: torch.optim.Optimizer
    schedule: torch.optim.lr_scheduler.LRScheduler

    def steps(self, count: int) -> list[float]:
        """Take steps on batches and through dropout that the random generators choose; return the losses."""
        losses = []
        for _ in range(count):
            ids = torch.randint(3, 384, (2, 16))
            loss = self.model(input_ids=ids, labels=ids).loss
            loss.backward()
            self.optimizer.step()
            self.schedule.step()
            self.optimizer.zero_grad()
            losses.append(loss.item())
        return losses

    def parts(self) -> CheckpointState:
        """Return what a checkpoint of this run holds."""
        adapter, config = adapter_parts(self.model)
        state, schedule = self.optimizer.state_dict(), self.schedule.state_dict()
        return CheckpointState(
            adapter, config, state, schedule, capture_rng(), Position(0, 3, 3), {}, {}, torch.zeros(3)
        )


def start(optim: str, folder: Path, seed: int, dtype: torch.dtype = torch.float32, **adapter: Any) -> Run:
    torch.manual_seed(seed)
    settings = {"r": 64, "lora_dropout": 0.1, "target_modules": ["q_proj", "o_proj", "up_proj"]} | adapter
    model = get_peft_model(tiny_model(), LoraConfig(**settings)).to(dtype)  # type: ignore[arg-type]
    arguments = TrainingArguments(output_dir=str(folder), optim=optim, learning_rate=1e-3, use_cpu=True)
    kind, settings = Trainer.get_optimizer_cls_and_kwargs(arguments)
    optimizer = kind([parameter for parameter in model.parameters() if parameter.requires_grad], **settings)
    return Run(model.train(), optimizer, get_scheduler("cosine", optimizer, 2, 8))


def bits(tensors: dict[str, torch.Tensor]) -> dict[str, bytes]:
    return {name: tensor.detach().view(-1).view(torch.uint8).numpy().tobytes() for name, tensor in tensors.items()}


# transformers does not know the name paged_adamw
CASES = [(optim, torch.float32) for optim in OPTIMIZERS if optim != "paged_adamw"]
CASES += [(optim, torch.bfloat16) for optim in ("adamw_torch_fused", "adamw_8bit", "paged_lion_32bit", "adafactor")]


@pytest.mark.parametrize(("optim", "dtype"), CASES, ids=lambda case: str(case).removeprefix("torch."))
def test_goes_on_as_if_nothing_had_happened(tmp_path: Path, optim: str, dtype: torch.dtype) -> None:
    run = start(optim, tmp_path, 0, dtype)
    run.steps(3)
    info = write(tmp_path, 3, run.parts())
    losses = run.steps(3)
    parts = read(info.path)
    again = start(optim, tmp_path, 1, dtype)
    load_adapter(again.model, parts.adapter)
    load_optimizer(again.optimizer, parts.optimizer)
    again.schedule.load_state_dict(dict(parts.scheduler))
    _, saved = serialize(parts.optimizer)
    _, loaded = serialize(again.optimizer.state_dict())
    assert bits(loaded) == bits(saved)
    restore_rng(parts.rng)
    assert again.steps(3) == losses
    assert bits(adapter_parts(again.model)[0]) == bits(adapter_parts(run.model)[0])
    assert bits(serialize(again.optimizer.state_dict())[1]) == bits(serialize(run.optimizer.state_dict())[1])
    assert again.schedule.state_dict() == run.schedule.state_dict()
    assert estimate_bytes(run.model, optim) == pytest.approx(info.bytes, rel=0.1)


def test_the_optimizer_that_accelerate_wraps(tmp_path: Path) -> None:
    from accelerate import Accelerator

    run, again = start("adamw_torch", tmp_path, 0), start("adamw_torch", tmp_path, 1)
    run.steps(1)
    wrapped = Accelerator(cpu=True).prepare(again.optimizer)
    load_optimizer(wrapped, run.optimizer.state_dict())
    assert bits(serialize(wrapped.state_dict())[1]) == bits(serialize(run.optimizer.state_dict())[1])


@pytest.mark.parametrize(
    "adapter", [{}, {"use_dora": True}, {"modules_to_save": ["norm"]}], ids=["lora", "dora", "trained norm"]
)
def test_peft_loads_a_checkpoint_as_it_is(tmp_path: Path, adapter: dict[str, Any]) -> None:
    run = start("sgd", tmp_path, 0, **adapter)
    run.steps(2)
    home = write(tmp_path, 2, run.parts()).path
    loaded = PeftModel.from_pretrained(tiny_model(), home)  # type: ignore[arg-type]
    ids = torch.arange(3, 20)[None]
    with torch.no_grad():
        assert torch.equal(loaded.eval()(input_ids=ids).logits, run.model.eval()(input_ids=ids).logits)


def test_another_adapter_is_refused(tmp_path: Path) -> None:
    small = start("sgd", tmp_path, 0, r=8)
    with pytest.raises(ValueError, match=r"^12 tensors do not fit the adapter, the first is base_model\.model"):
        load_adapter(start("sgd", tmp_path, 0).model, adapter_parts(small.model)[0])
