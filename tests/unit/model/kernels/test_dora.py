"""DoRA's norms are taken once a step, in place, and a pass takes none; PEFT's numbers: test_equals_peft.py."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from expert_cli.model.kernels.lora import refresh_norms
from tests.adapted import adapted, distance, ours, step


def test_norms_are_those_of_the_factors_when_they_were_last_taken() -> None:
    usual, made = adapted("dora"), ours(adapted("dora"), "dora")
    buffers = {name: buffer.data_ptr() for name, buffer in made.named_buffers() if name.endswith("norm")}
    for model in (usual, made):
        for name, parameter in model.named_parameters():
            if "lora_" in name:
                parameter.data.mul_(1.5)
    expected = step(usual)
    assert distance(step(made), expected) > 1e-3
    refresh_norms(made)
    assert distance(step(made), expected) < 1e-6
    assert buffers == {name: buffer.data_ptr() for name, buffer in made.named_buffers() if name in buffers}
    assert len(buffers) == 14
    assert not any(name in made.state_dict() for name in buffers)


def down_proj(dtype: torch.dtype) -> Any:
    made = ours(adapted("dora", dtype=dtype), "dora")
    return made.get_base_model().model.layers[0].mlp.down_proj


def test_a_pass_takes_no_norm_and_makes_nothing_wide() -> None:
    layer = down_proj(torch.bfloat16)
    wide: list[str] = []

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            out = func(*args, **kwargs or {})
            if isinstance(out, torch.Tensor) and out.dtype == torch.float32 and out.numel() >= 40 * layer.out_features:
                wide.append(func.name())
            return out

    x = torch.randn(1, 40, layer.in_features, dtype=torch.bfloat16)
    with torch.autocast("cpu", dtype=torch.bfloat16), Watch():
        layer(x)
    assert wide == []


@torch.no_grad()
def test_a_magnitude_near_the_norm_is_not_rounded_to_it() -> None:
    layer = down_proj(torch.bfloat16)
    x = torch.randn(1, 400, layer.in_features, dtype=torch.bfloat16)
    outputs = []
    for magnitude in (layer.norm, 1.001 * layer.norm):
        layer.lora_magnitude_vector["default"].weight.copy_(magnitude)
        outputs.append(layer(x).double())
    before, after = outputs
    assert float((after * before).sum() / before.square().sum()) == pytest.approx(1.001, abs=3e-4)
