"""Loads a model from a local folder, quantized as requested, or on the meta device."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from accelerate import PartialState
from transformers import AutoConfig, AutoModelForCausalLM, BitsAndBytesConfig, PreTrainedModel
from transformers.utils import logging

from expert_cli._compat import keep_8bit_scales, keep_autograd_on_cpu
from expert_cli.errors import EnvironmentProblem, InputError
from expert_cli.hardware.devices import DEVICES, is_out_of_memory
from expert_cli.manifest.key import Dtype, Quantization
from expert_cli.model.flops import attention_layers
from expert_cli.utils.text import first_line

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}
STORED: dict[Quantization, torch.dtype] = {"bf16": torch.bfloat16, "fp16": torch.float16}
"""The dtype of the weights for these values of `quantization`; for the others, unquantized weights have the compute dtype."""


def autocast_of(dtype: Dtype) -> torch.dtype | None:
    """Return the autocast dtype of a step; None: no autocast."""
    return None if dtype == "fp32" else DTYPES[dtype]


def load_base(
    folder: Path,
    *,
    quantization: Quantization,
    dtype: torch.dtype,
    device: str,
    attention: str | None,
    rope_scaling: Mapping[str, float | str],
) -> PreTrainedModel:
    """Load a causal language model from safetensors, frozen, on `device`.

    int4 is NF4 with double quantization, computing in `dtype`; "none" loads the weights in `dtype`. Norms, embeddings and head
    keep the dtype of the rest: peft's prepare_model_for_kbit_training would cast them, and so the residual stream, to fp32 and
    enable gradient checkpointing. Raises EnvironmentProblem for too little memory, InputError if it cannot be loaded.
    """
    logging.disable_progress_bar()  # transformers would write it to stderr, bypassing the console
    quantized = quantization_arguments(quantization, dtype)
    config = AutoConfig.from_pretrained(folder, trust_remote_code=False, local_files_only=True)
    if rope_scaling:
        text = config.get_text_config()
        known = getattr(text, "rope_parameters", None) or {}
        if any(isinstance(one, dict) for one in known.values()):
            told = f"rope_scaling: {text.model_type} uses different positions in each kind of layer"
            raise InputError(told, "leave rope_scaling out for this base model")
        text.rope_parameters = {**known, **rope_scaling}
    try:
        model = AutoModelForCausalLM.from_pretrained(
            folder,
            config=config,
            dtype=STORED.get(quantization, dtype),
            quantization_config=BitsAndBytesConfig(**quantized) if quantized else None,
            attn_implementation=attention if attention_layers(config.get_text_config()) else None,
            device_map={"": DEVICES[device].place(PartialState().local_process_index)},
            use_safetensors=True,
            trust_remote_code=False,
            local_files_only=True,
        )
    except RuntimeError as error:
        if not is_out_of_memory(error):
            raise
        hint = 'write "quantization": "int4", or choose a smaller base model'
        raise EnvironmentProblem(f"{folder.name} does not fit into the GPU's memory", hint) from error
    except ValueError as error:
        raise InputError(f"{folder}: cannot be loaded as a language model: {first_line(error)}") from error
    if quantization in STORED and weights_dtype(quantization, dtype) == torch.float32:
        model.float()
    model.config.use_cache = False
    model.requires_grad_(False)
    keep_autograd_on_cpu(model)
    keep_8bit_scales(model)
    return model


def meta_base(folder: Path, *, dtype: torch.dtype = torch.float32, attention: str | None = None) -> PreTrainedModel:
    """Return the frozen base model of a folder on the meta device. Raises InputError as training would."""
    config = AutoConfig.from_pretrained(folder, trust_remote_code=False, local_files_only=True)
    attention = attention if attention_layers(config.get_text_config()) else None
    try:
        with torch.device("meta"):
            base: PreTrainedModel = AutoModelForCausalLM.from_config(
                config, dtype=dtype, attn_implementation=attention, trust_remote_code=False
            )
    except ValueError as error:
        raise InputError(f"{folder}: cannot be loaded as a language model: {first_line(error)}") from error
    base.requires_grad_(False)
    return base


def quantization_arguments(quantization: Quantization, compute: torch.dtype) -> dict[str, Any]:
    """Return the arguments of the BitsAndBytesConfig for the base model; none if it is not quantized."""
    if quantization == "int4":
        nf4 = {"bnb_4bit_quant_type": "nf4", "bnb_4bit_use_double_quant": True}
        return {"load_in_4bit": True, **nf4, "bnb_4bit_compute_dtype": compute}
    return {"load_in_8bit": True} if quantization == "int8" else {}


def weights_dtype(quantization: Quantization, compute: torch.dtype) -> torch.dtype:
    """Return the dtype of unquantized parts; with fp32 computation, 16-bit numbers are converted when loaded."""
    return compute if compute == torch.float32 else STORED.get(quantization, compute)
