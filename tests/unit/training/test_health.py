"""Sick runs end within a step, and name it; on a GPU a step's figures are read one step later."""

from __future__ import annotations

import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from expert_cli.errors import TrainingFailed
from expert_cli.hardware.devices import DEVICES
from expert_cli.model.flat_parameters import FlatParameters
from expert_cli.training.health import TrainingHealth, TrainingState
from tests.small_trainer import small_trainer


def health(*, scaled: bool = False) -> TrainingHealth:
    flat = FlatParameters([(f"{layer}.lora_A", torch.nn.Parameter(torch.ones(1))) for layer in ("up", "down")])
    return TrainingHealth(TrainingState(), flat, lambda step: f"documents of step {step}", scaled=scaled)


SICK = {
    "nan loss": (math.nan, 1.0, "the loss of step 1 is nan; documents of step 0"),
    "infinite loss": (math.inf, 1.0, "the loss of step 1 is inf"),
    "nan gradients": (1.0, math.nan, "the gradient norm of step 1 is nan"),
    "infinite gradients": (1.0, math.inf, "the gradient norm of step 1 is inf"),
    "loss of zero": (0.0, 1.0, "the loss of step 1 is exactly 0.0; documents of step 0"),
}


@pytest.mark.parametrize(("loss", "norm", "message"), SICK.values(), ids=SICK.keys())
def test_a_sick_step_ends_the_run_and_is_named(loss: float, norm: float, message: str) -> None:
    with pytest.raises(TrainingFailed) as caught:
        health().record(torch.tensor([loss, norm, 1.0, 1.0]))
    assert message in caught.value.message
    assert caught.value.hint


def test_fp16_skips_a_step_whose_gradients_overflow() -> None:
    kept = health(scaled=True)
    kept.record(torch.tensor([1.5, math.inf, 1.0, 1.0]))
    assert kept.progress.losses == [1.5]


def test_a_dead_layer_ends_the_run() -> None:
    watched, figures = health(), torch.tensor([1.0, 1.0, 1.0, 0.0])
    for _ in range(2):
        watched.record(figures)
    with pytest.raises(TrainingFailed, match=r"1 adapter layers get no gradient at all, down among them \(step 3\)"):
        watched.record(figures)


def test_on_a_gpu_figures_are_read_when_the_next_step_is_done_or_when_they_are_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    done: list[str] = []
    mark = SimpleNamespace(record=lambda: done.append("mark"), synchronize=lambda: done.append("wait"))
    empty = torch.empty
    monkeypatch.setattr(torch.cuda, "Event", lambda *, enable_timing: mark)
    monkeypatch.setattr("expert_cli.training.health.device_of", lambda _: DEVICES["cuda"])
    monkeypatch.setattr(torch, "empty", lambda count, **_: empty(count))  # there is none to be pinned
    watched = health()
    for step, loss in enumerate((1.5, 1.25)):
        watched.record(torch.tensor([loss, 0.5, 1.0, 1.0]))
        assert len(watched.progress.losses) == step
    assert done == ["mark", "wait", "mark"]
    watched.flush()
    watched.flush()
    assert (watched.progress.losses, watched.grad_norm, done[3:]) == ([1.5, 1.25], 0.5, ["wait"])
    watched.record(torch.tensor([math.nan, 0.5, 1.0, 1.0]))
    with pytest.raises(TrainingFailed, match="the loss of step 3 is nan"):
        watched.record(torch.tensor([1.0, 0.5, 1.0, 1.0]))


def test_a_run_ends_in_the_step_that_is_sick_and_names_its_documents(tmp_path: Path) -> None:
    made = small_trainer(tmp_path, batch=2, accumulation=2)
    steps: list[int] = []

    def spoil(_module: Any, _args: Any, out: Any) -> None:
        steps.append(made.state.global_step)
        if made.state.global_step == 1:
            out.last_hidden_state.mul_(math.nan)

    made.model.base.get_decoder().register_forward_hook(spoil)
    _, numbers = made.batches.packs_of(1)
    rows = ", ".join(map(str, sorted(numbers.tolist())))
    with pytest.raises(TrainingFailed) as caught:
        made.train()
    assert caught.value.message == f"the loss of step 2 is nan; its documents (counted from 0): {rows}"
    assert max(steps) == 1
