"""Layers and LoRA products in one step: PEFT's own numbers, and PEFT's own way wherever it is more than a product."""

from __future__ import annotations

import gc
import weakref
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import PeftModel

from expert_cli.manifest.types import AdapterType, Quantization
from expert_cli.model.activation_checkpointing import enable_activation_checkpointing
from expert_cli.model.adapter import add_adapter
from expert_cli.model.kernels.fused_lora import _Products, fuse
from expert_cli.model.loading.quantize import load_base
from tests import run_blocks, tiny
from tests.kernel_counts import KernelCounter

IDS = torch.arange(5, 45)[None]
LAYERS = 14


def model(
    kind: AdapterType = "lora",
    *,
    dropout: float = 0.0,
    dtype: torch.dtype = torch.bfloat16,
    base: Any = None,
    targets: tuple[str, ...] = ("all-linear",),
) -> PeftModel:
    """Return a model whose adapter changes something, on `base` or on a tiny one of `dtype`."""
    torch.manual_seed(0)
    config = replace(run_blocks.ADAPTER, type=kind, dropout=dropout, target_modules=targets)
    made = add_adapter(base or tiny.tiny_model(attention_bias=True).to(dtype), config)
    for name, parameter in made.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(parameter, std=0.1)
    return made.train()


def fused(made: PeftModel) -> PeftModel:
    assert fuse(made) == sum(hasattr(module, "lora_A") for module in made.modules())
    return made.train()


def step(made: PeftModel, dtype: torch.dtype = torch.bfloat16) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """Return the loss and the gradients of a step; of one in fp32 without autocast, as training does it."""
    torch.manual_seed(1)
    with torch.autocast("cpu", dtype=dtype) if dtype != torch.float32 else nullcontext():
        loss = made(input_ids=IDS, labels=IDS, use_cache=False).loss
    loss.backward()
    gradients = {name: p.grad for name, p in made.named_parameters() if p.requires_grad}
    for parameter in made.parameters():
        parameter.grad = None
    return loss.detach(), gradients


def assert_as_near(truth: PeftModel, usual: PeftModel, one: PeftModel, dtype: torch.dtype = torch.bfloat16) -> None:
    """Check that the fused model is as near to the true loss and gradients as PEFT's own."""
    torch.manual_seed(1)
    true_loss = truth(input_ids=IDS, labels=IDS, use_cache=False).loss
    true_loss.backward()
    (usual_loss, usually), (loss, found) = step(usual, dtype), step(one, dtype)
    assert abs(loss - true_loss) <= abs(usual_loss - true_loss) + 1e-2
    for name, parameter in truth.named_parameters():
        if parameter.requires_grad:
            assert found[name].dtype == torch.float32
            off, usual_off = ((of[name] - parameter.grad).norm() for of in (found, usually))
            assert off <= usual_off + 0.03 * parameter.grad.norm(), name


@pytest.mark.parametrize("kind", ["lora", "rslora"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_loss_and_gradients_are_as_near_to_fp32_as_pefts(kind: AdapterType, dtype: torch.dtype) -> None:
    one = fused(model(kind, dtype=dtype))
    assert_as_near(model(kind, dtype=torch.float32), model(kind, dtype=dtype), one, dtype)


@pytest.mark.parametrize("quantization", ["none", "bf16", "int4"])
def test_in_fp32_they_are_pefts_own(tmp_path: Path, quantization: Quantization) -> None:
    folder = tiny.tiny_model_folder(tmp_path, attention_bias=True)
    settings: dict[str, Any] = {"dtype": torch.float32, "device": "cpu", "attention": "sdpa", "rope_scaling": {}}
    usual, one = (model(base=load_base(folder, quantization=quantization, **settings)) for _ in range(2))
    expected, found = step(usual, torch.float32), step(fused(one), torch.float32)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-6)
    down: Any = one.get_base_model().model.layers[0].mlp.down_proj
    assert "_Products" in down(torch.ones(1, down.in_features)).grad_fn.name()


@pytest.mark.parametrize("quantization", ["int4", "int8"])
def test_quantized_layers_are_as_near(tmp_path: Path, quantization: Quantization) -> None:
    folder = tiny.tiny_model_folder(tmp_path, dtype=torch.bfloat16, attention_bias=True)

    def loaded(dtype: torch.dtype) -> PeftModel:
        settings: dict[str, Any] = {"quantization": quantization, "attention": "sdpa", "rope_scaling": {}}
        return model(base=load_base(folder, dtype=dtype, device="cpu", **settings))

    assert_as_near(loaded(torch.float32), loaded(torch.bfloat16), fused(loaded(torch.bfloat16)))


@pytest.mark.parametrize("by", ["class", "hand"])
def test_a_layer_with_a_forward_of_its_own_is_asked(by: str) -> None:
    """As bitsandbytes' layers have one by their class, and those that accelerate puts hooks on by hand."""
    one, same = fused(model()), fused(model())
    layer: Any = one.get_base_model().model.layers[0].mlp.up_proj.base_layer
    rows: list[int] = []

    def own(x: torch.Tensor) -> torch.Tensor:
        rows.append(x.shape[-2])
        return torch.nn.functional.linear(x, layer.weight, layer.bias)

    if by == "class":
        layer.__class__ = type("Other", (torch.nn.Linear,), {"forward": lambda _, x: own(x)})
    else:
        layer.forward = own
    (loss, found), (expected, others) = step(one), step(same)
    assert rows == [IDS.numel()]
    torch.testing.assert_close(loss, expected, rtol=1e-2, atol=0)
    for name, gradient in others.items():
        assert torch.dist(found[name], gradient) <= 0.03 * gradient.norm(), name


@pytest.mark.parametrize("dropped", [False, True], ids=["", "dropout"])
@pytest.mark.parametrize("taken", [(True, True), (False, True)], ids=["all taken", "one not taken"])
def test_the_gradients_are_exact(taken: tuple[bool, bool], *, dropped: bool) -> None:
    torch.manual_seed(0)

    def draw(*shape: int) -> torch.Tensor:
        return torch.randn(shape, dtype=torch.float64, requires_grad=True)

    bases = [torch.nn.Linear(7, width).double().requires_grad_(requires_grad=False) for width in (4, 5)]
    factors = [draw(3, 7), draw(2, 7), draw(4, 3), draw(5, 2)]
    mask = torch.rand(2, 5, 7, dtype=torch.float64).round() * 2 if dropped else None

    def narrowed() -> list[torch.Tensor]:
        return [torch.cat(factors[:2]).detach(), *(b.detach() for b in factors[2:])]

    def products(x: torch.Tensor, *parameters: torch.Tensor) -> tuple[torch.Tensor, ...]:
        read = None if mask is None else x * mask
        found = _Products.apply(x, read, bases, 2.5, narrowed(), *parameters)
        return tuple(output for output, is_taken in zip(found, taken, strict=True) if is_taken)

    def plain(x: torch.Tensor, *parameters: torch.Tensor) -> tuple[torch.Tensor, ...]:
        read, (a, b) = x if mask is None else x * mask, (parameters[:2], parameters[2:])
        found = [base(x) + 2.5 * read @ a[n].t() @ b[n].t() for n, base in enumerate(bases)]
        return tuple(output for output, is_taken in zip(found, taken, strict=True) if is_taken)

    x = draw(2, 5, 7)
    mine, known = products(x, *factors), plain(x, *factors)
    changes = [torch.randn_like(output) for output in known]
    gradients = (torch.autograd.grad(of, (x, *factors), changes, allow_unused=True) for of in (mine, known))
    for found, expected in zip((*mine, *next(gradients)), (*known, *next(gradients)), strict=True):
        torch.testing.assert_close(
            0 * x.sum() if found is None else found, 0 * x.sum() if expected is None else expected
        )


def test_layers_that_read_one_input_share_the_product_and_its_gradient() -> None:
    """q, k, v; o; gate, up; down. No gradient of an input is added up outside the products but where a block begins."""
    made, groups = fused(model(base=tiny.tiny_model(num_hidden_layers=1).to(torch.bfloat16))), (3, 1, 2, 1)
    with KernelCounter() as forward, torch.autocast("cpu", dtype=torch.bfloat16):
        loss = made(input_ids=IDS, labels=IDS, use_cache=False).loss
    with KernelCounter() as backward:
        loss.backward()
    of_head, first_input = 1, groups[0] + 1  # nothing trained comes before the first layer
    products = forward.names["mm"] + forward.names["addmm_"]
    assert products == of_head + sum(2 * layers + 1 for layers in groups)
    products = backward.names["mm"] + backward.names["addmm_"]
    assert products == of_head + sum(3 * layers + 2 for layers in groups) - first_input
    assert forward.names["_to_copy"] < 2 * sum(groups), "the factors are narrowed at once, not one by one"


def test_what_was_stepped_is_what_is_read() -> None:
    made, usual = fused(model()), model()
    step(made)
    for of in (made, usual):
        for parameter in of.parameters():
            if parameter.requires_grad:
                parameter.data.mul_(3)  # as bitsandbytes' optimizers and a resume write, unseen by autograd
    assert abs(step(made)[0] - step(usual)[0]) < 1e-2 < abs(step(made)[0] - step(model())[0])


@pytest.mark.parametrize("reentrant", [False, True], ids=["", "reentrant"])
def test_recomputed_layers_give_the_same_gradients(*, reentrant: bool) -> None:
    kept, recomputed = fused(model()).train(), fused(model()).train()
    enable_activation_checkpointing(recomputed.get_base_model(), "all", reentrant=reentrant)
    if reentrant:
        kept.get_base_model().enable_input_require_grads()
    (loss, gradients), (again, same) = step(kept), step(recomputed)
    assert torch.equal(loss, again)
    assert all(torch.equal(gradients[name], same[name]) for name in gradients)


def test_a_pass_that_broke_off_leaves_nothing_in_memory() -> None:
    """Out of memory between q and v: what v had ready would hold all layers before it."""
    made = fused(model())
    hidden: list[Any] = []

    def fail(_: Any, args: tuple[torch.Tensor, ...]) -> None:
        hidden.append(weakref.ref(args[0]))
        raise torch.OutOfMemoryError

    made.get_base_model().model.layers[1].self_attn.k_proj.register_forward_pre_hook(fail)
    with pytest.raises(torch.OutOfMemoryError):
        step(made)
    gc.collect()
    assert [known() for known in hidden] == [None]


def test_layers_that_read_something_else_are_computed_for_themselves() -> None:
    def crossed(made: PeftModel) -> PeftModel:
        for layer in made.get_base_model().model.layers:
            layer.self_attn.k_proj.register_forward_pre_hook(lambda _, args: (args[0] * 2,))
        return made

    truth, usual, one = (crossed(model(dtype=d)) for d in (torch.float32, torch.bfloat16, torch.bfloat16))
    assert_as_near(truth, usual, fused(one))


def test_what_is_more_than_a_product_is_left_alone() -> None:
    made = model("dora")
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


def test_every_layer_draws_its_own_dropout_as_with_peft() -> None:
    truth, usual, one = (model(dropout=0.5, dtype=d).train() for d in (torch.float32, torch.bfloat16, torch.bfloat16))
    without = step(one.eval())[0]
    assert_as_near(truth, usual, fused(one).train())
    assert abs(step(one)[0] - without) > 1e-3
    assert torch.equal(step(one.eval())[0], step(one)[0])
