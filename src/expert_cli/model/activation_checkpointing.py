"""Activation checkpointing: the layers are recomputed in the backward pass instead of kept."""

from __future__ import annotations

from functools import partial
from typing import Any

from torch.nn import Dropout
from torch.utils.checkpoint import checkpoint
from transformers import PreTrainedModel
from transformers.modeling_layers import GradientCheckpointingLayer

from expert_cli._compat import checkpoint_layer
from expert_cli.manifest.keys.compute import Checkpointing


def decoder_layers(model: Any) -> list[Any]:
    """Return the model's decoder layers in order, each whole: Zamba2 has layers within layers."""
    layers = {name: module for name, module in model.named_modules() if isinstance(module, GradientCheckpointingLayer)}
    return [layer for name, layer in layers.items() if not any(name.startswith(f"{other}.") for other in layers)]


def attention_block(layer: Any) -> Any:
    """Return a decoder layer's attention, or None: in hybrid models most layers have another block in its place."""
    return getattr(layer, "self_attn", None)


def set_checkpointing(model: Any, *, on: bool) -> bool:
    """Switch recomputation in every layer that has been set up for it; return whether any was on."""
    layers = decoder_layers(model)
    was_on = any(layer.gradient_checkpointing for layer in layers)
    for layer in layers:
        layer.gradient_checkpointing = on
    return was_on


def enable_activation_checkpointing(model: PreTrainedModel, what: Checkpointing, *, reentrant: bool) -> None:
    """Set checkpointing as asked; "off" leaves every layer's activations in memory.

    The random state is kept for the second time only where something is drawn: the capture of a CUDA graph forbids to read it.
    """
    if what == "off":
        return
    function = partial(checkpoint, use_reentrant=reentrant, preserve_rng_state=_draws(model))
    for layer in decoder_layers(model):
        checkpoint_layer(layer, function)
    if reentrant:
        # it passes gradients on only where an input asks for them, and the embeddings are frozen
        model.enable_input_require_grads()


def _draws(model: PreTrainedModel) -> bool:
    """Whether a forward pass draws random numbers: dropout of a module, or by the configuration, where layers read it."""
    settings = model.config.get_text_config().to_dict().items()
    by_config = any(value for name, value in settings if "drop" in name or "jitter" in name)
    return by_config or any(isinstance(module, Dropout) and module.p > 0 for module in model.modules())
