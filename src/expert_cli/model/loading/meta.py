"""A base model in shapes alone, for what must be known of it before its weights are read."""

from __future__ import annotations

from pathlib import Path

import torch
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel

from expert_cli.errors import InputError
from expert_cli.model.flops import attention_layers


def meta_base(folder: Path, *, dtype: torch.dtype = torch.float32, attention: str | None = None) -> PreTrainedModel:
    """Return the base model of a folder, frozen, on the meta device. Raises InputError as training would."""
    config = AutoConfig.from_pretrained(folder, trust_remote_code=False, local_files_only=True)
    if not attention_layers(config.get_text_config()):
        attention = None
    try:
        with torch.device("meta"):
            base: PreTrainedModel = AutoModelForCausalLM.from_config(
                config, dtype=dtype, attn_implementation=attention, trust_remote_code=False
            )
    except ValueError as error:
        raise InputError(f"{folder}: cannot be read as a language model: {str(error).splitlines()[0]}") from error
    base.requires_grad_(False)
    return base
