"""CUDA where there is none: tensors that have a shape, a type and the device "cuda", and no data, forward and backward.

torch's own FakeTensorMode does that on a CPU build too. What looks at the card itself, and not at tensors, is answered here.
A step that asks a tensor for its value, which on a GPU makes the host wait, ends with torch's error; other waits are counted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

import bitsandbytes
import peft.tuners.lora.dora
import torch
import torch.cuda.amp.common
from bitsandbytes.functional import quantize_4bit
from torch._subclasses.fake_tensor import FakeTensorMode, unset_fake_temporarily

from expert_cli.model.kernels.dequantize import frozen_weight
from tests.pretended_cuda import pretended_cuda

DEVICE = torch.device("cuda", 0)


@dataclass
class FakeCuda:
    """A card that is not there. free_bytes: of its memory. waits: the calls that made the host wait for it, by name."""

    mode: FakeTensorMode
    free_bytes: int = 2**40
    waits: list[str] = field(default_factory=list)

    @contextmanager
    def real(self) -> Iterator[None]:
        """Compute with numbers, on the CPU."""
        with unset_fake_temporarily(), torch.device("cpu"):
            yield

    def place(self, batch: Mapping[str, Any]) -> dict[str, Any]:
        """Return a real batch as it would lie on the card."""
        return {
            name: self.mode.from_tensor(value).to(DEVICE, non_blocking=True)
            for name, value in batch.items()
            if isinstance(value, torch.Tensor)
        } | {name: value for name, value in batch.items() if not isinstance(value, torch.Tensor)}


@contextmanager
def fake_cuda() -> Iterator[FakeCuda]:
    """Make every tensor a fake one, and what is made without a device one on the card."""
    with ExitStack() as stack:
        stack.enter_context(pretended_cuda())
        # the engine's threads belong to real cards
        stack.enter_context(torch.autograd.set_multithreading_enabled(False))
        card = FakeCuda(stack.enter_context(FakeTensorMode(allow_non_fake_inputs=True)))
        for place, name, answer in _answers(card):
            stack.enter_context(mock.patch.object(place, name, answer))
        # bitsandbytes keeps its tables on the device on which they were first asked for
        stack.enter_context(mock.patch.dict(bitsandbytes.functional.name2qmap, clear=True))
        stack.enter_context(DEVICE)
        yield card


def _answers(card: FakeCuda) -> list[tuple[Any, str, Any]]:
    """Return what is asked of the card itself, and what it answers."""
    return [
        (torch.cuda.amp.common, "amp_definitely_not_available", lambda: False),
        (torch.cuda, "is_bf16_supported", lambda *_, **__: True),
        (torch.cuda, "current_device", lambda: 0),
        (torch.cuda, "device_count", lambda: 1),
        (torch.cuda, "mem_get_info", lambda *_: (card.free_bytes, card.free_bytes)),
        (torch.cuda, "synchronize", lambda *_: card.waits.append("synchronize")),
        (torch.utils, "swap_tensors", _set_data),
        # making DoRA's layers, PEFT copies them, and knows NF4 by the class of its tensors, which fake ones have not
        (peft.tuners.lora.dora, "deepcopy", lambda layer: layer),
        (peft.tuners.lora.dora, "dequantize_module_weight", lambda layer: frozen_weight(layer, torch.float32)),
        (bitsandbytes.functional, "create_dynamic_map", _really(bitsandbytes.functional.create_dynamic_map)),
    ]


def _set_data(parameter: torch.Tensor, converted: torch.Tensor) -> None:
    """Change what a parameter holds: `Module.to` swaps fake ones, which nothing may refer to weakly, as fake mode does."""
    parameter.data = converted.data


def _really(function: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """Return a function that computes with numbers, as bitsandbytes does for its table of 256 values."""

    def made(*args: Any, **settings: Any) -> torch.Tensor:
        with unset_fake_temporarily(), torch.device("cpu"):
            return function(*args, **settings)

    return made


def quantize_to_nf4(model: Any, dtype: torch.dtype = torch.bfloat16) -> None:
    """Make Linear4bit of every linear layer but the head, as loading does with real weights; `model` in place.

    Params4bit, a kind of tensor itself, cannot be made of a fake one: a plain parameter carries what it carries.
    """
    head = model.get_output_embeddings()
    for parent in list(model.modules()):
        for name, layer in list(parent.named_children()):
            if isinstance(layer, torch.nn.Linear) and layer is not head:
                setattr(parent, name, _nf4(layer, dtype))
    model.is_loaded_in_4bit = True


def _nf4(layer: torch.nn.Linear, dtype: torch.dtype) -> Any:
    with unset_fake_temporarily():
        quantized: Any = bitsandbytes.nn.Linear4bit(
            layer.in_features, layer.out_features, bias=False, device="meta", compute_dtype=dtype, quant_type="nf4"
        )
    packed, state = quantize_4bit(layer.weight.data, compress_statistics=True, quant_type="nf4")
    weight: Any = torch.nn.Parameter(packed, requires_grad=False)
    weight.quant_state, weight.compress_statistics, weight.quant_type = state, True, "nf4"
    weight.to = lambda *_: weight  # Params4bit's own keeps it one; packed weights may wait on the host
    quantized._parameters["weight"], quantized.quant_state = weight, state
    return quantized
