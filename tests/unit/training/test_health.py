"""Sick runs end within a step, and name it; cut-off layers are found; clocks and schedules of saving are exact."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from peft import LoraConfig, get_peft_model
from torch._subclasses.fake_tensor import FakeTensorMode

from expert_cli.errors import TrainingFailed
from expert_cli.hardware.devices import DEVICES
from expert_cli.hardware.step_timer import PHASES, StepTimer
from expert_cli.model.flat_parameters import Gradients
from expert_cli.model.flops import flops, peak_flops
from expert_cli.training.health import TrainingHealth
from expert_cli.training.state import TrainingState
from expert_cli.utils.length_histogram import LengthHistogram
from tests import tiny


def adapted(**settings: Any) -> torch.nn.Module:
    torch.manual_seed(0)
    return get_peft_model(tiny.tiny_model(), LoraConfig(r=2, target_modules=["q_proj", "v_proj"], **settings))


def health(gradients: Gradients | None = None, *, scaled: bool = False) -> TrainingHealth:
    return TrainingHealth(
        TrainingState(), gradients or Gradients([]), lambda step: f"documents of step {step}", scaled=scaled
    )


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
        health().record(torch.tensor([loss, norm]))
    assert message in caught.value.message
    assert caught.value.hint


def test_fp16_skips_a_step_whose_gradients_overflow() -> None:
    kept = health(scaled=True)
    kept.record(torch.tensor([1.5, math.inf]))
    assert kept.progress.losses == [1.5]


def step(model: torch.nn.Module, *, cut: str = "") -> None:
    model(input_ids=torch.arange(5, 15)[None]).logits.square().mean().backward()
    for name, parameter in model.named_parameters():
        if cut and cut in name and parameter.grad is not None:
            parameter.grad.zero_()


def dead_after(gradients: Gradients, model: torch.nn.Module, *, cut: str = "", largest: float = 1.0) -> list[str]:
    """Do one step and return the layers that are found dead then."""
    step(model, cut=cut)
    norms = gradients.clip(largest)
    gradients.zero_grad()
    return gradients.dead_layers(norms[1:])


def test_rows_of_tokens_that_no_document_has_are_not_dead() -> None:
    config = LoraConfig(r=2, target_modules=["q_proj"], trainable_token_indices={"model.embed_tokens": [1]})
    model = get_peft_model(tiny.tiny_model(tie_word_embeddings=False), config)
    gradients = Gradients(model.named_parameters())
    assert [dead_after(gradients, model) for _ in range(3)] == [[], [], []]
    assert len(gradients.parameters) == 5


def test_layers_without_any_gradient_are_found_after_three_steps() -> None:
    model = adapted()
    gradients = Gradients(model.named_parameters())
    assert len(gradients.parameters) == 8
    found = [dead_after(gradients, model, cut="layers.1.self_attn.q_proj") for _ in range(3)]
    assert found[:2] == [[], []]
    assert [name.endswith("layers.1.self_attn.q_proj") for name in found[2]] == [True]


def test_an_untouched_adapter_is_not_called_dead_while_b_is_zero() -> None:
    model = adapted()
    gradients = Gradients(model.named_parameters())
    assert [dead_after(gradients, model, largest=0.0) for _ in range(3)] == [[], [], []]


def test_a_dead_layer_ends_the_run() -> None:
    model = adapted()
    gradients = Gradients(model.named_parameters())
    watched = health(gradients)
    for n in range(3):
        step(model, cut="layers.0.self_attn.v_proj")
        figures = torch.cat([torch.ones(1), gradients.clip(1.0)])
        gradients.zero_grad()
        if n == 2:
            with pytest.raises(TrainingFailed, match="1 adapter layers get no gradient at all"):
                watched.record(figures)
        else:
            watched.record(figures)


def test_what_moved_survives_a_checkpoint() -> None:
    model = adapted()
    gradients = Gradients(model.named_parameters())
    for _ in range(2):
        dead_after(gradients, model)
    resumed = Gradients(model.named_parameters())
    resumed.load(gradients.state())
    assert dead_after(resumed, model, cut="lora_") == []


def test_a_step_on_a_gpu_reads_nothing_back() -> None:
    """A fake CUDA tensor has no numbers: what waited for them would fail."""
    model = adapted()
    mode = FakeTensorMode()
    with mode:
        named = {name: torch.empty(p.shape, device="cuda") for name, p in model.named_parameters() if p.requires_grad}
        gradients = Gradients((name, torch.nn.Parameter(tensor)) for name, tensor in named.items())
    for n in range(3):
        with mode:
            for parameter in gradients.parameters:
                parameter.grad = torch.empty_like(parameter)
            norms = gradients.clip(1.0)
        assert (norms.device.type, len(norms)) == ("cuda", 9)
        assert len(gradients.dead_layers(torch.zeros(8))) == (4 if n == 2 else 0)


@pytest.mark.parametrize("largest", [0.0, 1e-3, 1e9])
def test_clipping_is_torchs(largest: float) -> None:
    models = [adapted(), adapted()]
    for model in models:
        step(model)
    mine = Gradients(models[0].named_parameters())
    norm, *each = mine.clip(largest)
    assert len(each) == len(mine.parameters)
    theirs = [p for p in models[1].parameters() if p.requires_grad]
    expected = torch.nn.utils.clip_grad_norm_(theirs, largest or math.inf)
    torch.testing.assert_close(norm, expected)
    for a, b in zip(mine.parameters, theirs, strict=True):
        torch.testing.assert_close(a.grad, b.grad)


def test_every_moment_is_counted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 5.0
    for module in ("training.step_timer", "hardware.devices"):
        monkeypatch.setattr(f"expert_cli.{module}.time", SimpleNamespace(perf_counter=lambda: now))
    timer = StepTimer(DEVICES["cpu"])
    timer.lap()
    with timer.phase("forward"):
        now += 0.03
    with timer.phase("data"):
        now += 0.01
    wall, shares = timer.lap()
    assert tuple(shares) == PHASES
    assert sum(shares.values()) == pytest.approx(1)
    assert shares["forward"] * wall == pytest.approx(timer.totals["forward"])
    assert (timer.totals["forward"], timer.totals["data"]) == pytest.approx((0.03, 0.01))
    assert timer.totals["backward"] == 0


def test_the_best_evaluation_is_kept_and_stale_ones_counted() -> None:
    progress = TrainingState()
    for progress.step, value in ((2, 1.0), (4, 0.5), (6, 0.7), (8, 0.6)):
        progress.judge(value, greater_is_better=False)
    assert (progress.best, progress.best_step, progress.stale) == (0.5, 4, 2)
    assert TrainingState.from_json(progress.as_json()) == progress


def test_flops_of_a_token_by_hand() -> None:
    model = adapted()
    base = model.get_base_model()
    hidden, inner, heads, head_dim, layers, vocabulary = 64, 128, 4, 16, 2, 384
    linear = layers * (hidden * 64 + 2 * hidden * 32 + 64 * hidden + 3 * hidden * inner)
    adapter = layers * ((hidden * 2 + 2 * 64) + (hidden * 2 + 2 * 32))
    lengths = LengthHistogram.of(np.array([3, 5]))
    s_eff = (9 + 25) / 8
    attention = s_eff * heads * head_dim * layers
    cost = flops(base, lengths, recomputed=False)
    assert cost.per_token == pytest.approx(4 * linear + 6 * adapter + 6 * attention)
    assert cost.per_trained_token == 4 * vocabulary * hidden
    assert cost.of(10, 2) == pytest.approx(10 * cost.per_token + 2 * cost.per_trained_token)
    again = flops(base, lengths, recomputed=True)
    assert again.per_token - cost.per_token == pytest.approx(2 * linear + 2 * adapter + 2 * attention)


@pytest.mark.parametrize(
    ("name", "tflops"),
    [
        ("NVIDIA H100 80GB HBM3", 989.0),
        ("NVIDIA H100 PCIe", 756.0),
        ("NVIDIA A100-SXM4-80GB", 312.0),
        ("NVIDIA L40S", 362.0),
        ("NVIDIA L4", 121.0),
        ("Tesla T4", 65.0),
        ("NVIDIA GeForce RTX 4090", 165.2),
        *((name, None) for name in ("NVIDIA RTX A1000", "NVIDIA L40", "NVIDIA T400 4GB", "NVIDIA GH200 480GB")),
        *((name, None) for name in ("NVIDIA GeForce RTX 4090 Laptop GPU", "NVIDIA GeForce RTX 4080 SUPER")),
        *((name, None) for name in ("NVIDIA H100 NVL", "NVIDIA A100-SXM4-40GB MIG 1g.5gb", "Some other card")),
    ],
)
def test_peaks_are_looked_up_by_whole_words(name: str, tflops: float | None) -> None:
    found = peak_flops(name)
    assert (found and found[0]) == (tflops and tflops * 1e12)


def test_the_peak_of_a_job_is_that_of_all_its_cards() -> None:
    # tokens are counted over all processes, so the peak is, too
    assert peak_flops("NVIDIA H200", 4) == (4 * 989e12, "4 x H200, 989 TFLOP/s dense bf16 each by its datasheet")
