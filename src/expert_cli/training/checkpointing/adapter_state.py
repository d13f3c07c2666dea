"""The adapter as a checkpoint holds it, and how large a checkpoint will be."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from peft import PeftModel, get_peft_model_state_dict, set_peft_model_state_dict

from expert_cli.training.checkpointing.optimizer_state import Tensors

_MOMENTS = {"adamw": 2, "ademamix": 3, "lion": 1, "rmsprop": 1, "adagrad": 1, "sgd": 0}
"""Tensors as large as the parameter that an optimizer keeps of it; Adafactor keeps a row and a column."""
_HEADER_BYTES = 600
"""Names, shapes and places of one parameter in all files, about."""
_REST_BYTES = 16 * 1024
"""Random generators, position, identity, manifest, about."""


def adapter_parts(model: PeftModel) -> tuple[Tensors, dict[str, Any]]:
    """Return the adapter's tensors, by the names PEFT saves them under, and its config as adapter_config.json has it."""
    # "auto" would ask the hub whether the base model's vocabulary has grown.
    tensors: Tensors = get_peft_model_state_dict(model, save_embedding_layers=False)
    config = {**model.peft_config[model.active_adapter].to_dict(), "inference_mode": True}
    return tensors, {name: sorted(value) if isinstance(value, set) else value for name, value in config.items()}


def load_adapter(model: PeftModel, tensors: Mapping[str, torch.Tensor]) -> None:
    """Put the tensors of a checkpoint into the adapter. Raises ValueError naming those that do not fit it."""
    wanted = {name: tensor.shape for name, tensor in adapter_parts(model)[0].items()}
    found = {name: tensor.shape for name, tensor in tensors.items()}
    if wanted != found:
        other = sorted(name for name in {**wanted, **found} if wanted.get(name) != found.get(name))
        raise ValueError(f"{len(other)} tensors do not fit the adapter, the first is {other[0]}")
    set_peft_model_state_dict(model, dict(tensors))


def estimate_bytes(model: torch.nn.Module, optimizer: str) -> int:
    """Return about how many bytes a checkpoint of this model's trainable parameters takes, by the optimizer's name."""
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    return _REST_BYTES + sum(
        parameter.nbytes + optimizer_bytes(parameter, optimizer) + _HEADER_BYTES for parameter in parameters
    )


def optimizer_bytes(parameter: torch.Tensor, optimizer: str) -> int:
    """Return the bytes of the state that an optimizer, by its name, keeps of a parameter."""
    if optimizer == "adafactor":
        rows_and_columns = sum(parameter.numel() // size for size in parameter.shape[-2:])
        return (rows_and_columns if parameter.dim() > 1 else parameter.numel()) * parameter.element_size()
    moments = next(count for name, count in _MOMENTS.items() if name in optimizer)
    if "8bit" in optimizer:
        return moments * (parameter.numel() + 4 * parameter.numel() // 256)
    is_bitsandbytes = any(word in optimizer for word in ("bit", "paged", "bnb", "lion", "ademamix"))
    return moments * parameter.numel() * (4 if is_bitsandbytes else parameter.element_size())
