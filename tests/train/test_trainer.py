"""The Trainer's own loop around our step: what it computes, what it asks the host, what is compiled."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import PeftModel
from torch._dynamo.utils import counters
from torch._subclasses.fake_tensor import FakeTensorMode
from transformers import TrainerCallback

from expert_cli.config.compute_defaults import compute as compute_of
from expert_cli.config.run_config import ModelConfig
from expert_cli.config.settings import Settings
from expert_cli.config.training_defaults import adapter as adapter_of
from expert_cli.data.packing.batches import Collator, FixedShape
from expert_cli.manifest.training_config import TrainingConfig
from expert_cli.model.adapter import add_adapter
from expert_cli.model.flat_parameters import FlatParameters
from expert_cli.model.kernels.chunked_loss import CausalLoss
from expert_cli.model.kernels.kernel_plan import apply_adapter_kernels, apply_kernels, kernel_plan
from expert_cli.model.kernels.lora import patch_dora, refresh_norms
from expert_cli.model.layers import enable_activation_checkpointing
from expert_cli.model.loading.quantize import DTYPES
from expert_cli.pipeline.train import RunOptions
from expert_cli.training.trainer import ExpertTrainer
from tests import tiny
from tests.kernel_counts import KernelCounter
from tests.machines import H200
from tests.packs import model_inputs, pack
from tests.recorders import Recorder
from tests.small_trainer import WATCH, small_trainer
from tests.train.projects import SEVEN, case, logged, project, train

UNEVEN = [(n % 3 + 2, 3 + n % 2) for n in range(12)]
OPTIM: dict[str, Any] = {"learning_rate": 1e-2, "weight_decay": 0.1, "scheduler": "cosine", "max_grad_norm": 0.05}
ASKED: dict[str, Any] = {"batch": 1, "accumulation": 3, "epochs": 2.0, "documents": UNEVEN, **OPTIM}
ASKED |= {"watch": replace(WATCH, logging_steps=100)}


class Seen(TrainerCallback):
    """Keeps what it is handed, and lets the run stop at an event of step 3."""

    def __init__(self, stop_at: str = "") -> None:
        self.stop_at, self.substeps, self.handed = stop_at, list[int](), dict[str, Any]()

    def on_substep_end(self, args: Any, state: Any, control: Any, **handed: Any) -> None:
        self.substeps.append(state.global_step)
        self.handed = handed
        control.should_training_stop |= (self.stop_at, state.global_step) == ("substep", 3)

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        control.should_training_stop |= (self.stop_at, state.global_step) == ("step", 3)


def by_hand(made: ExpertTrainer) -> list[float]:
    """Train the same packs as PyTorch's documents do it; return the loss of each step."""
    parameters = [parameter for parameter in made.model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(parameters, lr=OPTIM["learning_rate"], weight_decay=OPTIM["weight_decay"])
    losses, steps = [], made.batches.schedule.steps
    for step in range(steps):
        optimizer.param_groups[0]["lr"] = OPTIM["learning_rate"] * 0.5 * (1 + math.cos(math.pi * step / steps))
        epoch, numbers = made.batches.packs_of(step)
        batches = [Collator(0)([made.train_dataset[epoch, number]]) for number in numbers.tolist()]
        trained = sum(batch.pop("trained_tokens") for batch in batches)
        loss = sum(made.model(**{k: v for k, v in one.items() if k != "real_tokens"}) for one in batches) / trained
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, OPTIM["max_grad_norm"])
        optimizer.step()
        made.flat.gradient.zero_()
        losses.append(loss.item())
    return losses


def test_it_trains_what_a_loop_by_hand_trains(tmp_path: Path) -> None:
    """Over buffers that are written to and never replaced; callbacks are handed the model that people know."""
    seen = Seen()
    made, other = (small_trainer(tmp_path / name, callbacks=[seen], **ASKED) for name in "ab")
    tensors = [made.flat.flat, made.flat.gradient, *made.flat.parameters]
    places = [tensor.data_ptr() for tensor in tensors]
    made.train()
    losses = by_hand(other)
    assert len(losses) == 8
    assert made.progress.losses == pytest.approx(losses, rel=1e-6)
    torch.testing.assert_close(made.flat.flat, other.flat.flat, rtol=1e-5, atol=1e-7)
    assert made.progress.trained == 2 * sum(answer for _, answer in UNEVEN)
    assert places == [tensor.data_ptr() for tensor in tensors]
    assert isinstance(seen.handed["model"], PeftModel)
    assert seen.handed["optimizer"] is made.optimizer
    assert seen.substeps == [step for step in range(8) for _ in range(2)]


def test_every_module_is_in_training_mode_when_a_step_begins(tmp_path: Path) -> None:
    """Loading leaves a model in eval mode, where neither NEFTune nor gradient checkpointing has an effect."""
    modes: list[set[bool]] = []

    class Modes(TrainerCallback):
        def on_step_begin(self, *_: Any, model: Any, **__: Any) -> None:
            modes.append({module.training for module in model.modules()})

    train(project(tmp_path, max_steps=2), RunOptions(callbacks=(Modes(),)))
    assert modes == [{True}, {True}]


def test_doras_norms_are_those_of_the_last_step(tmp_path: Path) -> None:
    made = small_trainer(tmp_path, adapter={"use_dora": True})
    model = made.model.model
    patch_dora(model)
    made.train()
    norms = [layer.norm.clone() for layer in model.dora_layers]
    refresh_norms(model)
    assert all(torch.equal(norm, layer.norm) for norm, layer in zip(norms, model.dora_layers, strict=True))


def test_nothing_in_a_step_asks_the_device(tmp_path: Path) -> None:
    """The first and the last log line, the loader and the end do: a run that is twice as long asks as often."""
    asked = []
    for epochs in (0.5, 1.0):
        made = small_trainer(tmp_path / str(epochs), graphs=Recorder(), **ASKED | {"epochs": epochs})
        made.try_step()
        with KernelCounter() as counter:
            made.train()
        asked.append(counter.names["_local_scalar_dense"])
    assert asked[0] == asked[1] > 0


def test_a_stop_within_a_step_drops_its_gradients(tmp_path: Path) -> None:
    whole, cut = (small_trainer(tmp_path / at, callbacks=[Seen(at)], **ASKED) for at in ("step", "substep"))
    whole.train()
    cut.train()
    assert torch.equal(whole.flat.flat, cut.flat.flat)
    assert cut.state.global_step == len(cut.progress.losses) == 3
    assert (whole.progress.real, whole.progress.trained) == (cut.progress.real, cut.progress.trained)


SHAPE = FixedShape(tokens=64, longest=32, borders=8, targets=30)
SETTINGS: dict[str, tuple[tiny.Architecture, dict[str, Any]]] = {
    "as it is": ("qwen3", {}),
    "fp16": ("llama", {"fp16": True}),
    "recomputed": ("llama", {"gradient_checkpointing": True}),
    "dropout": ("llama", {"dropout": 0.1}),
    "dora": ("llama", {"adapter_type": "dora"}),
}


@pytest.mark.parametrize(("architecture", "config"), SETTINGS.values(), ids=SETTINGS.keys())
def test_a_step_asks_no_tensor_for_its_value(
    monkeypatch: pytest.MonkeyPatch, architecture: tiny.Architecture, config: dict[str, Any]
) -> None:
    keys = Settings(TrainingConfig(**{"rank": 16, "dropout": 0.0, "target_modules": "all-linear", **config}))
    adapter = adapter_of(keys)
    compute = compute_of(keys, H200, "cuda", "none")
    dtype, collate = DTYPES[compute.dtype], Collator(0, "packed", SHAPE)
    batches = [model_inputs(collate, pack(5, 9, 2), pack(7, 8)), model_inputs(collate, pack(20))]
    # Module.to swaps tensors without values, which nothing may refer to weakly, as their mode does
    monkeypatch.setattr(torch.utils, "swap_tensors", lambda old, new: setattr(old, "data", new.data))
    with FakeTensorMode(allow_non_fake_inputs=True):
        base: Any = tiny.tiny_model(architecture).to(dtype).requires_grad_(False)
        model_config = ModelConfig("", "", "none", "", None, ())
        plan = kernel_plan(compute, model_config, H200, base, unpacked=0, free=0)
        apply_kernels(plan, base, compute)
        model = add_adapter(base, adapter)
        plan = apply_adapter_kernels(plan, model, compute)
        enable_activation_checkpointing(base, compute.checkpointing, reentrant=compute.reentrant)
        module = CausalLoss(model, full_logits=plan.full_logits, autocast=dtype).train()
        flat = FlatParameters(module.named_parameters())
        optimizer = torch.optim.AdamW([flat.flat], fused=True)
        with KernelCounter() as counter:
            for batch in batches:
                loss = module(**batch) * (1 / 3)
                loss.backward()
            flat.clip(1.0)
            optimizer.step()
            refresh_norms(model)
            flat.gradient.zero_()
    assert plan.attention == "varlen"
    assert (loss.dtype, loss.shape, flat.gradient.dtype) == (torch.float32, (), torch.float32)
    passes = 2 * tiny.SHAPE["num_hidden_layers"]
    assert counter.names["_varlen_attn"] == passes * (2 if "gradient_checkpointing" in config else 1)
    assert counter.names["_varlen_attn_backward"] == passes


COMPILED: dict[str, Any] = {"torch_compile": True, "torch_compile_backend": "eager"}


class Graphs(TrainerCallback):
    """Counts after every step what the compiler has made by then."""

    def __init__(self) -> None:
        self.after: list[int] = []

    def on_step_end(self, *_: Any, **__: Any) -> None:
        self.after.append(counters["stats"]["unique_graphs"])


def four_bit(folder: Path, **config: Any) -> Path:
    """A manifest of a base model in 4 bits, whose cases are asked before and after training."""
    settings = {"batch_size": 2, "max_steps": 4, "logging_steps": 1, "bf16": True, "dequantized_copy": "never"}
    asked = {"cases": [case(n, 7) for n in range(2)]}
    # as many documents in every pack
    return project(folder, rows=SEVEN[:8], base={"quantization": "int4"}, **asked, **settings, **config)


def test_four_bit_layers_train_the_same_and_answers_leave_the_compiler_to_training(tmp_path: Path) -> None:
    made = Graphs()
    plain = train(four_bit(tmp_path / "a"))
    done = train(four_bit(tmp_path / "b", **COMPILED), RunOptions(callbacks=(made,)))
    losses = [list(logged(one.output, "loss").values()) for one in (plain, done)]
    assert losses[1] == pytest.approx(losses[0], rel=2e-2)
    graphs = made.after[0]
    assert made.after == [graphs] * 4, "what the first step compiled serves all"
    assert graphs > 0
    assert done.document["kernels"]["compile"]["used"] == "eager"
