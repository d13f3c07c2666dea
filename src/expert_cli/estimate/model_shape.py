"""The shapes of a base model with its adapter, from config.json alone: built on the meta device, no weight is read."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from peft import PeftModel
from peft.tuners.tuners_utils import BaseTunerLayer
from transformers import AutoConfig, AutoModelForCausalLM

from expert_cli.errors import InputError
from expert_cli.manifest.keys.adapter import AdapterConfig
from expert_cli.manifest.types import Quantization
from expert_cli.model.activation_checkpointing import attention_block, decoder_layers
from expert_cli.model.adapter import add_adapter
from expert_cli.model.flops import attention_layers, frozen_linears, head_widths

NF4_BLOCK = 64
NESTED_BLOCK = 256
NF4_TABLES = 4 * (16 + 256 + 1)
"""Bytes of a quantized weight's tables: 16 NF4 values, 256 values of its nested scales, one offset; all fp32."""


@dataclass(frozen=True)
class Part:
    """An attention block or the rest of a decoder layer: sums over its layers with an adapter, and what else keeps tokens.

    inputs, outputs: widths; shared: of the inputs, each that is read by several layers once. scaled: widths of the inputs
    that IA3 scales in place of an output. weights: of the layers; trained: of their adapters. norms: widths of those that
    a gradient passes through. inner: width of a gated product (0: none).
    """

    layers: int
    inputs: int
    shared: int
    outputs: int
    scaled: int
    weights: int
    trained: int
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
    layers: tuple[tuple[Part, Part], ...]
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
    config = AutoConfig.from_pretrained(folder, trust_remote_code=False, local_files_only=True)
    try:
        with torch.device("meta"):
            base = AutoModelForCausalLM.from_config(
                config,
                dtype=dtype,
                attn_implementation=attention if attention_layers(config.get_text_config()) else None,
                trust_remote_code=False,
            )
            base.requires_grad_(False)
            return add_adapter(base, adapter)
    except ValueError as error:
        raise InputError(f"{folder}: cannot be read as a language model: {str(error).splitlines()[0]}") from error


def shape_of(model: PeftModel) -> Shape:
    """Return the shapes of a model with adapter."""
    base: Any = model.get_base_model()
    config = base.config.get_text_config()
    hidden, linear, (heads, key_heads) = config.hidden_size, frozen_linears(base), head_widths(config)
    quantized = {id(layer.weight) for layer in linear}
    return Shape(
        linear=tuple((layer.out_features, layer.in_features) for layer in linear),
        other=sum(p.numel() for p in base.parameters() if not p.requires_grad and id(p) not in quantized),
        adapter=tuple(p for p in base.parameters() if p.requires_grad),
        layers=tuple(
            (_attention(layer, hidden, heads, key_heads), _rest(layer, hidden, is_first=n == 0))
            for n, layer in enumerate(decoder_layers(base))
        ),
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


def _attention(layer: Any, hidden: int, heads: int, key_heads: int) -> Part:
    """Return a decoder layer's attention; its norms are those of all query heads or of all key heads."""
    block = attention_block(layer)
    within = dict(block.named_modules()) if block else {}
    norms = sum(key_heads if name.startswith("k") else heads for name, module in within.items() if _is_norm(module))
    return _part(list(within.values()), hidden, norms, 0)


def _rest(layer: Any, hidden: int, *, is_first: bool) -> Part:
    """Return what is not attention in a decoder layer; nothing trained comes before the first one's norm."""
    block = attention_block(layer)
    within = set(block.modules()) if block else set()
    outside = [module for module in layer.modules() if module not in within]
    norms = hidden * (sum(map(_is_norm, outside)) - is_first)
    return _part(outside, hidden, norms, max((m.in_features for m in outside if _is_down(m, hidden)), default=0))


def _part(modules: list[Any], hidden: int, norms: int, inner: int) -> Part:
    tuned: list[Any] = [module for module in modules if isinstance(module, BaseTunerLayer)]
    layers = [module.get_base_layer() for module in tuned]
    widths = [layer.in_features for layer in layers]
    # q, k and v share an input, gate and up another; the projection back into the residual stream has its own
    returns = widths[-1:] if len(layers) == 1 or (layers and layers[-1].out_features == hidden) else []
    sharing = widths[:-1] if returns else widths
    scales_input = [bool(getattr(module, "is_feedforward", False)) for module in tuned]
    return Part(
        layers=len(layers),
        inputs=sum(widths),
        shared=sum({*sharing}) + sum(returns),
        outputs=sum(layer.out_features for layer, scaled in zip(layers, scales_input, strict=True) if not scaled),
        scaled=sum(layer.in_features for layer, scaled in zip(layers, scales_input, strict=True) if scaled),
        weights=sum(layer.in_features * layer.out_features for layer in layers),
        trained=sum(p.numel() for module in tuned for p in module.parameters() if p.requires_grad),
        norms=norms,
        inner=inner,
    )


def _is_norm(module: torch.nn.Module) -> bool:
    weight = getattr(module, "weight", None)
    return isinstance(weight, torch.Tensor) and weight.dim() == 1 and not weight.requires_grad


def _is_down(module: torch.nn.Module, hidden: int) -> bool:
    """Whether this is the projection that leads out of a feed-forward block: it ends in the hidden width."""
    return (
        isinstance(module, torch.nn.Linear)
        and module.out_features == hidden != module.in_features
        and not any(p.requires_grad for p in module.parameters())
    )
