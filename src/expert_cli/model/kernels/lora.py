"""LoRA's and DoRA's linear layers with less to compute than PEFT's; the factors stay PEFT's parameters, fp32.

Plain LoRA: a frozen layer and its LoRA product are one autograd function, shared by layers with the same input. PEFT converts
the input to fp32, autocast converts it back, and the product is scaled and added at full width. Each of these operations has
its own backward pass, and autograd sums the input's gradients over layer and product, and over q, k and v. Here, for layers i
with the input x [n, in], everything is in the compute dtype:

    inner = s x (A_1 | A_2 | ..)^T [n, ranks]       y_i = x W_i^T + bias_i + inner_i B_i^T [n, out_i]
    dinner_i = g_i B_i                              dx = sum g_i W_i + s dinner (A_1 | A_2 | ..)

All factors of the model are converted at once when the decoder's forward pass begins.

DoRA: the norms of the weights are computed once per optimizer step.

    y = x W^T + bias + ((g - 1) x W^T + s x A^T (g B)^T) [n, out]      g = magnitude / norm [out]
    norm = || W + s B A ||, row by row, a constant to autograd (arXiv:2402.09353, section 4.3)

PEFT dequantizes every weight and computes this norm in every forward pass, and adds in fp32 [n, out]. But W is frozen, and only
the optimizer changes A and B: `refresh_norms` is called after it. Everything else is in the compute dtype, in which g rounds
to 1 for a long time: so g - 1 is computed in fp32, and small terms are summed before they are added to large ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
from peft import PeftModel
from peft.tuners.lora import LoraLayer
from peft.tuners.lora.variants import DoraLinearVariant
from torch.nn.functional import linear

from expert_cli.model.kernels.dequantize import frozen_weight
from expert_cli.model.layers import has_dropout

SHARING = (("q_proj", "k_proj", "v_proj"), ("gate_proj", "up_proj"))
"""Layers of one module that usually read the same input, by transformers' names; if they do not, each is computed alone."""


def fuse(model: PeftModel) -> int:
    """Fuse the plain LoRA layers of `model` with their LoRA products; return how many. Other layers are unchanged."""
    groups = [_Group(layers) for module in model.modules() for layers in _groups(module)]
    if groups:
        base: Any = model.get_base_model()
        decoder = base.get_decoder()
        decoder.register_forward_pre_hook(partial(_begin, groups))
        decoder.register_forward_hook(partial(_end, groups), always_call=True)
    return sum(len(group.layers) for group in groups)


def patch_dora(model: Any) -> int:
    """Make the DoRA layers of `model` compute norms once per step; return how many. Each gets a buffer `norm`, fp32 [out]."""
    model.dora_layers = [layer for layer in model.modules() if _variants(layer) == [DoraLinearVariant]]
    for layer in model.dora_layers:
        (name,) = layer.lora_A
        magnitude = layer.lora_magnitude_vector[name].weight
        layer.register_buffer("norm", torch.empty_like(magnitude, requires_grad=False), persistent=False)
        layer.forward = partial(_dora_forward, layer, name)
    refresh_norms(model)
    return len(model.dora_layers)


@torch.no_grad()
def refresh_norms(model: Any) -> None:
    """Recompute the norms of a patched model in place, one layer at a time: W is dequantized to fp32.

    It must be called after every change of the factors. It never waits for the device, so a CUDA graph can record it.
    """
    for layer in getattr(model, "dora_layers", []):
        (name,) = layer.lora_A
        a, b = layer.lora_A[name].weight, layer.lora_B[name].weight
        weight = frozen_weight(layer.base_layer, a.dtype)
        torch.linalg.vector_norm(torch.addmm(weight, b, a, alpha=layer.scaling[name]), dim=1, out=layer.norm)


def _variants(layer: Any) -> list[type] | None:
    """Return the LoRA variants, such as DoRA, of a linear layer with one adapter: [] for plain LoRA; None for other layers."""
    is_lora = isinstance(layer, LoraLayer) and isinstance(layer.base_layer, torch.nn.Linear)
    return [*map(type, layer.lora_variant.values())] if is_lora and len(layer.lora_A) == 1 else None


def _is_on(layer: Any, name: str) -> bool:
    return layer.active_adapters == [name] and not (layer.disable_adapters or layer.merged)


def _dora_forward(layer: Any, name: str, x: torch.Tensor, *args: Any, **settings: Any) -> torch.Tensor:
    """Return a layer's output; PEFT's own code computes it unless only `name` is active, and there are no other arguments."""
    if args or settings or not _is_on(layer, name):
        return type(layer).forward(layer, x, *args, **settings)  # type: ignore[no-any-return]
    base = layer.base_layer
    output: torch.Tensor = base(x)
    read = layer.lora_dropout[name](x)  # as in PEFT, dropout applies to the terms that g scales, but not to x W^T
    product = output if read is x else base(read)
    g = layer.lora_magnitude_vector[name].weight / layer.norm
    beyond = (g - 1).to(output.dtype)
    a, b = layer.lora_A[name].weight, g[:, None] * layer.lora_B[name].weight
    inner = linear(read.to(output.dtype), a.to(output.dtype)) * layer.scaling[name]
    scaled = beyond * product if base.bias is None else torch.addcmul(-beyond * base.bias, beyond, product)
    more = torch.addmm(scaled.flatten(0, -2), inner.flatten(0, -2), b.to(output.dtype).t())
    return output + more.view_as(output)


def _groups(module: torch.nn.Module) -> Iterator[list[Any]]:
    """Yield the plain LoRA layers directly under a module, grouped by common input."""
    plain: dict[str, Any] = {name: layer for name, layer in module.named_children() if _variants(layer) == []}
    for names in SHARING:
        # each layer draws its own dropout, so the inputs would differ
        together = [name for name in names if name in plain and not has_dropout(plain[name].lora_dropout)]
        if together:
            yield [plain.pop(name) for name in together]
    yield from ([layer] for layer in plain.values())


class _Group:
    """Layers with the same input, and their LoRA products: the first layer that is called computes the outputs of all."""

    def __init__(self, layers: list[Any]) -> None:
        self.layers = layers
        self.input: torch.Tensor | None = None
        self.outputs: dict[Any, torch.Tensor] = {}
        (self.name,) = {name for layer in layers for name in layer.lora_A}
        self.scaling: float = layers[0].scaling[self.name]
        self.factors: list[torch.Tensor] = []
        a, b = self.parameters[: len(layers)], self.parameters[len(layers) :]
        self.shapes = [(sum(map(len, a)), a[0].shape[1]), *((len(one), one.shape[1]) for one in b)]
        for layer in layers:
            layer.forward = partial(self.forward, layer)

    @property
    def parameters(self) -> list[torch.nn.Parameter]:
        """Every A [r, in], then every B [out, r]."""
        return [getattr(layer, part)[self.name].weight for part in ("lora_A", "lora_B") for layer in self.layers]

    @property
    def dtype(self) -> torch.dtype:
        """The compute dtype: autocast's, or else that of the factors."""
        factor = self.parameters[0]
        device = factor.device.type
        return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else factor.dtype

    def forward(self, layer: Any, x: torch.Tensor, *args: Any, **settings: Any) -> torch.Tensor:
        """Return a layer's output; PEFT's own code computes it for other arguments, another dtype, or other active adapters."""
        is_on = all(_is_on(each, self.name) for each in self.layers)
        if args or settings or x.dtype != self.dtype or not is_on:
            return type(layer).forward(layer, x, *args, **settings)  # type: ignore[no-any-return]
        if x is not self.input or layer not in self.outputs:
            self.input, self.outputs = x, dict(zip(self.layers, self._outputs(x), strict=True))
        output = self.outputs.pop(layer)
        if not self.outputs:
            self.input = None
        return output

    def forget(self) -> None:
        """Release the tensors of a forward pass: an unused output would keep all tensors before it in memory."""
        self.factors, self.input, self.outputs = [], None, {}

    def _outputs(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        dropped = self.layers[0].lora_dropout[self.name](x)
        factors = self.factors or _narrowed([self], x.dtype)[0]  # [] if recomputed after the decoder's end
        bases = [layer.base_layer for layer in self.layers]
        read = None if dropped is x else dropped
        return _Products.apply(x, read, bases, self.scaling, factors, *self.parameters)  # type: ignore[no-any-return,no-untyped-call]


def _begin(groups: list[_Group], *_: Any) -> None:
    """Convert the factors of all groups; called when the decoder begins."""
    for group, factors in zip(groups, _narrowed(groups, groups[0].dtype), strict=True):
        group.factors = factors


def _end(groups: list[_Group], *_: Any) -> None:
    for group in groups:
        group.forget()


def _narrowed(groups: list[_Group], dtype: torch.dtype) -> list[list[torch.Tensor]]:
    """Return (A_1 | A_2 | ..) [ranks, in] and every B of each group in `dtype`, all converted at once."""
    wide = torch.cat([parameter.detach().flatten() for group in groups for parameter in group.parameters])
    sizes = [rows * columns for group in groups for rows, columns in group.shapes]
    parts = iter(torch.split(wide.to(dtype), sizes))
    return [[next(parts).view(shape) for shape in group.shapes] for group in groups]


class _Products(torch.autograd.Function):
    """Computes the outputs of layers for one input. parameters: get the gradients; factors: the same, converted."""

    @staticmethod
    def forward(
        ctx: Any,
        x: torch.Tensor,
        dropped: torch.Tensor | None,
        bases: list[torch.nn.Linear],
        scaling: float,
        factors: list[torch.Tensor],
        *parameters: torch.Tensor,
    ) -> tuple[torch.Tensor, ...]:
        """dropped: the input of the LoRA products, after dropout; None: `x`. scaling: multiplies every product."""
        a, *b = factors
        rows = (x if dropped is None else dropped).reshape(-1, x.shape[-1])
        inner = _product(rows, a.t(), scaling)
        outputs = tuple(
            _output(base, x, part, factor) for base, part, factor in zip(bases, _by_layer(inner, b), b, strict=True)
        )
        ctx.save_for_backward(rows, inner, *factors)
        ctx.set_materialize_grads(False)  # the gradient of an unused output is None
        ctx.shape, ctx.bases, ctx.scaling, ctx.wide = x.shape, bases, scaling, parameters[0].dtype
        return outputs

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor | None) -> tuple[torch.Tensor | None, ...]:
        rows, inner, a, *b = ctx.saved_tensors
        of_inner = torch.empty_like(inner)
        of_b: list[torch.Tensor | None] = []
        flat = [None if whole is None else whole.reshape(-1, whole.shape[-1]) for whole in gradients]
        for gradient, factor, part, of_part in zip(flat, b, _by_layer(inner, b), _by_layer(of_inner, b), strict=True):
            if gradient is None:
                of_part.zero_()
                of_b.append(None)
            else:
                of_part.addmm_(gradient, factor, beta=0)
                of_b.append((gradient.t() @ part).to(ctx.wide))
        of_a = _product(of_inner.t(), rows, ctx.scaling).to(ctx.wide)
        of_x = of_dropped = None
        if ctx.needs_input_grad[1]:
            of_dropped = _product(of_inner, a, ctx.scaling).view(ctx.shape)
        elif ctx.needs_input_grad[0]:
            of_x = _product(of_inner, a, ctx.scaling)
        if ctx.needs_input_grad[0]:
            of_x = _through_bases(ctx.bases, flat, of_x)
        taken = (None if of is None else part for part, of in zip(_by_layer(of_a, b, 0), flat, strict=True))
        return (None if of_x is None else of_x.view(ctx.shape), of_dropped, None, None, None, *taken, *of_b)


def _output(base: Any, x: torch.Tensor, part: torch.Tensor, factor: torch.Tensor) -> torch.Tensor:
    """Return x W^T + bias + part B^T; a plain linear layer's product is added to LoRA's, which saves reading it again."""
    only_multiplies = type(base).forward is torch.nn.Linear.forward and "forward" not in vars(base)
    if not (only_multiplies and base.weight.dtype == x.dtype):
        output: torch.Tensor = base(x)
        output.view(-1, output.shape[-1]).addmm_(part, factor.t())
        return output
    small = part @ factor.t() if base.bias is None else torch.addmm(base.bias, part, factor.t())
    return small.addmm_(x.reshape(-1, x.shape[-1]), base.weight.t()).view(*x.shape[:-1], -1)


def _through_bases(
    bases: list[Any], gradients: list[torch.Tensor | None], of_x: torch.Tensor | None
) -> torch.Tensor | None:
    """Return the gradient [n, in] with respect to the input of frozen layers, added to `of_x` in place."""
    for base, gradient in zip(bases, gradients, strict=True):
        if gradient is not None:
            weight = frozen_weight(base, gradient.dtype)
            of_x = gradient @ weight if of_x is None else of_x.addmm_(gradient, weight)
    return of_x


def _by_layer(tensor: torch.Tensor, b: list[torch.Tensor], dimension: int = 1) -> tuple[torch.Tensor, ...]:
    """Split a tensor with the concatenated ranks of all layers into the columns of each layer, [n, r]."""
    return torch.split(tensor, [factor.shape[1] for factor in b], dimension)


def _product(left: torch.Tensor, right: torch.Tensor, scale: float) -> torch.Tensor:
    """Return scale x left @ right in one launch, rounded once."""
    return left.new_empty(left.shape[0], right.shape[1]).addmm_(left, right, beta=0, alpha=scale)
