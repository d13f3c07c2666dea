"""LoRA's products are computed with their layers, DoRA's norms once a step, and the numbers are PEFT's."""

from __future__ import annotations

import gc
import weakref
from pathlib import Path
from typing import Any

import pytest
import torch

from expert_cli.manifest.key import AdapterType, Quantization
from expert_cli.model.kernels.dequantize import dequantize_linears
from expert_cli.model.kernels.lora import fuse, refresh_norms
from expert_cli.model.layers import enable_activation_checkpointing
from tests import tiny
from tests.adapted import IDS, WAYS, adapted, distance, loaded, ours, step
from tests.kernel_counts import KernelCounter


def test_layers_that_read_one_input_share_the_product_and_its_gradient() -> None:
    """q, k, v; o; gate, up; down. No gradient of an input is added up outside the products but where a block begins."""
    made, groups = adapted(base=tiny.tiny_model(num_hidden_layers=1).to(torch.bfloat16)), (3, 1, 2, 1)
    assert fuse(made) == sum(groups)
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


def test_layers_that_read_something_else_are_computed_for_themselves() -> None:
    usual, made = adapted(), adapted()
    for model in (usual, made):
        for layer in model.get_base_model().model.layers:
            layer.self_attn.k_proj.register_forward_pre_hook(lambda _, args: (args[0] * 2,))
    assert distance(step(ours(made)), step(usual)) < 1e-6


@pytest.mark.parametrize("by", ["class", "hand"])
def test_a_layer_with_a_forward_of_its_own_is_asked(by: str) -> None:
    """As bitsandbytes' layers have one by their class, and those that accelerate puts hooks on by hand."""
    made = ours(adapted())
    layer: Any = made.get_base_model().model.layers[0].mlp.up_proj.base_layer
    rows: list[int] = []

    def own(x: torch.Tensor) -> torch.Tensor:
        rows.append(x.shape[-2])
        return torch.nn.functional.linear(x, layer.weight, layer.bias)

    if by == "class":
        layer.__class__ = type("Other", (torch.nn.Linear,), {"forward": lambda _, x: own(x)})
    else:
        layer.forward = own
    assert distance(step(made), step(adapted())) < 1e-6
    assert rows == [IDS.numel()]


@pytest.mark.parametrize("reentrant", [False, True], ids=["", "reentrant"])
def test_recomputed_layers_give_the_same_gradients(*, reentrant: bool) -> None:
    kept, recomputed = ours(adapted()), ours(adapted())
    enable_activation_checkpointing(recomputed.get_base_model(), "all", reentrant=reentrant)
    if reentrant:
        kept.get_base_model().enable_input_require_grads()
    assert distance(step(recomputed), step(kept)) == 0


def test_a_pass_that_broke_off_leaves_nothing_in_memory() -> None:
    """Out of memory between q and v: what v had ready would hold all layers before it."""
    made = ours(adapted())
    hidden: list[Any] = []

    def fail(_: Any, args: tuple[torch.Tensor, ...]) -> None:
        hidden.append(weakref.ref(args[0]))
        raise torch.OutOfMemoryError

    made.get_base_model().model.layers[1].self_attn.k_proj.register_forward_pre_hook(fail)
    with pytest.raises(torch.OutOfMemoryError):
        step(made)
    gc.collect()
    assert [known() for known in hidden] == [None]


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


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("kind", ["lora", "dora"])
def test_loss_and_gradients_are_bitwise_the_same(tmp_path: Path, kind: AdapterType, dtype: torch.dtype) -> None:
    """Of PEFT's LoRA and of our DoRA: a fused layer adds its products up before they are rounded."""
    folder = tiny.tiny_model_folder(tmp_path, dtype=torch.bfloat16)
    packed, unpacked = (loaded(folder, "int4", dtype) for _ in range(2))
    dequantize_linears(unpacked, dtype)
    models = [adapted(kind, base) for base in (packed, unpacked)]
    found, expected = (step(ours(model, kind) if kind == "dora" else model, dtype) for model in models)
    assert distance(found, expected) == 0
