"""Finds the decoder layers of a model, and those that are recomputed, compiled or recurrent."""

from __future__ import annotations

import inspect
import re
from typing import Any

from torch import nn
from transformers import PreTrainedModel
from transformers.modeling_layers import GradientCheckpointingLayer

from expert_cli.manifest.keys.compute import Checkpointing, ComputeConfig


def decoder_layers(model: Any) -> list[Any]:
    """Return the model's decoder layers in order, outermost ones only: Zamba2 nests layers."""
    layers = {name: module for name, module in model.named_modules() if isinstance(module, GradientCheckpointingLayer)}
    return [layer for name, layer in layers.items() if not any(name.startswith(f"{other}.") for other in layers)]


def set_checkpointing(model: Any, *, on: bool) -> bool:
    """Switch recomputation in every layer that supports it; return whether any was on."""
    layers = decoder_layers(model)
    was_on = any(layer.gradient_checkpointing for layer in layers)
    for layer in layers:
        layer.gradient_checkpointing = on
    return was_on


def enable_activation_checkpointing(model: PreTrainedModel, what: Checkpointing, *, reentrant: bool) -> None:
    """Enable gradient checkpointing in the layers; "off" keeps their activations in memory.

    The random state is restored only if a layer draws numbers: reading it is forbidden while a CUDA graph is recorded.
    """
    if what == "off":
        return
    # dropout as a module, or read from the configuration
    settings = model.config.get_text_config().to_dict().items()
    draws = any(value for name, value in settings if "drop" in name or "jitter" in name) or has_dropout(model)
    model.activation_checkpointing_enable({"use_reentrant": reentrant, "preserve_rng_state": draws})
    if not reentrant:  # only the reentrant form needs an input with gradients, and the embeddings are frozen
        model.disable_input_require_grads()


def has_dropout(model: nn.Module) -> bool:
    """Whether a module of the model has dropout."""
    return any(isinstance(module, nn.Dropout) and module.p > 0 for module in model.modules())


def compile_layers(model: Any, compute: ComputeConfig) -> None:
    """Compile every decoder layer at its first call, if requested."""
    for layer in decoder_layers(model) if compute.torch_compile else ():
        layer.compile(backend=compute.compile_backend, mode=compute.compile_mode)


def recurrent_layers(model: PreTrainedModel) -> list[Any]:
    """Return the recurrent layers (gated DeltaNet, Mamba): those around a convolution over the tokens.

    No mask separates documents in them, so such a model trains one document in each row, padded on the right. Recurrent layers
    without a convolution are not found (lightning attention): `isolation` refuses them.
    """
    decoder: Any = model.get_decoder()
    return [m for m in decoder.modules() if any(isinstance(child, nn.Conv1d) for child in m.children())]


def read_as_weights(layer: Any) -> set[str]:
    """Return the linear layers whose weights a recurrent layer reads directly, bypassing an adapter."""
    linear = {name for name, child in layer.named_children() if isinstance(child, nn.Linear)}
    return linear & set(re.findall(r"self\.(\w+)\.weight\b", inspect.getsource(type(layer))))
