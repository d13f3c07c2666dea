"""A trained expert: a base model in memory with its adapter on top, and the template it was trained with."""

from __future__ import annotations

import json
import warnings
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from peft import PeftModel
from safetensors import SafetensorError

from expert_cli.config.adapter_origin import PROMPTING, AdapterOrigin
from expert_cli.config.run_config import RunConfig
from expert_cli.data.templates.chat import Template
from expert_cli.errors import InputError, IntegrityError
from expert_cli.inference.base_model import load_base_of, locate_base, prompt_template
from expert_cli.inference.expert_config import read_expert_config
from expert_cli.inference.prompt_renderer import PromptRenderer
from expert_cli.model.kernels.dequantize import dequantize_linears
from expert_cli.model.loading.quantize import DTYPES
from expert_cli.model.loading.sources import LocalModel
from expert_cli.model.token_rows import spare_copies
from expert_cli.model.tokenizer import TokenizerInfo, load_tokenizer
from expert_cli.utils.reporter import Reporter
from expert_cli.utils.text import first_line


@dataclass(frozen=True)
class Expert:
    """A base model with an adapter, ready to answer. `model`: disable_adapter() gives the base model."""

    model: PeftModel
    source: LocalModel
    renderer: PromptRenderer


def open_expert(run: RunConfig, origin: AdapterOrigin, report: Reporter, *, widened: bool = False) -> Expert:
    """Load the base model and put the adapter on it. widened: as `load_adapted` takes it.

    4-bit weights are unpacked, and the adapter takes their dtype: the numbers are the same, each token costs less.
    Raises InputError where adapter, base model or template do not go together, and what loading a base model raises.
    """
    source = locate_base(run, report)
    origin.require_base(source.name, source.sha256)
    tokenizer = load_tokenizer(source.folder)
    renderer = trained_renderer(run, tokenizer, origin)
    asked = origin.prompting(run.model)
    for name in PROMPTING:
        written, used = getattr(run.model, name), getattr(asked, name)
        if used != written:
            report.warning(
                f"{name} is {_quoted(written)} in the manifest; {_quoted(used)}, with which the adapter was trained, is used"
            )
    unsealed = "" if origin.sealed else " (no COMPLETE says that its files are as they were written)"
    report.info(f"loading {source.name} with {origin.adapter}{unsealed}")
    return Expert(load_adapted(run, source, origin.adapter, widened=widened), source, renderer)


def trained_renderer(run: RunConfig, tokenizer: TokenizerInfo, origin: AdapterOrigin) -> PromptRenderer:
    """Return what asks an expert as its files say. Raises InputError as `trained_template` does, or for files that are none."""
    kept = read_expert_config(origin.expert_config).decoding.end_ids if origin.expert_config else ()
    return PromptRenderer(tokenizer, trained_template(run, tokenizer, origin), kept)


def base_renderer(run: RunConfig, origin: AdapterOrigin, tokenizer: TokenizerInfo) -> PromptRenderer:
    """Return what asks the base model alone: its own chat template (alpaca where it has none), whatever training used.

    A system prompt of the training is said to the base model too, and its template is given the same. Raises InputError for a
    template that cannot be used.
    """
    asked = origin.prompting(run.model)
    given = () if asked.chat_template else asked.chat_template_kwargs
    own = replace(run, model=replace(asked, template="", chat_template="", chat_template_kwargs=given))
    return PromptRenderer(tokenizer, prompt_template(own, tokenizer, run.data.mapping.input or "input"))


def load_adapted(run: RunConfig, source: LocalModel, adapter: Path, *, widened: bool = False) -> PeftModel:
    """Return the base model, unpacked, with an adapter on it, all in one dtype, for answering.

    widened: what the compute dtype made of the base model is turned to fp32, and the adapter keeps its own: for merging.
    """
    dtype = DTYPES[run.compute.dtype]
    base = load_base_of(run, source.folder)
    dequantize_linears(base, dtype)
    if widened:
        torch.nn.Module.float(base)  # transformers' own refuses a model that was quantized
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("error", ".*missing adapter keys", UserWarning)  # they would be random numbers
            model = PeftModel.from_pretrained(
                base, adapter, autocast_adapter_dtype=False, torch_device=run.compute.device
            )
    except (RuntimeError, ValueError, KeyError, TypeError, UserWarning) as error:
        raise InputError(
            f"{adapter} does not fit {source.name}: {first_line(error)}",
            "name the base model it was trained on: --base-model",
        ) from error
    except (OSError, SafetensorError) as error:
        raise IntegrityError(f"{adapter} cannot be read: {error}", "train again") from error
    weights = next(p.dtype for p in base.get_input_embeddings().parameters())
    for parameter in model.parameters():
        if parameter.dtype == torch.float32 and weights != torch.float32:
            parameter.data = parameter.data.to(weights)
    spare_copies(model)
    model.eval()
    return model


def trained_template(run: RunConfig, tokenizer: TokenizerInfo, origin: AdapterOrigin) -> Template:
    """Return the template that the adapter was trained with, its system prompt included, whatever the manifest now says.

    Raises InputError if the manifest now names another prompt template.
    """
    run = replace(run, model=origin.prompting(run.model))
    written = [prompt_template(run, tokenizer, name) for name in (run.data.mapping.input or "input", "context")]
    for template in written:
        if origin.fits_template(template.fingerprint):
            return template
    raise InputError(
        f"{origin.adapter} was trained with the prompt template {origin.template}, "
        f"the manifest gives {written[0].fingerprint}",
        'set "prompt_template" of this base model as it was, or train again',
    )


def _quoted(value: Any) -> str:
    if value in (None, ()):
        return "not written"
    return json.dumps(value[:60] if isinstance(value, str) else dict(value), ensure_ascii=False)
