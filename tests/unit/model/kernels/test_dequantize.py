"""NF4 weights that are unpacked once give the same numbers, bit for bit."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from expert_cli.manifest.key import AdapterType
from expert_cli.model.kernels.dequantize import dequantize_linears
from tests import tiny
from tests.adapted import adapted, distance, loaded, ours, step


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("kind", ["lora", "dora"])
def test_loss_and_gradients_are_bitwise_the_same(tmp_path: Path, kind: AdapterType, dtype: torch.dtype) -> None:
    """Of PEFT's LoRA and of our DoRA: a fused layer adds its products up before they are rounded."""
    folder = tiny.tiny_model_folder(tmp_path, dtype=torch.bfloat16)
    packed, unpacked = (loaded(folder, "int4", dtype) for _ in range(2))
    assert dequantize_linears(unpacked, dtype) == 14
    models = [adapted(kind, base) for base in (packed, unpacked)]
    found, expected = (step(ours(model, kind) if kind == "dora" else model, dtype) for model in models)
    assert distance(found, expected) == 0
