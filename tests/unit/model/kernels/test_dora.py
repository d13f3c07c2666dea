"""DoRA with norms taken once a step: PEFT's own numbers, in training and answering, and PEFT's way for all else."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import PeftModel
from torch.utils._python_dispatch import TorchDispatchMode

from expert_cli.manifest.types import Quantization
from expert_cli.model.adapter import add_adapter
from expert_cli.model.kernels.dora import patch_dora, refresh_norms
from expert_cli.model.loading.quantize import load_base
from tests import run_blocks, tiny

IDS = torch.arange(5, 45)[None]


def model(base: Any = None, dropout: float = 0.0) -> PeftModel:
    """Return a model with DoRA on every linear layer, its factors and magnitudes far from those of the beginning."""
    torch.manual_seed(0)
    base = tiny.tiny_model() if base is None else base
    made = add_adapter(base, replace(run_blocks.ADAPTER, type="dora", dropout=dropout, target_modules=("all-linear",)))
    for name, parameter in made.named_parameters():
        if "lora_B" in name or name.endswith("bias"):
            torch.nn.init.normal_(parameter, std=0.1)
        if "magnitude" in name:
            parameter.data *= 1 + 0.3 * torch.rand_like(parameter)
    return made.train()


def patched(made: PeftModel) -> PeftModel:
    assert patch_dora(made) == 14
    return made


def step(made: PeftModel, dtype: torch.dtype = torch.float32) -> dict[str, torch.Tensor]:
    """Return the loss and the gradients of a step."""
    torch.manual_seed(1)
    with torch.autocast("cpu", dtype=dtype) if dtype == torch.bfloat16 else nullcontext():
        loss = made(input_ids=IDS, labels=IDS, use_cache=False).loss
    loss.backward()
    found = {name: p.grad for name, p in made.named_parameters() if p.grad is not None}
    made.zero_grad()
    return {"loss": loss.detach()} | found


def distance(found: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> float:
    """Return how far the loss or the gradient is from the one expected, relative to that."""
    assert found.keys() == expected.keys()
    (loss, *gradients), (true_loss, *true) = ([one.flatten() for one in of.values()] for of in (found, expected))
    pairs = (loss, true_loss), (torch.cat(gradients), torch.cat(true))
    return max(float((one - other).norm() / other.norm()) for one, other in pairs)


@pytest.mark.parametrize("dropout", [0.0, 0.5], ids=["", "dropout"])
@pytest.mark.parametrize("bias", [False, True], ids=["", "bias"])
@pytest.mark.parametrize("architecture", ["llama", "qwen3"])
def test_loss_and_gradients_are_pefts(architecture: tiny.Architecture, *, bias: bool, dropout: float) -> None:
    for dtype, rounding in ((torch.float64, 1e-14), (torch.float32, 1e-6)):
        usual, ours = (model(tiny.tiny_model(architecture, attention_bias=bias), dropout).to(dtype) for _ in range(2))
        expected = step(usual)
        assert distance(step(patched(ours)), expected) < rounding
    assert (abs(step(ours.eval())["loss"] - expected["loss"]) > 1e-3) == (dropout > 0)


@pytest.mark.parametrize("quantization", ["bf16", "int4", "int8"])
def test_narrow_and_quantized_they_are_as_near_to_fp32_as_pefts(tmp_path: Path, quantization: Quantization) -> None:
    folder = tiny.tiny_model_folder(tmp_path, dtype=torch.bfloat16, attention_bias=True)

    def loaded(dtype: torch.dtype) -> PeftModel:
        settings: dict[str, Any] = {"quantization": quantization, "attention": "sdpa", "rope_scaling": {}}
        return model(load_base(folder, dtype=dtype, device="cpu", **settings))

    truth = step(loaded(torch.float32))
    usual, ours = loaded(torch.bfloat16), patched(loaded(torch.bfloat16))
    off, usual_off = (distance(step(made, torch.bfloat16), truth) for made in (ours, usual))
    assert off < 1.1 * usual_off


def test_norms_are_those_of_the_factors_when_they_were_last_taken() -> None:
    usual, ours = model(), patched(model())
    buffers = {name: buffer.data_ptr() for name, buffer in ours.named_buffers() if name.endswith("norm")}
    for made in (usual, ours):
        for name, parameter in made.named_parameters():
            if "lora_" in name:
                parameter.data.mul_(1.5)
    expected = step(usual)
    assert distance(step(ours), expected) > 1e-3, "a stale norm would not be seen"
    refresh_norms(ours)
    assert distance(step(ours), expected) < 1e-5
    assert buffers == {name: buffer.data_ptr() for name, buffer in ours.named_buffers() if name in buffers}
    assert len(buffers) == 14
    assert not any(name in ours.state_dict() for name in buffers)


def test_a_pass_takes_no_norm_and_makes_nothing_wide() -> None:
    made = patched(model(tiny.tiny_model(attention_bias=True).to(torch.bfloat16)))
    layer: Any = made.get_base_model().model.layers[0].mlp.down_proj
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
    made = patched(model(tiny.tiny_model().to(torch.bfloat16)))
    layer: Any = made.get_base_model().model.layers[0].mlp.down_proj
    x = torch.randn(1, 400, layer.in_features, dtype=torch.bfloat16)
    outputs = []
    for magnitude in (layer.norm, 1.001 * layer.norm):
        layer.lora_magnitude_vector["default"].weight.copy_(magnitude)
        outputs.append(layer(x).double())
    before, after = outputs
    assert float((after * before).sum() / before.square().sum()) == pytest.approx(1.001, abs=1e-4)


@torch.no_grad()
def test_answers_use_the_norms_and_all_else_is_pefts_own_way() -> None:
    usual, ours = model().eval(), patched(model()).eval()
    expected = usual(input_ids=IDS).logits
    torch.testing.assert_close(ours(input_ids=IDS).logits, expected, rtol=1e-5, atol=1e-5)
    with usual.disable_adapter(), ours.disable_adapter():
        assert torch.equal(ours(input_ids=IDS).logits, usual(input_ids=IDS).logits)
    ours.get_base_model().model.layers[0].mlp.down_proj.norm.fill_(1.0)
    assert not torch.allclose(ours(input_ids=IDS).logits, expected, atol=1e-3)
    for made in (usual, ours):
        made.merge_adapter()
    assert torch.equal(ours(input_ids=IDS).logits, usual(input_ids=IDS).logits)
    for made in (usual, ours):
        made.unmerge_adapter()
        made.add_adapter("other", made.peft_config["default"])
        made.base_model.set_adapter(["default", "other"])
    assert torch.equal(ours(input_ids=IDS).logits, usual(input_ids=IDS).logits)


def test_a_model_without_dora_has_no_norm() -> None:
    made = add_adapter(tiny.tiny_model(), run_blocks.ADAPTER)
    refresh_norms(made)
    assert patch_dora(made) == 0
    refresh_norms(made)
    assert not any(name.endswith("norm") for name, _ in made.named_buffers())
