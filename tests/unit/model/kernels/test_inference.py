"""Packed layers of a model that answers: the very numbers that it computes without, and nothing left behind."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import pytest
import torch
from peft import IA3Config, get_peft_model
from peft.tuners.lora import LoraLayer
from transformers import DynamicCache

from expert_cli.hardware.devices import DEVICES
from expert_cli.manifest.types import AdapterType
from expert_cli.model.adapter import add_adapter
from expert_cli.model.kernels.inference import quick_inference
from expert_cli.model.kernels.packed_weight import PackedWeight, packs_weights
from tests import run_blocks, tiny

LAYERS, HEAD = 14, 1
only_packed = pytest.mark.skipif(not packs_weights(), reason="no bf16 products of packed weights on this CPU")


def model(kind: AdapterType = "lora", *, dtype: torch.dtype = torch.bfloat16, **adapter: Any) -> Any:
    """Return a model to answer with, biases and all; its adapter changes something."""
    torch.manual_seed(0)
    made = add_adapter(
        tiny.tiny_model(attention_bias=True).to(dtype), replace(run_blocks.ADAPTER, type=kind, **adapter)
    )
    return filled(made).to(dtype).eval()


def filled(made: Any) -> Any:
    for name, parameter in made.named_parameters():
        if "lora_B" in name or "bias" in name or "ia3" in name:
            torch.nn.init.normal_(parameter, std=0.3)
    return made


@torch.no_grad()
def scores(made: Any) -> list[torch.Tensor]:
    """Return the scores of padded prompts and of three tokens more; rows enough that no product is a small one."""
    ids, mask = torch.arange(80 * 4).view(80, 4), torch.ones(80, 4, dtype=torch.int64)
    mask[1::2, :2] = 0
    cache, found = DynamicCache(config=made.config), []
    for _ in range(4):
        settings = {"attention_mask": mask, "past_key_values": cache, "logits_to_keep": 1}
        found.append(made(input_ids=ids, use_cache=True, **settings).logits)
        ids, mask = found[-1].argmax(-1), torch.cat([mask, mask.new_ones(80, 1)], 1)
    return found


def joined(made: Any) -> int:
    return sum("forward" in vars(module) for module in made.modules())


def same(one: list[torch.Tensor], other: list[torch.Tensor]) -> bool:
    return all(map(torch.equal, one, other))


@only_packed
@pytest.mark.parametrize(
    "made",
    [
        pytest.param(lambda: model(alpha=16), id="power-of-two"),
        pytest.param(lambda: model("rslora", alpha=11, rank=5, dropout=0.5), id="any-scaling"),
        pytest.param(lambda: model(target_modules=("q_proj", "v_proj", "down_proj")), id="some-layers"),
        pytest.param(lambda: tiny.tiny_model(attention_bias=True).bfloat16().eval(), id="no-adapter"),
    ],
)
def test_scores_are_bitwise_those_of_before(made: Any) -> None:
    made = made()
    before = scores(made)
    with quick_inference(made):
        assert joined(made) == LAYERS + HEAD
        assert same(scores(made), before)
    assert joined(made) == 0


@only_packed
def test_the_base_model_answers_inside_as_outside() -> None:
    made = model()
    adapted = scores(made)
    with made.disable_adapter():
        alone = scores(made)
    assert not same(adapted, alone)
    with quick_inference(made), quick_inference(made):
        with made.disable_adapter():
            assert same(scores(made), alone)
        assert same(scores(made), adapted)
        assert joined(made) == LAYERS + HEAD


def ia3() -> Any:
    config = IA3Config(target_modules=["k_proj", "down_proj"], feedforward_modules=["down_proj"], task_type="CAUSAL_LM")
    return filled(get_peft_model(tiny.tiny_model().bfloat16(), config)).bfloat16().eval()


def merged() -> Any:
    """Return a model with the adapter merged into its second layer alone."""
    made = model()
    for name, module in made.named_modules():
        if "layers.1" in name and isinstance(module, LoraLayer):
            module.merge()
    return made


@pytest.mark.parametrize(
    ("made", "count"),
    [
        pytest.param(lambda: model("dora"), HEAD, id="dora"),
        pytest.param(ia3, 14 - 4 + HEAD, id="ia3"),
        pytest.param(merged, LAYERS // 2 + HEAD, id="merged"),
        pytest.param(lambda: model(dtype=torch.float16), 0, id="fp16"),
    ],
)
def test_what_is_not_a_plain_product_is_left_alone(made: Any, count: int) -> None:
    made = made()
    before = scores(made)
    with quick_inference(made):
        assert joined(made) == count * packs_weights()
        assert same(scores(made), before)


def test_gradients_and_modes_are_those_of_before() -> None:
    made = model().train()
    ids = torch.arange(5, 25)[None]
    state = copy.deepcopy(made.state_dict())

    def gradients() -> list[torch.Tensor]:
        made.zero_grad()
        made(input_ids=ids, labels=ids).loss.backward()
        return [p.grad for p in made.parameters() if p.grad is not None]

    before = gradients()
    with quick_inference(made):
        assert same(gradients(), before)
        scores(made)
    assert same(gradients(), before)
    assert made.training
    assert {name: value.tolist() for name, value in made.state_dict().items()} == {
        name: value.tolist() for name, value in state.items()
    }


@only_packed
@pytest.mark.filterwarnings("ignore:TF32")
def test_nothing_is_packed_without_room_or_where_sums_would_be_others(monkeypatch: pytest.MonkeyPatch) -> None:
    made = tiny.tiny_model(hidden_size=512, intermediate_size=1024).bfloat16().eval()
    with torch.backends.mkldnn.flags(enabled=False):
        before = scores(made)
        with quick_inference(made):
            assert joined(made) == 0
            assert same(scores(made), before)
    with quick_inference(made):
        assert joined(made) == LAYERS + HEAD
    size = 2 * sum(parameter.numel() for parameter in made.parameters())
    monkeypatch.setattr(DEVICES["cpu"], "memory", lambda: (size, 10**12))
    with quick_inference(made):
        assert joined(made) == 0


@only_packed
@pytest.mark.parametrize("rows", [1, 33])
def test_a_packed_weight_gives_the_product_of_the_weight(rows: int) -> None:
    x, weight, bias = (torch.randn(shape).bfloat16() for shape in ((rows, 96), (80, 96), (80,)))
    assert torch.equal(PackedWeight(weight, bias).product(x), torch.nn.functional.linear(x, weight, bias))
    assert torch.equal(PackedWeight(weight).product(x), torch.nn.functional.linear(x, weight))
