"""NF4 weights that are unpacked once give the same numbers, bit for bit."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from bitsandbytes.nn import Linear4bit, Linear8bitLt

from expert_cli.data.packing.batches import Collator
from expert_cli.manifest.types import AdapterType, Quantization
from expert_cli.model.adapter import add_adapter
from expert_cli.model.kernels.chunked_loss import CausalLoss
from expert_cli.model.kernels.dequantize import copy_bytes, dequantize_linears, frozen_weight
from expert_cli.model.kernels.dora import patch_dora
from expert_cli.model.kernels.fused_lora import fuse
from expert_cli.model.loading.quantize import load_base
from tests import run_blocks, tiny


def loss_and_gradients(
    folder: Path, adapter: AdapterType, dtype: torch.dtype, *, copy: bool, change: Any
) -> tuple[torch.Tensor, list[torch.Tensor]]:
    base = load_base(folder, quantization="int4", dtype=dtype, device="cpu", attention="sdpa", rope_scaling={})
    packed = [m for m in base.modules() if isinstance(m, Linear4bit)]
    if copy:
        assert copy_bytes(base) == sum(2 * m.in_features * m.out_features for m in packed)
        assert dequantize_linears(base, dtype) == len(packed) == 14
        assert not any(isinstance(m, Linear4bit) for m in base.modules())
    torch.manual_seed(0)
    model = add_adapter(base, replace(run_blocks.ADAPTER, type=adapter))
    if change:
        change(model)
    ids = torch.arange(5, 25)
    batch = Collator(0, "padded")([{"input_ids": ids, "labels": ids, "position_ids": torch.arange(20)}])
    batch.pop("real_tokens")
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=dtype == torch.bfloat16):
        loss = CausalLoss(model)(**batch)
    loss.backward()
    return loss.detach(), [p.grad for p in model.parameters() if p.requires_grad]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize(
    ("adapter", "change"), [("lora", None), ("lora", fuse), ("dora", patch_dora)], ids=["lora", "lora, fused", "dora"]
)
def test_loss_and_gradients_are_bitwise_the_same(
    tmp_path: Path, adapter: AdapterType, dtype: torch.dtype, change: Any
) -> None:
    folder = tiny.tiny_model_folder(tmp_path, dtype=torch.bfloat16)
    packed_loss, packed = loss_and_gradients(folder, adapter, dtype, copy=False, change=change)
    copied_loss, copied = loss_and_gradients(folder, adapter, dtype, copy=True, change=change)
    assert torch.equal(packed_loss, copied_loss)
    assert all(torch.equal(a, b) for a, b in zip(packed, copied, strict=True))


@pytest.mark.parametrize("quantization", ["int4", "int8"])
def test_an_unpacked_weight_is_what_its_layer_multiplies_with(tmp_path: Path, quantization: Quantization) -> None:
    folder = tiny.tiny_model_folder(tmp_path, dtype=torch.bfloat16)
    settings: dict[str, Any] = {"attention": "sdpa", "rope_scaling": {}, "device": "cpu"}
    base = load_base(folder, quantization=quantization, dtype=torch.float32, **settings)
    layers = [module for module in base.modules() if isinstance(module, Linear4bit | Linear8bitLt)]
    assert len(layers) == 14
    for layer in layers:
        one_at_a_time = torch.eye(layer.in_features)  # which int8 takes without rounding it
        found = frozen_weight(layer, torch.float32)
        torch.testing.assert_close(found, layer(one_at_a_time).t(), rtol=1e-4, atol=0)
