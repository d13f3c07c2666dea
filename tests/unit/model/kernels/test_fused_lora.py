"""LoRA's product added in place: PEFT's own numbers, and PEFT's own way wherever it is more than a product."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from peft import PeftModel

from expert_cli.model.adapter import add_adapter
from expert_cli.model.kernels.fused_lora import fuse
from tests import run_blocks, tiny

IDS = torch.arange(5, 45)[None]
LAYERS = 14


def model(kind: Any = "lora", dropout: float = 0.0, *, dtype: torch.dtype = torch.bfloat16) -> PeftModel:
    torch.manual_seed(0)
    made = add_adapter(tiny.tiny_model().to(dtype), replace(run_blocks.ADAPTER, type=kind, dropout=dropout))
    for name, parameter in made.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(parameter, std=0.1)
    return made


def step(made: PeftModel) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = made(input_ids=IDS, labels=IDS, use_cache=False).loss
    loss.backward()
    return loss.detach(), {name: p.grad for name, p in made.named_parameters() if p.requires_grad}


@pytest.mark.parametrize("kind", ["lora", "rslora"])
def test_loss_and_gradients_are_as_near_to_fp32_as_pefts(kind: str) -> None:
    truth = model(kind, dtype=torch.float32)
    truth_loss = truth(input_ids=IDS, labels=IDS, use_cache=False).loss
    truth_loss.backward()
    usual_loss, usual = step(model(kind))
    fused = model(kind)
    assert fuse(fused) == LAYERS
    loss, gradients = step(fused)
    assert abs(loss - truth_loss) <= abs(usual_loss - truth_loss) + 1e-2
    for name, parameter in truth.named_parameters():
        if parameter.requires_grad:
            assert gradients[name].dtype == torch.float32
            off, usually = ((found[name] - parameter.grad).norm() for found in (gradients, usual))
            assert off <= 1.5 * usually + 0.01 * parameter.grad.norm(), name


def test_the_product_itself_is_exact() -> None:
    from expert_cli.model.kernels.fused_lora import _AddProduct

    torch.manual_seed(0)
    x, a, b, y = (torch.randn(n, m, dtype=torch.float64) for n, m in ((5, 7), (3, 7), (4, 3), (5, 4)))
    x, a, b, y = (part.requires_grad_() for part in (x, a, b, y))
    change = torch.randn(5, 4, dtype=torch.float64)
    expected = torch.autograd.grad(y + 2.5 * x @ a.t() @ b.t(), (y, x, a, b), change)
    found = torch.autograd.grad(_AddProduct.apply(y.clone(), x, a, b, 2.5), (y, x, a, b), change)
    for mine, known in zip(found, expected, strict=True):
        torch.testing.assert_close(mine.double(), known, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("kind", ["dora", "lokr"])
def test_what_is_more_than_a_product_is_left_alone(kind: str) -> None:
    made = model(kind)
    before, _ = step(made)
    assert fuse(made) == 0
    after, _ = step(made)
    assert torch.equal(before, after)


def test_without_autocast_and_without_the_adapter_peft_answers() -> None:
    made = model()
    with torch.no_grad():
        before = made(input_ids=IDS).logits
        with made.disable_adapter():
            base = made(input_ids=IDS).logits
        fuse(made)
        assert torch.equal(made(input_ids=IDS).logits, before)
        with made.disable_adapter(), torch.autocast("cpu", dtype=torch.bfloat16):
            assert torch.equal(made(input_ids=IDS).logits, base)
    assert not torch.equal(before, base)


def test_dropout_reaches_the_product() -> None:
    made = model(dropout=0.5).train()
    fuse(made)
    losses = {step(made)[0].item() for _ in range(4)}
    assert len(losses) > 1
    made.eval()
    assert len({step(made)[0].item() for _ in range(2)}) == 1
