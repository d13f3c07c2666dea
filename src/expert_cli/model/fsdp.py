"""FSDP2 over a frozen base model: every process holds a share of its weights, and all of the adapter.

    decoder layer    gathered for its forward pass, let go, gathered again for its backward pass
    embedding        gathered while tokens are looked up
    head             gathered while the loss is computed, where its gradient is made too

What is trained is a hundredth of the base and stays what it is without FSDP. (accelerate's own FSDP2 shards it as well: a
bitsandbytes optimizer and the fused LoRA layers cannot read such tensors.) bitsandbytes' 4-bit weights are sharded as the
bytes they are packed in; their scales, 0.13 bits a weight, stay whole.
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
    """Raise InputError where fsdp is asked for and a single process trains, or where accelerate shards the adapter too."""
    for variable, name in (("ACCELERATE_USE_FSDP", "FSDP"), ("ACCELERATE_USE_DEEPSPEED", "DeepSpeed")):
        if os.environ.get(variable, "").lower() == "true":
            raise InputError(
                f"accelerate's {name} does not work with expert-cli",
                'choose multi-GPU in accelerate config; "fsdp": true in the manifest shares out the frozen base model',
            )
    if compute.fsdp and count == 1:
        told = "fsdp: a single process trains, which has nobody to share the base model's weights with"
        hint = "start it with torchrun --nproc-per-node N -m expert_cli train ..., or --set training.config.fsdp=false"
        raise InputError(told, hint)


def shard_base(model: PeftModel, device_type: str, *, full_logits: bool) -> None:
    """Leave this process its share of the frozen weights of `model`, on its device, which holds no more than a layer whole.

    In place; all processes must call it, with the same weights. device_type: torch's. full_logits: the head's own forward pass
    is used, so one that is the embedding as well stays whole.
    """
    base: Any = model.get_base_model()
    device = torch.device(device_type)
    trained = {parameter for parameter in model.parameters() if parameter.requires_grad}
    for parameter in trained:
        parameter.data = parameter.data.to(device)
    for layer in base.modules():
        # plain tensors can be sharded; bitsandbytes adds the scales in each forward pass
        if isinstance(layer, Linear4bit):
            layer.weight = torch.nn.Parameter(layer.weight.data.as_subclass(torch.Tensor), requires_grad=False)
            layer.quant_state.to(device)
    mesh = init_device_mesh(device.type, (world_size(),))
    shard = partial(fully_shard, mesh=mesh, reshard_after_forward=True)
    decoder, embedding, head = base.get_decoder(), base.get_input_embeddings(), base.get_output_embeddings()
    is_tied = base_layer(head).weight is base_layer(embedding).weight
    for layer in decoder_layers(decoder):
        shard(layer, ignored_params=trained)
    whole = {base_layer(embedding).weight.to(device)} if is_tied and full_logits else set()
    if not whole:
        shard(embedding, ignored_params=trained)
    shard(decoder, ignored_params=trained | whole)
    if is_tied:
        base_layer(head).weight = base_layer(embedding).weight
    else:
        shard(head, ignored_params=trained)


@contextmanager
def whole_head(base: Any) -> Iterator[Any]:
    """Yield the head of a base model with its weight whole; all processes must ask. One that is not sharded is whole anyhow."""
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
