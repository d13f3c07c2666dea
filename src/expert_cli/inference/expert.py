"""Loads a base model with a trained adapter."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from peft import PeftModel
from safetensors import SafetensorError
from transformers import GenerationConfig as ModelGenerationConfig

from expert_cli.config.adapter_origin import AdapterOrigin
from expert_cli.config.run_config import RunConfig
from expert_cli.errors import InputError, IntegrityError
from expert_cli.inference.expert_config import GenerationConfig
from expert_cli.inference.prompts import PromptRenderer, trained_renderer
from expert_cli.manifest.keys.schema_prompt import SchemaPromptConfig
from expert_cli.model.kernels.attention import plain_attention
from expert_cli.model.kernels.attention_backends import loaded_with
from expert_cli.model.kernels.dequantize import dequantize_linears
from expert_cli.model.loading.base_model import LocalModel, locate_base
from expert_cli.model.loading.quantize import DTYPES, load_base
from expert_cli.model.tokenizer import load_tokenizer
from expert_cli.model.vocabulary_rows import spare_copies
from expert_cli.utils.reporter import Reporter
from expert_cli.utils.text import first_line

if TYPE_CHECKING:
    from transformers import PreTrainedModel

EXAMPLE = ("How many boats are there?", "CREATE TABLE boats (id INT)")
"""Prompt and input of the example in expert.json."""


def load_base_of(run: RunConfig, folder: Path, *, on_host: bool = False) -> PreTrainedModel:
    """Load the frozen base model with the run's quantization and dtype. on_host: on the CPU. Raises what `load_base` raises."""
    how: Any = {"quantization": run.model.quantization, "dtype": DTYPES[run.compute.dtype]}
    how |= {"device": "cpu" if on_host else run.compute.device, "attention": loaded_with(run.compute.attention)}
    return load_base(folder, rope_scaling=dict(run.model.rope_scaling), **how)


def expert_files(
    decoding: GenerationConfig, renderer: PromptRenderer, schema_prompt: SchemaPromptConfig | None = None
) -> tuple[dict[str, Any], ModelGenerationConfig]:
    """Return the contents of expert.json and generation_config.json.

    schema_prompt: how databases were shown in training. chat_template, chat_template_kwargs: as in the manifest, before the
    run's template was made from them. example: prompt, input, the resulting text, and its ids.
    """
    template, sampling, (prompt, below) = renderer.template, decoding.sampling(), EXAMPLE
    text = template.prompt([{"role": "user", "content": template.user_turn(prompt, below)}])
    document = {
        "template": template.name,
        "template_fingerprint": template.fingerprint,
        "system_prompt": template.system_prompt,
        "input_separator": template.input_separator,
        "example": {"prompt": prompt, "input": below, "text": text, "ids": renderer.encode_prompt(prompt, below)},
        "decoding": {"grammar": asdict(decoding.grammar) if decoding.grammar else None},
        "schema_prompt": asdict(replace(schema_prompt, databases="")) if schema_prompt else None,
        "chat_template": template.given,
        "chat_template_kwargs": dict(template.chat_template_kwargs),
        "schema_version": 1,
    }
    how: dict[str, Any] = {"max_new_tokens": decoding.max_new_tokens, "eos_token_id": renderer.ends, **sampling}
    how |= {"num_beams": decoding.num_beams} if decoding.num_beams > 1 else {}
    how |= {"stop_strings": [*decoding.stops]} if decoding.stops else {}
    return document, ModelGenerationConfig(**how, do_sample=bool(sampling))


@dataclass(frozen=True)
class Expert:
    """A base model with its adapter, ready to answer. Within `model.disable_adapter()`, it is the base model."""

    model: PeftModel
    source: LocalModel
    renderer: PromptRenderer


def open_expert(run: RunConfig, origin: AdapterOrigin, report: Reporter, *, widened: bool = False) -> Expert:
    """Load base model and adapter. widened: as for `load_adapted`. Raises InputError."""
    source = locate_base(run, report)
    origin.require_base(source.name, source.sha256)
    renderer = trained_renderer(run, load_tokenizer(source.folder), origin)
    unsealed = "" if origin.sealed else " (no COMPLETE says that its files are as they were written)"
    report.info(f"loading {source.name} with {origin.adapter}{unsealed}")
    return Expert(load_adapted(run, source, origin.adapter, widened=widened), source, renderer)


def load_adapted(run: RunConfig, source: LocalModel, adapter: Path, *, widened: bool = False) -> PeftModel:
    """Return the dequantized base model with an adapter, in one dtype, for inference.

    widened: for merging; the weights, rounded to the compute dtype, are converted to fp32, and the adapter keeps its dtype.
    """
    base = load_base_of(run, source.folder)
    dequantize_linears(base, DTYPES[run.compute.dtype])
    if widened:
        torch.nn.Module.float(base)  # transformers' own method refuses quantized models
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("error", ".*missing adapter keys", UserWarning)  # missing weights would be random
            how: Any = {"autocast_adapter_dtype": False, "torch_device": run.compute.device}
            model = PeftModel.from_pretrained(base, adapter, **how)
    except (RuntimeError, ValueError, KeyError, TypeError, UserWarning) as error:
        hint = "name the base model it was trained on: --base-model"
        raise InputError(f"{adapter} does not fit {source.name}: {first_line(error)}", hint) from error
    except (OSError, SafetensorError) as error:
        raise IntegrityError(f"{adapter} cannot be read: {error}", "train again") from error
    weights = next(p.dtype for p in base.get_input_embeddings().parameters())
    for parameter in model.parameters():
        if parameter.dtype == torch.float32 and weights != torch.float32:
            parameter.data = parameter.data.to(weights)
    spare_copies(model)
    model.eval()
    return model


def too_long(model: Any, prompt: int, answer: int) -> str:
    """Return a warning if a prompt and an answer, of so many tokens, exceed the positions of the base model; "" otherwise."""
    known, rope = (
        getattr(model.config, "max_position_embeddings", 0),
        getattr(model.config, "rope_parameters", None) or {},
    )
    most = max(known, int((rope.get("original_max_position_embeddings") or known) * rope.get("factor", 1)))
    told = f"a prompt of {prompt:,} tokens and an answer of up to {answer:,} exceed the base model's {most:,} positions"
    return told if 0 < most < prompt + answer else ""


@contextmanager
def generating(model: Any) -> Iterator[None]:
    """Switch to eval mode without compilation, with an attention that supports a KV cache; then restore the training state."""
    was_training = model.training
    base = model.get_base_model() if hasattr(model, "get_base_model") else model
    dtypes = {parameter.dtype for parameter in model.parameters() if parameter.is_floating_point()}
    low = next((dtype for dtype in (torch.bfloat16, torch.float16) if dtype in dtypes), None)
    # the publisher's generation_config would add sampling settings and penalties that a run does not set
    publishers, base.generation_config = base.generation_config, ModelGenerationConfig()
    model.eval()
    try:
        # compiled layers would be recompiled for every cache length
        eager = torch.compiler.set_stance("force_eager")
        with plain_attention(base), eager, torch.no_grad(), ExitStack() as stack:
            if low is not None and torch.float32 in dtypes:  # an adapter in training is fp32
                stack.enter_context(torch.autocast(model.device.type, dtype=low))
            yield
    finally:
        base.generation_config = publishers
        model.train(was_training)
