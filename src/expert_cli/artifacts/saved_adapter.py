"""The folder `adapter/` of a run: weights, the tokenizer with the run's chat template, how it is loaded and asked, the card.

base_model.json says what the base model was in training, "quantization_config" as transformers writes it into a config.json.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from peft import PeftModel
from transformers import BitsAndBytesConfig

from expert_cli.artifacts import model_card as cards
from expert_cli.config.adapter_origin import BASE, CONFIG, WEIGHTS
from expert_cli.config.plan import Plan
from expert_cli.config.run_config import RunConfig
from expert_cli.inference.expert import PromptRenderer, expert_config
from expert_cli.inference.expert_config import ExpertConfig, decoding_of
from expert_cli.model.loading.base_model import LocalModel
from expert_cli.model.loading.quantize import DTYPES, quantization_arguments, weights_dtype
from expert_cli.runs.fit_result import FitResult
from expert_cli.runs.metrics import part, read_json
from expert_cli.runs.run_paths import RunPaths
from expert_cli.utils.files import remove, sha256_of, sync_folder, write_json, write_text


def save_adapter(
    model: PeftModel,
    source: LocalModel,
    renderer: PromptRenderer,
    plan: Plan,
    done: FitResult | None,
    paths: RunPaths,
    separators: tuple[str, str],
) -> str:
    """Write the adapter folder beside its place and rename it; return its weights' hash. separators: of the trained JSON."""
    beside = paths.adapter.with_name(".adapter.tmp")
    remove(beside)  # of a run that was killed here
    model.save_pretrained(str(beside), safe_serialization=True)
    write_text(beside / "README.md", cards.model_card(plan, done, source.address))
    if told := part(read_json(paths.run_json), "init_adapter"):
        cards.put_section(beside / "README.md", "Trained on from", cards.trained_from_lines(told))
    asked = expert_config(decoding_of(plan.loaded.manifest, separators), renderer, plan.run.data.schema_prompt)
    describe(beside, plan.run, source, renderer, asked, cards.PROMPT)
    sync_folder(beside)
    remove(paths.adapter)
    beside.rename(paths.adapter)
    return sha256_of(paths.adapter / WEIGHTS)


def describe(
    folder: Path, run: RunConfig, source: LocalModel, renderer: PromptRenderer, asked: ExpertConfig, prompt: str
) -> None:
    """Say beside an adapter's weights, in its configuration and its card, what its base model is and how it is asked."""
    held, compute, rope = run.model.quantization, DTYPES[run.compute.dtype], dict(run.model.rope_scaling)
    quantized, dtype = quantization_arguments(held, compute), weights_dtype(held, compute)
    name = run.model.name if source.kind in ("hub", "package") else source.address
    told: dict[str, Any] = {"name": name, "address": source.address, "sha256": source.sha256, "quantization": held}
    told |= {"dtype": str(dtype).removeprefix("torch."), "rope_parameters": rope}
    told |= {"quantization_config": BitsAndBytesConfig(**quantized).to_dict() if quantized else None}
    config = {**read_json(folder / CONFIG), "base_model_name_or_path": source.address}
    write_json(folder / BASE, {**told, "template": renderer.template.fingerprint})
    write_json(folder / CONFIG, config)
    renderer.tokenizer.hf.chat_template = renderer.template.jinja
    renderer.tokenizer.hf.save_pretrained(folder)
    if rope:  # all of the rotary positions, because they replace the model's
        rope = {**(read_json(source.folder / "config.json").get("rope_parameters") or {}), **rope}
    base = "base" if source.gguf and not source.hub_id else source.address
    values = {"held": held, "quantized": quantized, "dtype": dtype, "rope": rope, "package": source.kind == "package"}
    cards.put_usage(folder / "README.md", asked, prompt, source=source, base=base, **values)
    cards.put_token_rows(folder / "README.md", config, renderer.tokenizer.hf, is_adapter=True)
