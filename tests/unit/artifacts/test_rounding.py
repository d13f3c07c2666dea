"""Written weights are held against what rounding them may do: all of it passes, anything else does not."""

from __future__ import annotations

import gguf
import numpy as np
import pytest
import torch

from expert_cli.artifacts.rounding import StoredType, compare_logits, last_logits, step
from tests import tiny

PROMPTS = [list(range(3, 40)), [7, 8, 9]]
KINDS: tuple[StoredType, ...] = ("bf16", "f16", "q8_0")


def rounded(value: torch.Tensor, kind: StoredType) -> torch.Tensor:
    if kind == "q8_0":
        packed = gguf.quants.quantize(value.numpy(), gguf.GGMLQuantizationType.Q8_0)
        return torch.from_numpy(np.array(gguf.quants.dequantize(packed, gguf.GGMLQuantizationType.Q8_0)))
    return value.to(torch.bfloat16 if kind == "bf16" else torch.float16).float()


@pytest.mark.parametrize("kind", KINDS)
def test_a_step_is_twice_the_largest_error(kind: StoredType) -> None:
    """Of the smallest values too, which f16 numbers reach no more."""
    values = torch.randn(64, 256, generator=torch.Generator().manual_seed(1)) * torch.logspace(-6, 2, 64)[:, None]
    shares = (rounded(values, kind) - values).abs() / step(values, kind)
    assert 0.4 < float(shares.max()) <= 0.5 + 1e-6


def stored(kind: StoredType) -> torch.nn.Module:
    model = tiny.tiny_model()
    with torch.no_grad():
        for value in model.parameters():
            if value.ndim > 1 or kind == "bf16":
                value.copy_(rounded(value, kind))
    return model


@pytest.mark.parametrize("kind", KINDS)
def test_rounding_passes(kind: StoredType) -> None:
    found = compare_logits(last_logits(tiny.tiny_model(), PROMPTS), stored(kind), PROMPTS, kind)
    assert found.is_rounding
    assert found.found == pytest.approx(found.rounding, rel=0.7)


@pytest.mark.parametrize("kind", KINDS)
def test_a_wrong_matrix_does_not(kind: StoredType) -> None:
    """One of fourteen, its rows in another order."""
    model = stored(kind)
    weight = model.get_parameter("model.layers.0.mlp.up_proj.weight")
    with torch.no_grad():
        weight.copy_(weight.flip(0))
    assert not compare_logits(last_logits(tiny.tiny_model(), PROMPTS), model, PROMPTS, kind).is_rounding


def test_what_is_no_number_does_not() -> None:
    model = stored("f16")
    with torch.no_grad():
        model.get_parameter("model.norm.weight").fill_(float("nan"))
    assert not compare_logits(last_logits(tiny.tiny_model(), PROMPTS), model, PROMPTS, "f16").is_rounding
