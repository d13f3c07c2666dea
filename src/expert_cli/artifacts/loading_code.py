"""How an adapter is loaded without expert-cli: a file that other programs read, and lines of Python in its model card.

base_model.json beside an adapter, "quantization_config" as transformers writes it into a config.json:

    {"name": "Qwen/Qwen3-0.6B", "address": "Qwen/Qwen3-0.6B", "sha256": ..., "quantization": "int4", "dtype": "bfloat16",
     "quantization_config": {"quant_method": "bitsandbytes", "load_in_4bit": true, ...}, "rope_parameters": {}, "template": ...}
"""

from __future__ import annotations

import json
from importlib.resources import files
from pathlib import Path
from typing import Any

import jinja2
from transformers import BitsAndBytesConfig

from expert_cli.config.adapter_origin import BASE, CONFIG
from expert_cli.config.run_config import RunConfig
from expert_cli.inference.expert_config import ExpertConfig
from expert_cli.model.loading.quantize import DTYPES, quantization_arguments, weights_dtype
from expert_cli.model.loading.sources import LocalModel
from expert_cli.utils.files import write_json

SECTION = "Loading"
PROMPT = "Hello"
"""What the card's lines ask where there is no better prompt."""


def write_base(folder: Path, run: RunConfig, source: LocalModel, template: str) -> None:
    """Write base_model.json beside an adapter, and the base model's address into the adapter's config.

    template: the fingerprint of that of training. The address is the hub's id, or the model's folder on this machine: PEFT
    can load nothing else. The name in the manifest ("pypi:...", a GGUF file) stays in base_model.json.
    """
    arguments = quantization_arguments(run.model.quantization, DTYPES[run.compute.dtype])
    write_json(
        folder / BASE,
        {
            "name": run.model.name,
            "address": source.address,
            "sha256": source.sha256,
            "quantization": run.model.quantization,
            "dtype": str(weights_dtype(run.model.quantization, DTYPES[run.compute.dtype])).removeprefix("torch."),
            "quantization_config": BitsAndBytesConfig(**arguments).to_dict() if arguments else None,
            "rope_parameters": dict(run.model.rope_scaling),
            "template": template,
        },
    )
    config = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
    write_json(folder / CONFIG, {**config, "base_model_name_or_path": source.address})


def adapter_lines(run: RunConfig, source: LocalModel, asked: ExpertConfig, prompt: str = PROMPT) -> list[str]:
    """Return how transformers and PEFT load an adapter. prompt: a user's turn."""
    compute, name = DTYPES[run.compute.dtype], run.model.name
    rope = dict(run.model.rope_scaling)
    if rope:  # all of the rotary positions, because they replace the model's
        own = json.loads((source.folder / "config.json").read_text(encoding="utf-8")).get("rope_parameters")
        rope = {**(own or {}), **rope}
    return _filled(
        "load_adapter",
        quantization=run.model.quantization,
        source=source,
        dtype=weights_dtype(run.model.quantization, compute),
        quantized=quantization_arguments(run.model.quantization, compute),
        rope=rope,
        prompt=prompt,
        ends=sorted(asked.end_tokens.values()),
        stops=list(asked.decoding.stop_sequences),
        package=name.removeprefix("pypi:").partition("#")[0] if name.startswith("pypi:") else "",
    )


def whole_lines(asked: ExpertConfig, prompt: str, *, merged: bool, gguf: str) -> list[str]:
    """Return how a merged model, and a GGUF file of this name ("": there is none), are loaded."""
    stops = list(asked.decoding.stop_sequences)
    return _filled("load_whole", prompt=prompt, merged=merged, gguf=gguf, stops=stops)


def _filled(template: str, **values: Any) -> list[str]:
    """Return the lines of a template; they are Markdown, so nothing is escaped."""
    text = files("expert_cli.artifacts").joinpath(f"page/{template}.md.j2").read_text(encoding="utf-8")
    filled: jinja2.Template = jinja2.Template(
        text, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    return filled.render(values, spelled=_spelled).removesuffix("\n").split("\n")


def _spelled(value: Any) -> str:
    """Return a value as Python writes it, a text in double quotes."""
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else repr(value)
