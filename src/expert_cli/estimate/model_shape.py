"""The shapes of a base model with its adapter, from config.json alone: built on the meta device, no weight is read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
from peft import PeftModel
from peft.tuners.tuners_utils import BaseTunerLayer
from transformers import PreTrainedModel

from expert_cli.manifest.keys.adapter import AdapterConfig
from expert_cli.manifest.types import Quantization
from expert_cli.model.adapter import add_adapter
from expert_cli.model.flops import frozen_linears, head_widths
from expert_cli.model.layers import decoder_layers
from expert_cli.model.loading.quantize import meta_base

NF4_BLOCK = 64
NESTED_BLOCK = 256
NF4_TABLES = 4 * (16 + 256 + 1)
"""Bytes of a quantized weight's tables: 16 NF4 values, 256 values of its nested scales, one offset; all fp32."""


class BlockShape(NamedTuple):
    """An attention block or the rest of a decoder layer: its layers with an adapter, and what else keeps tokens.

    norms: widths of those that a gradient passes through. inner: width of a gated product (0: none).
    """

    adapted: tuple[Any, ...]
    norms: int
    inner: int


@dataclass(frozen=True)
class Shape:
    """A model in numbers of weights. linear: (outputs, inputs) of the layers that quantization takes; other: the rest.

    adapter: the adapter's tensors on the meta device, fp32. layers: attention and rest of every decoder layer. heads,
    key_heads: widths of all query heads and of all key heads together.
    """

    linear: tuple[tuple[int, int], ...]
    other: int
    adapter: tuple[torch.Tensor, ...]
    layers: tuple[tuple[BlockShape, BlockShape], ...]
    hidden: int
    vocabulary: int
    heads: int
    key_heads: int
    head_count: int

    @property
    def adapter_parameters(self) -> int:
        """Numbers that are trained."""
        return sum(tensor.numel() for tensor in self.adapter)


def meta_model(folder: Path, adapter: AdapterConfig, *, dtype: torch.dtype, attention: str | None) -> PeftModel:
    """Return the model of a folder with its adapter, all on the meta device. Raises InputError as training would."""
    return meta_adapter(meta_base(folder, dtype=dtype, attention=attention), adapter)


def meta_adapter(
    base: PreTrainedModel, adapter: AdapterConfig, token_rows: Mapping[str, Sequence[int]] | None = None
) -> PeftModel:
    """Return a model on the meta device with its adapter there, too. Raises what `add_adapter` raises."""
    with torch.device("meta"):
        return add_adapter(base, replace(adapter, init_adapter=None), token_rows)


def shape_of(model: PeftModel) -> Shape:
    """Return the shapes of a model with adapter."""
    base: Any = model.get_base_model()
    config, linear = base.config.get_text_config(), frozen_linears(base)
    hidden, (heads, key_heads) = config.hidden_size, head_widths(config)
    quantized = {id(layer.weight) for layer in linear}
    layers: list[tuple[BlockShape, BlockShape]] = []
    for layer in decoder_layers(base):
        block = getattr(layer, "self_attn", None)  # in hybrid models most layers have another block in its place
        attention = {module: name for name, module in block.named_modules()} if block else {}
        rest = {module: name for name, module in layer.named_modules() if module not in attention}
        # in attention the norms are those of all query heads or of all key heads
        of_heads = sum(key_heads if attention[norm].startswith("k") else heads for norm in filter(_is_norm, attention))
        # nothing trained comes before the first layer's norm
        others = hidden * (sum(map(_is_norm, rest)) - (not layers))
        # the projection that leads out of a feed-forward block ends in the hidden width
        inner = [m.in_features for m in linear if m in rest and m.out_features == hidden != m.in_features]
        layers.append(
            (BlockShape(_adapted(attention), of_heads, 0), BlockShape(_adapted(rest), others, max(inner, default=0)))
        )
    return Shape(
        linear=tuple((layer.out_features, layer.in_features) for layer in linear),
        other=sum(p.numel() for p in base.parameters() if not p.requires_grad and id(p) not in quantized),
        adapter=tuple(p for p in base.parameters() if p.requires_grad),
        layers=tuple(layers),
        hidden=hidden,
        vocabulary=config.vocab_size,
        heads=heads,
        key_heads=key_heads,
        head_count=getattr(config, "num_attention_heads", 0),
    )


def stored_bytes(shape: Shape, quantization: Quantization, element: int) -> int:
    """Return the bytes of the base model in memory; `element`: bytes of a number that is not quantized.

    NF4 with double quantization: half a byte a weight, a byte a block of 64, 4 bytes a block of 256 of those, and tables.
    8 bits: a byte a weight and 4 a row.
    """
    if quantization == "int4":
        return shape.other * element + sum(_nf4(rows * columns) for rows, columns in shape.linear)
    if quantization == "int8":
        return shape.other * element + sum(rows * columns + 4 * rows for rows, columns in shape.linear)
    return element * (shape.other + linear_weights(shape))


def linear_weights(shape: Shape) -> int:
    """Return the weights of all layers that quantization takes."""
    return sum(rows * columns for rows, columns in shape.linear)


def _nf4(weights: int) -> int:
    blocks = -(-weights // NF4_BLOCK)
    return -(-weights // 2) + blocks + 4 * -(-blocks // NESTED_BLOCK) + NF4_TABLES


def _adapted(modules: Iterable[Any]) -> tuple[Any, ...]:
    return tuple(module for module in modules if isinstance(module, BaseTunerLayer))


def _is_norm(module: torch.nn.Module) -> bool:
    weight = getattr(module, "weight", None)
    return isinstance(weight, torch.Tensor) and weight.dim() == 1 and not weight.requires_grad
