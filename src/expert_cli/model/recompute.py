"""Activation checkpointing: which parts of the model are recomputed in the backward pass instead of kept."""

from __future__ import annotations

from functools import partial
from typing import Any

from torch.utils.checkpoint import checkpoint
from transformers import PreTrainedModel
from transformers.modeling_layers import GradientCheckpointingLayer

from expert_cli.runconfig import Checkpointing


def decoder_layers(model: Any) -> list[Any]:
    """Return the model's decoder layers in order."""
    return [module for module in model.modules() if isinstance(module, GradientCheckpointingLayer)]


def recompute(model: PreTrainedModel, what: Checkpointing, *, reentrant: bool) -> None:
    """Set checkpointing as asked; "off" leaves every layer's activations in memory.

    selective: the layers 0, 2, 4, ... attention_only: only each layer's attention block, whose scores cost most.
    """
    if what == "off":
        return
    if what == "attention_only":
        for layer in decoder_layers(model):
            attention = layer.self_attn
            attention.forward = partial(checkpoint, attention.forward, use_reentrant=reentrant)
        return
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": reentrant})
    if reentrant:
        model.enable_input_require_grads()
    if what == "selective":
        for layer in decoder_layers(model)[1::2]:
            layer.gradient_checkpointing = False
