"""FSDP2 over a frozen base model: every process holds a share of the base weights, and the whole adapter.

    decoder layer    gathered for its forward pass, released, gathered again for its backward pass
    embedding        gathered for the lookup of tokens
    head             gathered for the loss and its gradient

The trained tensors have a hundredth of the base model's size and are not sharded. (accelerate's FSDP2 shards them, too, but a
bitsandbytes optimizer and the fused LoRA layers cannot read sharded tensors.) bitsandbytes' 4-bit weights are sharded as packed
bytes; their scales, 0.13 bits per weight, are not sharded.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from bitsandbytes.nn import Linear4bit
from peft import PeftModel
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import DTensor

from expert_cli.errors import InputError
from expert_cli.manifest.keys.compute import ComputeConfig
from expert_cli.model.layers import decoder_layers
from expert_cli.model.vocabulary_rows import base_layer
from expert_cli.utils.distributed import world_size


def require_processes(compute: ComputeConfig, count: int) -> None:
    """Raise InputError if fsdp is requested for a single process, or if accelerate would shard the adapter, too."""
    for variable, name in (("ACCELERATE_USE_FSDP", "FSDP"), ("ACCELERATE_USE_DEEPSPEED", "DeepSpeed")):
        if os.environ.get(variable, "").lower() == "true":
            raise InputError(
                f"accelerate's {name} does not work with expert-cli",
                'choose multi-GPU in accelerate config; "fsdp": true in the manifest shares out the frozen base model',
            )
    if compute.fsdp and count == 1:
        told = "fsdp needs several processes; there is one"
        hint = "start it with torchrun --nproc-per-node N -m expert_cli train ..., or --set training.config.fsdp=false"
        raise InputError(told, hint)


def shard_base(model: PeftModel, device_type: str, *, full_logits: bool) -> None:
    """Shard the frozen weights of `model` in place. A device holds its process's share, and never more than one whole layer.

    All processes must call it, with the same weights. device_type: torch's. full_logits: the head's own forward pass is used,
    so a head that is tied to the embedding is not sharded.
    """
    base: Any = model.get_base_model()
    device = torch.device(device_type)
    trained = {parameter for parameter in model.parameters() if parameter.requires_grad}
    for parameter in trained:
        parameter.data = parameter.data.to(device)
    for layer in base.modules():
        # only plain tensors can be sharded; bitsandbytes adds the scales in each forward pass
        if isinstance(layer, Linear4bit):
            layer.weight = torch.nn.Parameter(layer.weight.data.as_subclass(torch.Tensor), requires_grad=False)
            layer.quant_state.to(device)
    mesh = init_device_mesh(device.type, (world_size(),))
    shard = partial(fully_shard, mesh=mesh, reshard_after_forward=True)
    decoder, embedding, head = base.get_decoder(), base.get_input_embeddings(), base.get_output_embeddings()
    is_tied = base_layer(head).weight is base_layer(embedding).weight
    for layer in decoder_layers(decoder):
        shard(layer, ignored_params=trained)
    whole = {base_layer(embedding).weight} if is_tied and full_logits else set()
    for weight in whole:
        weight.data = weight.data.to(device)
    if not whole:
        shard(embedding, ignored_params=trained)
    shard(decoder, ignored_params=trained | whole)
    if is_tied:
        base_layer(head).weight = base_layer(embedding).weight
    else:
        shard(head, ignored_params=trained)


@contextmanager
def whole_head(base: Any) -> Iterator[Any]:
    """Yield the head of a base model with its unsharded weight; all processes must call it."""
    head, embedding = base.get_output_embeddings(), base.get_input_embeddings()
    holder = head if isinstance(head, FSDPModule) else embedding
    if not isinstance(base_layer(head).weight, DTensor):
        yield head
        return
    share = base_layer(head).weight
    holder.unshard()
    try:
        base_layer(head).weight = base_layer(holder).weight
        yield head
    finally:
        base_layer(head).weight = share
        holder.reshard()
