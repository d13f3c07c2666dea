"""The folder `adapter/` of a run: weights, the tokenizer with the run's chat template, how it is loaded and asked, the card.

base_model.json, "quantization_config" as transformers writes it into a config.json:

    {"name": "Qwen/Qwen3-0.6B", "address": "Qwen/Qwen3-0.6B", "sha256": ..., "quantization": "int4", "dtype": "bfloat16",
     "quantization_config": {"quant_method": "bitsandbytes", "load_in_4bit": true, ...}, "rope_parameters": {}, "template": ...}
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from transformers import BitsAndBytesConfig

from expert_cli.artifacts import model_card as cards
from expert_cli.config.adapter_origin import BASE, CONFIG, EXPERT_CONFIG, WEIGHTS
from expert_cli.config.plan import Plan
from expert_cli.config.run_config import RunConfig
from expert_cli.inference.expert import PromptRenderer
from expert_cli.inference.expert_config import ExpertConfig, decoding_of, expert_config
from expert_cli.model.loading.quantize import DTYPES, quantization_arguments, weights_dtype
from expert_cli.model.loading.sources import LocalModel
from expert_cli.runs.fit_result import FitResult
from expert_cli.runs.metrics import part, read_json
from expert_cli.runs.paths import RunPaths
from expert_cli.utils.files import json_text, remove, sha256_of, sync_folder, write_json, write_text

if TYPE_CHECKING:
    from peft import PeftModel


def save_adapter(
    model: PeftModel,
    source: LocalModel,
    renderer: PromptRenderer,
    plan: Plan,
    done: FitResult | None,
    paths: RunPaths,
    separators: tuple[str, str],
) -> str:
    """Write the adapter folder beside its place and rename it; return the hash of its weights.

    separators: of the JSON that was trained. The adapter's tokenizer writes prompts as training did, whatever chat template the
    base model has.
    """
    beside = paths.adapter.with_name(".adapter.tmp")
    remove(beside)  # of a run that was killed here
    model.save_pretrained(str(beside), safe_serialization=True)
    card = beside / "README.md"
    write_text(card, cards.model_card(plan, done, source.address))
    if told := part(read_json(paths.run_json), "init_adapter"):
        cards.put_section(card, cards.TRAINED_FROM, cards.trained_from_lines(told))
    asked = expert_config(decoding_of(plan.loaded.manifest, separators), renderer, plan.run.data.schema_prompt)
    describe(beside, plan.run, source, renderer, asked)
    sync_folder(beside)
    remove(paths.adapter)
    beside.rename(paths.adapter)
    return sha256_of(paths.adapter / WEIGHTS)


def describe(
    folder: Path,
    run: RunConfig,
    source: LocalModel,
    renderer: PromptRenderer,
    asked: ExpertConfig,
    prompt: str = cards.PROMPT,
) -> None:
    """Say beside an adapter's weights, configuration and card what its base model is, and how it is loaded and asked.

    The base model's address stands in the adapter's configuration, too, where PEFT looks for it. prompt: the card asks it.
    """
    held, compute, rope = run.model.quantization, DTYPES[run.compute.dtype], dict(run.model.rope_scaling)
    arguments, dtype = quantization_arguments(held, compute), weights_dtype(held, compute)
    base = {
        "name": run.model.name if source.kind in ("hub", "package") else source.address,
        "address": source.address,
        "sha256": source.sha256,
        "quantization": held,
        "dtype": str(dtype).removeprefix("torch."),
        "quantization_config": BitsAndBytesConfig(**arguments).to_dict() if arguments else None,
        "rope_parameters": rope,
        "template": renderer.template.fingerprint,
    }
    config = {**read_json(folder / CONFIG), "base_model_name_or_path": source.address}
    write_json(folder / BASE, base)
    write_json(folder / CONFIG, config)
    write_text(folder / EXPERT_CONFIG, json_text(asked.as_json()))
    renderer.tokenizer.hf.chat_template = renderer.template.jinja
    renderer.tokenizer.hf.save_pretrained(folder)
    if rope:  # all of the rotary positions, because they replace the model's
        rope = {**(read_json(source.folder / "config.json").get("rope_parameters") or {}), **rope}
    cards.put_usage(
        folder / "README.md",
        asked,
        prompt,
        source=source,
        base="base" if source.gguf and not source.hub_id else source.address,
        quantization=held,
        quantized=arguments,
        dtype=dtype,
        rope=rope,
        package=run.model.name.removeprefix("pypi:").partition("#")[0] if source.kind == "package" else "",
    )
    cards.put_token_rows(folder / "README.md", config, renderer.tokenizer.hf, cards.ROWS_OF_ADAPTER)
