"""Our forward and backward passes of LoRA, rsLoRA and DoRA layers give PEFT's numbers, whatever the weights are held in."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from expert_cli.manifest.key import AdapterType, Quantization
from expert_cli.model.kernels.lora import refresh_norms
from tests import tiny
from tests.adapted import IDS, WAYS, adapted, distance, loaded, ours, step


@pytest.mark.parametrize("quantization", ["none", "int4", "int8"])
@pytest.mark.parametrize("dropout", [0.0, 0.5], ids=["", "dropout"])
@pytest.mark.parametrize("kind", WAYS)
def test_in_fp32_loss_and_gradients_are_pefts(
    tmp_path: Path, kind: AdapterType, dropout: float, quantization: Quantization
) -> None:
    """Also once the factors were written to as optimizers and a resume do it, unseen by autograd."""
    folder = tiny.tiny_model_folder(tmp_path, attention_bias=True)
    usual, made = (adapted(kind, loaded(folder, quantization, torch.float32), dropout=dropout) for _ in range(2))
    expected = step(usual)
    assert distance(step(ours(made, kind)), expected) < 1e-6
    for of in (made, usual):
        for name, parameter in of.named_parameters():
            if "lora_" in name:
                parameter.data.mul_(1.1)
    refresh_norms(made)
    assert distance(step(usual), expected) > 1e-3
    assert distance(step(made), step(usual)) < 1e-6
    assert (abs(step(made.eval())["loss"] - step(usual)["loss"]) > 1e-4) == (dropout > 0)


NARROW: list[tuple[torch.dtype, Quantization]] = [
    *((torch.bfloat16, quantization) for quantization in ("none", "int4", "int8")),
    (torch.float16, "none"),
]


@pytest.mark.parametrize(("dtype", "quantization"), NARROW, ids=str)
@pytest.mark.parametrize("kind", WAYS)
def test_narrow_they_are_as_near_to_fp32_as_pefts(
    tmp_path: Path, kind: AdapterType, dtype: torch.dtype, quantization: Quantization
) -> None:
    folder = tiny.tiny_model_folder(tmp_path, dtype=dtype, attention_bias=True)
    truth, usual, made = (adapted(kind, loaded(folder, quantization, of)) for of in (torch.float32, dtype, dtype))
    true, found = step(truth), step(ours(made, kind), dtype)
    assert {gradient.dtype for gradient in found.values()} == {torch.float32}
    assert distance(found, true) < 1.2 * distance(step(usual, dtype), true)


@torch.no_grad()
@pytest.mark.parametrize("kind", WAYS)
def test_off_merged_and_beside_another_adapter_they_are_pefts_own(kind: AdapterType) -> None:
    usual, made = adapted(kind).eval(), ours(adapted(kind), kind).eval()

    def assert_equal() -> None:
        assert torch.equal(made(input_ids=IDS).logits, usual(input_ids=IDS).logits)

    with usual.disable_adapter(), made.disable_adapter():
        assert_equal()
    for model in (usual, made):
        model.merge_adapter()
    assert_equal()
    for model in (usual, made):
        model.unmerge_adapter()
        model.add_adapter("other", model.peft_config["default"])
        model.base_model.set_adapter(["default", "other"])
    assert_equal()
