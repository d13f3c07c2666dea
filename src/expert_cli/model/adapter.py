"""Adds the trainable adapter to a frozen base model."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig, PeftModel, TaskType, get_peft_model, get_peft_model_state_dict, set_peft_model_state_dict
from safetensors import SafetensorError
from safetensors.torch import load_file
from transformers import PreTrainedModel

from expert_cli.config.adapter_origin import WEIGHTS, find_adapter
from expert_cli.errors import InputError, IntegrityError
from expert_cli.manifest.keys.peft import AdapterConfig
from expert_cli.model.layers import read_as_weights, recurrent_layers
from expert_cli.utils.text import change, first_line


def add_adapter(
    model: PreTrainedModel, adapter: AdapterConfig, token_rows: Mapping[str, Sequence[int]] | None = None
) -> PeftModel:
    """Return the model with an adapter in fp32, new or loaded from `init_adapter`; only its tensors require gradients.

    token_rows: rows of embedding and head that are trained, too, by module name; they begin with the base model's values. fp32
    is needed because DoRA's magnitudes are near 1: in bf16 a usual step would round to no change. Random tensors come from
    torch's global generator. Raises InputError for target modules that the model lacks or peft refuses, and for an
    `init_adapter` with different tensors.
    """
    targets = _targets(model, adapter.target_modules)
    try:
        adapted = get_peft_model(
            model, _config(adapter, targets, token_rows, _beside_decoder(model)), autocast_adapter_dtype=True
        )
    except ValueError as error:
        words = f"{model.config.model_type} takes no {adapter.type} adapter on these layers: {first_line(error)}"
        raise InputError(words, 'name other target_modules, or write "adapter_type": "lora"') from error
    for parameter in adapted.parameters():
        if parameter.requires_grad:  # PEFT converts only the adapter's
            parameter.data = parameter.data.float()
    if adapter.init_adapter is not None:
        _take_tensors(adapted, find_adapter(adapter.init_adapter).adapter)
    return adapted


def adapter_parts(model: PeftModel) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    """Return the adapter's tensors under PEFT's names, and its config as in adapter_config.json."""
    # "auto" would ask the hub whether the base model's vocabulary has been resized.
    tensors: dict[str, torch.Tensor] = get_peft_model_state_dict(model, save_embedding_layers=False)
    config = {**model.peft_config[model.active_adapter].to_dict(), "inference_mode": True}
    return tensors, {name: sorted(value) if isinstance(value, set) else value for name, value in config.items()}


def load_adapter(model: PeftModel, tensors: Mapping[str, torch.Tensor]) -> None:
    """Load tensors into the adapter. Raises ValueError if a name or shape differs."""
    wanted, found = ({name: tuple(one.shape) for name, one in of.items()} for of in (adapter_parts(model)[0], tensors))
    if other := sorted(name for name in {**wanted, **found} if wanted.get(name) != found.get(name)):
        shapes = change(*(str(some.get(other[0], "not there")) for some in (found, wanted)))
        raise ValueError(f"{len(other)} tensors differ, the first is {other[0]} ({shapes})")
    set_peft_model_state_dict(model, dict(tensors))


def _take_tensors(model: PeftModel, folder: Path) -> None:
    """Load the tensors of an adapter folder. Raises IntegrityError if unreadable, InputError if a name or shape differs."""
    try:
        tensors = load_file(folder / WEIGHTS)
    except (OSError, SafetensorError) as error:
        raise IntegrityError(f"{folder} cannot be read: {error}", "give another adapter: --from") from error
    try:
        load_adapter(model, tensors)
    except ValueError as error:
        told = f"{folder} does not fit the adapter of this run: {error}"
        raise InputError(told, "set adapter_type, rank and target_modules as they were") from error


def magnitudes(model: PeftModel) -> dict[str, torch.Tensor]:
    """Return a copy of DoRA's magnitude vectors by name; empty for other adapters."""
    found = ((name, one) for name, one in model.named_parameters() if "lora_magnitude_vector" in name)
    return {name: parameter.detach().clone() for name, parameter in found}


def linear_names(model: torch.nn.Module) -> list[str]:
    """Return the last name parts of linear layers, without the head's and without names that other modules have (Zamba2)."""
    head = getattr(model, "get_output_embeddings", lambda: None)()
    linear: set[str] = set()
    others: set[str] = set()
    for name, module in model.named_modules():
        names = linear if isinstance(module, torch.nn.Linear) and module is not head else others
        names.add(name.rsplit(".", 1)[-1])
    return sorted(linear - others)


def fused_experts(model: torch.nn.Module) -> list[str]:
    """Return the last name parts of weights that hold one matrix per expert; they are not linear layers."""
    named = ((name, [*parameter.shape]) for name, parameter in model.named_parameters())
    return sorted({name.rsplit(".", 1)[-1] for name, shape in named if len(shape) == 3 and 1 not in shape})


def _targets(model: PreTrainedModel, wanted: Sequence[str]) -> list[str]:
    passed_by: set[str] = set().union(*map(read_as_weights, recurrent_layers(model)))
    available = [name for name in linear_names(model) if name not in passed_by]
    if tuple(wanted) == ("all-linear",):
        return available
    # a recurrent layer may read weights directly, without an adapter
    paths = [name for name, _ in model.named_modules() if name.rsplit(".", 1)[-1] not in passed_by]
    missing = [name for name in wanted if not any(re.search(rf"(^|\.){re.escape(name)}$", path) for path in paths)]
    if missing:
        told = f"target_modules: no layer of {model.config.model_type} that takes an adapter is called {', '.join(missing)}"
        raise InputError(told, f'its linear layers: {", ".join(available)}; "all-linear" takes them all')
    head, embedding = model.get_output_embeddings(), model.get_input_embeddings()
    if head is not None and getattr(head, "weight", None) is embedding.weight:
        both = {name.rsplit(".", 1)[-1] for name, module in model.named_modules() if module in (head, embedding)}
        if tied := both & {name.rsplit(".", 1)[-1] for name in wanted}:
            raise InputError(  # https://github.com/huggingface/peft/issues/2018
                f"target_modules: {' and '.join(sorted(both))} are one weight in {model.config.model_type}: merged, an "
                f"adapter on {min(tied)} would change both",
                'leave it out; rows of single tokens are trained by "trainable_token_indices"',
            )
    return list(wanted)


def _beside_decoder(model: PreTrainedModel) -> list[str]:
    """Return the paths of linear layers that text does not pass through: those of a vision or audio encoder."""
    known = {
        id(module) for part in (model.get_decoder(), model.get_output_embeddings()) if part for module in part.modules()
    }
    linear = ((name, module) for name, module in model.named_modules() if isinstance(module, torch.nn.Linear))
    return [name for name, module in linear if id(module) not in known]


def _config(
    adapter: AdapterConfig,
    targets: list[str],
    token_rows: Mapping[str, Sequence[int]] | None,
    outside: list[str],
) -> LoraConfig:
    alpha: Any = adapter.alpha  # peft accepts any number, but declares int
    return LoraConfig(
        task_type=TaskType.CAUSAL_LM,
        target_modules=targets,
        exclude_modules=outside or None,
        r=adapter.rank,
        lora_alpha=alpha,
        lora_dropout=adapter.dropout,
        use_dora=adapter.type == "dora",
        use_rslora=adapter.type == "rslora",
        trainable_token_indices={name: list(rows) for name, rows in (token_rows or {}).items()} or None,
    )
