"""The shapes of a base model with its adapter, from config.json alone: built on the meta device, no weight is read."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from peft import PeftModel
from peft.tuners.tuners_utils import BaseTunerLayer
from transformers import AutoConfig, AutoModelForCausalLM

from expert_cli.config.run_config import AdapterConfig
from expert_cli.errors import InputError
from expert_cli.manifest.types import Quantization
from expert_cli.model.activation_checkpointing import decoder_layers
from expert_cli.model.adapter import add_adapter

NF4_BLOCK = 64
NESTED_BLOCK = 256
NF4_TABLES = 4 * (16 + 256 + 1)
"""Bytes of a quantized weight's tables: 16 NF4 values, 256 values of its nested scales, one offset; all fp32."""


@dataclass(frozen=True)
class Norm:
    """A normalization of so many numbers a token; `chained`: a gradient passes through it."""

    width: int
    chained: bool = True


@dataclass(frozen=True)
class Part:
    """An attention block or the rest of a decoder layer: what decides how much of a token it keeps.

    inputs, outputs: widths of the adapted linear layers; shared: of their inputs, each named once. scaled_inputs: widths of
    the inputs that IA3 scales in place of an output. weights: of the adapted layers; trained: of the adapter. norms: as they
    stand. inner: width of a gated product (0: none).
    """

    inputs: tuple[int, ...]
    shared: tuple[int, ...]
    outputs: tuple[int, ...]
    scaled_inputs: tuple[int, ...]
    weights: int
    trained: int
    norms: tuple[Norm, ...]
    inner: int


@dataclass(frozen=True)
class Layer:
    """One decoder layer. heads and key_heads: widths of all query heads and of all key heads together."""

    attention: Part
    rest: Part
    heads: int
    key_heads: int
    head_count: int


@dataclass(frozen=True)
class Shape:
    """A model in numbers of weights. linear: (outputs, inputs) of the layers that quantization takes; other: the rest.

    adapter: the adapter's tensors on the meta device, fp32.
    """

    linear: tuple[tuple[int, int], ...]
    other: int
    adapter: tuple[torch.Tensor, ...]

    layers: tuple[Layer, ...]
    hidden: int
    vocabulary: int

    @property
    def adapter_parameters(self) -> int:
        """Numbers that are trained."""
        return sum(tensor.numel() for tensor in self.adapter)


def meta_model(folder: Path, adapter: AdapterConfig, *, dtype: torch.dtype, attention: str) -> PeftModel:
    """Return the model of a folder with its adapter, all on the meta device. Raises InputError as training would."""
    config = AutoConfig.from_pretrained(folder, trust_remote_code=False, local_files_only=True)
    try:
        with torch.device("meta"):
            base = AutoModelForCausalLM.from_config(
                config, dtype=dtype, attn_implementation=attention, trust_remote_code=False
            )
            base.requires_grad_(False)
            return add_adapter(base, adapter)
    except ValueError as error:
        raise InputError(f"{folder}: cannot be read as a language model: {str(error).splitlines()[0]}") from error


def shape_of(model: PeftModel) -> Shape:
    """Return the shapes of a model with adapter."""
    base: Any = model.get_base_model()
    config = base.config.get_text_config()
    head = base.get_output_embeddings()
    linear = [m for m in base.modules() if isinstance(m, torch.nn.Linear) and m is not head and _is_frozen(m)]
    quantized = {id(layer.weight) for layer in linear}
    return Shape(
        linear=tuple((layer.out_features, layer.in_features) for layer in linear),
        other=sum(p.numel() for p in base.parameters() if not p.requires_grad and id(p) not in quantized),
        adapter=tuple(p for p in base.parameters() if p.requires_grad),
        layers=tuple(_layer(layer, config, first=n == 0) for n, layer in enumerate(decoder_layers(base))),
        hidden=config.hidden_size,
        vocabulary=config.vocab_size,
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


def _is_frozen(module: torch.nn.Module) -> bool:
    return not any(p.requires_grad for p in module.parameters())


def _layer(layer: Any, config: Any, *, first: bool) -> Layer:
    """Return the shapes of a decoder layer; nothing trained comes before the first one's norm."""
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    key_count = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    heads, key_heads = config.num_attention_heads * head_dim, key_count * head_dim
    block = getattr(layer, "self_attn", None)
    within = list(block.modules()) if block is not None else []
    ours = {id(module) for module in within}
    outside = [module for module in layer.modules() if id(module) not in ours]
    outer_norms = [Norm(config.hidden_size, not (first and n == 0)) for n in range(sum(map(_is_norm, outside)))]
    inner = max((m.in_features for m in outside if _is_down(m, config.hidden_size)), default=0)
    inner_norms = [
        Norm(key_heads if name.startswith("k") else heads)
        for name, module in (block.named_modules() if block is not None else ())
        if _is_norm(module)
    ]
    hidden = config.hidden_size
    attention, rest = _part(within, inner_norms, hidden), _part(outside, outer_norms, hidden, inner)
    return Layer(attention, rest, heads, key_heads, config.num_attention_heads)


def _part(modules: list[Any], norms: list[Norm], hidden: int, inner: int = 0) -> Part:
    adapted: list[Any] = [module for module in modules if isinstance(module, BaseTunerLayer)]
    layers = [module.get_base_layer() for module in adapted]
    # q, k and v share an input, gate and up another; the projection back into the residual stream has its own.
    returns = layers[-1:] if len(layers) == 1 or (layers and layers[-1].out_features == hidden) else []
    sharing = layers[:-1] if returns else layers
    scales_input = [getattr(module, "is_feedforward", False) for module in adapted]
    return Part(
        inputs=tuple(layer.in_features for layer in layers),
        shared=(*dict.fromkeys(layer.in_features for layer in sharing), *(layer.in_features for layer in returns)),
        outputs=tuple(layer.out_features for layer, own in zip(layers, scales_input, strict=True) if not own),
        scaled_inputs=tuple(layer.in_features for layer, own in zip(layers, scales_input, strict=True) if own),
        weights=sum(layer.in_features * layer.out_features for layer in layers),
        trained=sum(p.numel() for module in adapted for p in module.parameters() if p.requires_grad),
        norms=tuple(norms),
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
        and _is_frozen(module)
    )
