"""Values and gradients are views of two buffers; clipping is torch's; cut-off layers are found; the work of a token."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from peft import LoraConfig, get_peft_model

from expert_cli.model.flat_parameters import FlatParameters
from expert_cli.model.flops import flops, peak_flops
from expert_cli.utils.length_histogram import LengthHistogram
from tests import tiny


def adapted(**settings: Any) -> Any:
    torch.manual_seed(0)
    return get_peft_model(tiny.tiny_model(), LoraConfig(**{"r": 2, "target_modules": ["q_proj", "v_proj"]} | settings))


def backward(model: Any, *, cut: str = "none") -> None:
    model(input_ids=torch.arange(5, 15)[None]).logits.square().mean().backward()
    for name, parameter in model.named_parameters():
        if cut in name and parameter.grad is not None:
            parameter.grad.zero_()


def places(flat: FlatParameters) -> list[tuple[int, int]]:
    found = [flat.flat, *flat.parameters]
    assert all(parameter.grad is not None for parameter in found)
    return [(parameter.data_ptr(), parameter.grad.data_ptr()) for parameter in found]  # type: ignore[union-attr]


def test_tensors_are_views_in_their_order_and_are_what_they_were() -> None:
    model, before = adapted(), [parameter.detach().clone() for parameter in adapted().parameters()]
    flat = FlatParameters(model.named_parameters())
    assert len(flat.parameters) == 8
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), before, strict=True))
    assert torch.equal(flat.flat, torch.cat([parameter.flatten() for parameter in flat.parameters]))
    place = 0
    for parameter, (value, gradient) in zip(flat.parameters, places(flat)[1:], strict=True):
        assert value - flat.flat.data_ptr() == gradient - flat.gradient.data_ptr() == 4 * place
        place += parameter.numel()
    assert place == flat.flat.numel()


@pytest.mark.parametrize("largest", [0.0, 1e-3, 1e9])
def test_clipping_is_torchs(largest: float) -> None:
    models = [adapted(), adapted()]
    mine = FlatParameters(models[0].named_parameters())
    theirs = [p for p in models[1].parameters() if p.requires_grad]
    for model in models:
        backward(model)
    norm, *each = mine.clip(largest)
    torch.testing.assert_close(each, [p.grad.norm() for p in theirs])
    torch.testing.assert_close(norm, torch.nn.utils.clip_grad_norm_(theirs, largest or math.inf))
    for a, b in zip(mine.parameters, theirs, strict=True):
        torch.testing.assert_close(a.grad, b.grad)


DEAD: dict[str, tuple[dict[str, Any], str, list[str]]] = {
    "none": ({}, "none", []),
    "a layer": ({}, "layers.1.self_attn.q_proj", ["base_model.model.model.layers.1.self_attn.q_proj"]),
    "its A alone, as while B is zero": ({}, "layers.1.self_attn.q_proj.lora_A", []),
    "rows of tokens that no document has": ({"trainable_token_indices": {"model.embed_tokens": [1]}}, "none", []),
}


@pytest.mark.parametrize(("settings", "cut", "dead"), DEAD.values(), ids=DEAD.keys())
def test_layers_without_any_gradient_are_found_after_three_steps(
    settings: dict[str, Any], cut: str, dead: list[str]
) -> None:
    model = adapted(**settings)
    flat, found = FlatParameters(model.named_parameters()), []
    for _ in range(6):
        backward(model, cut=cut)
        found.append(flat.dead_layers(flat.clip(1.0)[1:]))
        flat.gradient.zero_()
    assert found == [[], [], dead] * 2


def test_flops_of_a_token_by_hand() -> None:
    base: Any = tiny.tiny_model()
    get_peft_model(base, LoraConfig(r=2, target_modules=["q_proj", "v_proj"]))
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
        ("NVIDIA GeForce RTX 4090", 165.2),
        *((name, None) for name in ("NVIDIA RTX A1000", "NVIDIA GeForce RTX 4090 Laptop GPU", "Some other card")),
    ],
)
def test_peaks_are_looked_up_by_whole_words(name: str, tflops: float | None) -> None:
    assert peak_flops(name) == (tflops and tflops * 1e12)
