"""Every attention back end that this machine can run is plain softmax attention, on documents that lie end to end."""

from __future__ import annotations

import itertools
from typing import Any, get_args

import pytest
import torch
from transformers import AttentionInterface, MistralConfig, MistralForCausalLM

from expert_cli.errors import InputError
from expert_cli.hardware import machine
from expert_cli.manifest.keys.compute import Attention, DeviceName
from expert_cli.manifest.types import Dtype
from expert_cli.model.kernels import attention
from expert_cli.model.kernels.attention_backends import (
    BACKENDS,
    AttentionBackend,
    attention_backend,
    choose_attention,
)
from tests import tiny
from tests.machines import CPU, H200, T4

LENGTHS = (5, 1, 9, 3)
LONG = (3, 520, 8)
"""Beyond 512 tokens a CPU attends in another way."""


def mistral() -> Any:
    torch.manual_seed(0)
    return MistralForCausalLM(MistralConfig(**tiny.SHAPE, sliding_window=4))


MODELS = {"llama": tiny.tiny_model, "qwen3": lambda: tiny.tiny_model("qwen3"), "mistral, window 4": mistral}


def where(backend: AttentionBackend) -> tuple[DeviceName, Dtype]:
    """Return the device and the best dtype that this machine runs a back end in; skips where there is none."""
    here, devices = machine.inspect(), ("cuda", "cpu") if torch.cuda.is_available() else ("cpu",)
    places = list(itertools.product(devices, ("fp32", "bf16")))
    found = next((place for place in places if not backend.lacks(*place, here)), None)
    if found is None:
        pytest.skip(backend.lacks(*places[-1], here))
    return found


@pytest.mark.parametrize("lengths", [LENGTHS, LONG], ids=["short", "long"])
@pytest.mark.parametrize("make", MODELS.values(), ids=MODELS.keys())
@pytest.mark.parametrize("backend", BACKENDS, ids=lambda backend: backend.name)
def test_packed_logits_are_those_of_the_documents_alone(
    backend: AttentionBackend, make: Any, lengths: tuple[int, ...]
) -> None:
    device, dtype = where(backend)
    half = dtype != "fp32"
    model = make().eval().to(device, torch.bfloat16 if half else torch.float32)
    ids = torch.randint(384, (1, sum(lengths)), generator=torch.Generator().manual_seed(1)).to(device)
    positions = torch.cat([torch.arange(n) for n in lengths])[None].to(device)
    starts = torch.tensor([0, *torch.tensor(lengths).cumsum(0).tolist()], dtype=torch.int32, device=device)
    with torch.no_grad():
        attention.use(model, "eager")
        alone = torch.cat([model(input_ids=part).logits for part in ids.split(lengths, 1)], 1)
        attention.use(model, backend.name)
        extra = attention.varlen_kwargs(starts, max(lengths)) if backend.layout == "packed" else {}
        packed = model(input_ids=ids, position_ids=positions, use_cache=False, **extra).logits
    torch.testing.assert_close(packed, alone, rtol=0, atol=0.05 if half else 2e-6)


def test_every_entry_is_one_that_transformers_knows() -> None:
    known = {"eager", *AttentionInterface().valid_keys()}
    assert [backend.name for backend in BACKENDS if backend.registered not in known] == []
    assert (
        len({backend.name for backend in BACKENDS})
        == len({backend.registered for backend in BACKENDS})
        == len(BACKENDS)
    )


@pytest.mark.parametrize("here", [CPU, H200, T4], ids=["cpu", "H200", "T4"])
@pytest.mark.parametrize("dtype", get_args(Dtype))
@pytest.mark.parametrize("asked", get_args(Attention))
def test_there_is_one_for_every_setting_and_machine(asked: Attention, dtype: Dtype, here: Any) -> None:
    device: DeviceName = "cuda" if here.gpus else "cpu"
    chosen, reason = choose_attention(asked, device, dtype, here)
    assert chosen.lacks(device, dtype, here) == ""
    assert chosen.reason in reason


def test_a_name_that_is_none_is_told_with_those_there_are() -> None:
    with pytest.raises(InputError, match='no attention back end "flex"') as raised:
        attention.use(tiny.tiny_model(), "flex")
    assert all(backend.name in raised.value.hint for backend in BACKENDS)
    assert attention_backend("sdpa").layout == "padded"
