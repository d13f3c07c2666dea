"""Linear layers of a model that answers on a CPU: weights packed ahead, layers and LoRA in few products, bit for bit the same.

torch hands oneDNN a bf16 weight as it lies, and every product lays it out anew, which for few rows takes as long as the
product itself. Here that is done once. Layers that read one input are one product, the factors A of their LoRA below them:

    (W_1; W_2; A_1; A_2) x = y_1 | y_2 | a_1 | a_2        y_i + s B_i a_i for all i: one product with diag(B_1, B_2)

No sum gets another order and nothing is rounded elsewhere. That oneDNN sums so on this CPU is tried with random numbers for
each form of layers; where it does not, they stay as they are. So do fp32 layers, packed 4-bit ones, DoRA and its like, and
those of a model in training, whose LoRA is in fp32. Products of at most `SMALL` multiplications torch keeps from oneDNN, k
and v of one row for one; of these one number in 100,000 is rounded otherwise here, for one row as for many.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from math import frexp
from typing import Any

import torch
from peft.tuners.lora import LoraLayer
from peft.tuners.tuners_utils import BaseTunerLayer

from expert_cli.hardware.devices import DEVICES
from expert_cli.model.kernels.fused_lora import SHARING
from expert_cli.model.kernels.joint_layers import JointLayers
from expert_cli.model.kernels.packed_weight import PackedWeight, packs_weights

SMALL = 16**3
"""Multiplications of a product that torch computes without oneDNN at most."""
TRIED = (1, 2, 16, 64, 256)
"""Rows of input that a form of layers is tried with, where none of its products is small then."""
ROOM = 2
"""The packed copies are made where so many times their size is free."""


@contextmanager
def quick_inference(model: Any) -> Iterator[None]:
    """Let a model on a CPU compute without gradients faster meanwhile, with the same results.

    Nothing is changed on other devices. Weights must not change inside; `disable_adapter()` may be used. Inside another
    such block it does nothing.
    """
    if model.device.type != "cpu" or getattr(model, "_is_quick", False):
        yield
        return
    base = model.get_base_model() if hasattr(model, "get_base_model") else model
    with ExitStack() as stack:
        model._is_quick = True
        stack.callback(delattr, model, "_is_quick")
        groups = list(_groups(base))
        if packs_weights() and ROOM * 2 * sum(map(_numbers, groups)) <= DEVICES["cpu"].memory()[0]:
            tried: dict[Any, bool] = {}
            for layers in groups:
                if _is_same(layers, tried):
                    stack.enter_context(_Joined(layers).installed())
        yield


def _groups(module: torch.nn.Module) -> Iterator[list[Any]]:
    """Yield the layers of a module that can be packed, those that share an input together; none within others' adapters."""
    children = dict(module.named_children())
    for is_kind in (_is_lora, _is_linear):
        found = {name: layer for name, layer in children.items() if is_kind(layer)}
        for names in SHARING:
            together = [found[name] for name in names if name in found]
            if len({_scaling(layer) for layer in together}) == 1:
                yield together
                found = {name: layer for name, layer in found.items() if name not in names}
        yield from ([layer] for layer in found.values())
    for child in children.values():
        if not isinstance(child, BaseTunerLayer):
            yield from _groups(child)


def _is_linear(layer: Any) -> bool:
    """Whether a layer does nothing but multiply with a bf16 weight in the host's memory and add a bias."""
    is_plain = isinstance(layer, torch.nn.Linear) and type(layer).forward is torch.nn.Linear.forward
    if not is_plain or "forward" in vars(layer):
        return False
    weight: torch.Tensor = layer.weight
    return weight.dtype == torch.bfloat16 and weight.device.type == "cpu"


def _is_lora(layer: Any) -> bool:
    """Whether a layer is a linear one with one LoRA and nothing else."""
    if not isinstance(layer, LoraLayer) or "forward" in vars(layer) or layer.merged or layer.lora_variant:
        return False
    if layer.active_adapters != list(layer.lora_A):
        return False
    factors = [*layer.lora_A.values(), *layer.lora_B.values()]
    plain = all(_is_linear(one) and one.bias is None for one in factors)
    return len(factors) == 2 and plain and _is_linear(layer.base_layer)


def _scaling(layer: Any) -> float:
    """Return what LoRA's product is multiplied with; 1 of a layer without."""
    return float(next(iter(layer.scaling.values()))) if isinstance(layer, LoraLayer) else 1.0


def _parts(layer: Any) -> tuple[torch.nn.Linear, list[torch.Tensor]]:
    """Return the layer itself, and its LoRA's factors: A [r, in] and B [out, r], or none."""
    if not isinstance(layer, LoraLayer):
        return layer, []
    base: Any = layer.base_layer
    (a,), (b,) = layer.lora_A.values(), layer.lora_B.values()
    return base, [a.weight, b.weight]  # type: ignore[list-item]


def _numbers(layers: Sequence[Any]) -> int:
    return sum(base.weight.numel() + sum(f.numel() for f in factors) for base, factors in map(_parts, layers))


def _is_same(layers: list[Any], tried: dict[Any, bool]) -> bool:
    """Whether layers give the same numbers when packed. tried: the answers so far, by the form of the layers."""
    weights = [weight for base, factors in map(_parts, layers) for weight in (base.weight, *factors)]
    biased = [base.bias is not None for base, _ in map(_parts, layers)]
    form = (tuple(weight.shape for weight in weights), tuple(biased), _scaling(layers[0]))
    if form not in tried:
        generator, joined = torch.Generator().manual_seed(0), _Joined(layers)
        counts = [rows for rows in TRIED if rows * min(weight.numel() for weight in weights) > SMALL]
        inputs = [torch.randn(rows, layers[0].in_features, generator=generator).bfloat16() for rows in counts]
        with torch.no_grad():
            tried[form] = all(torch.equal(joined.forward(one, x), one(x)) for x in inputs for one in layers)
    return tried[form]


class _Joined(JointLayers):
    """Layers and their LoRA products, packed."""

    def __init__(self, layers: list[Any]) -> None:
        super().__init__(layers)
        bases, factors = zip(*map(_parts, layers), strict=True)
        self.sizes = [base.out_features for base in bases]
        a, b = ([two[n] for two in factors if two] for n in (0, 1))
        bias = None
        if any(base.bias is not None for base in bases):
            zeros = bases[0].weight.new_zeros
            biases = (zeros(base.out_features) if base.bias is None else base.bias for base in bases)
            bias = torch.cat([*biases, zeros(sum(map(len, a)))])
        self.weight = PackedWeight(torch.cat([*(base.weight for base in bases), *a]), bias)
        scaling = _scaling(layers[0])
        is_folded = abs(frexp(scaling)[0]) == 0.5  # a power of two: rounded before or after, the same numbers
        joint = torch.block_diag(*b) if b else None  # type: ignore[no-untyped-call]
        self.factors = None if joint is None else PackedWeight(joint * (scaling if is_folded else 1))
        self.scaling = None if is_folded else scaling

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Let the layers compute so meanwhile."""
        for layer in self.layers:
            layer.forward = partial(self.forward, layer)
        try:
            yield
        finally:
            for layer in self.layers:
                del layer.forward

    def _takes(self, x: torch.Tensor) -> bool:
        return x.dtype == torch.bfloat16 and not torch.is_grad_enabled()

    def _outputs(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        joined = self.weight.product(x.reshape(-1, x.shape[-1]))
        y = joined[:, : sum(self.sizes)]
        if self.factors is not None and not self.layers[0].disable_adapters:
            change = self.factors.product(joined[:, y.shape[1] :].contiguous())
            y = (change if self.scaling is None else change.mul_(self.scaling)).add_(y)
        return torch.split(y.view(*x.shape[:-1], -1), self.sizes, -1)
