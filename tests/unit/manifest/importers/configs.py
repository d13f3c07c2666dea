"""Small configurations of each trainer, and what they become."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from expert_cli.manifest.importers.registry import Imported, import_config

AXOLOTL = """
base_model: Qwen/Qwen3-0.6B
adapter: qlora
load_in_4bit: true
datasets:
  - path: corpora/tickets
    type: chat_template
sequence_len: 1024
sample_packing: true
lora_r: 8
lora_alpha: 16
lora_target_linear: true
micro_batch_size: 2
gradient_accumulation_steps: 4
num_epochs: 3
learning_rate: 2e-4
optimizer: adamw_bnb_8bit
lr_scheduler: cosine
warmup_ratio: 0.1
"""
TRL = """
model_name_or_path: Qwen/Qwen3-0.6B
use_peft: true
dataset_name: corpora/tickets
assistant_only_loss: true
"""
SMALL = {"axolotl": AXOLOTL, "TRL": TRL}


def imported(folder: Path, text: str, name: str = "config.yml") -> Imported:
    """Return what a configuration becomes that lies in `folder`, for the expert `folder`/boats."""
    (folder / name).write_text(text, encoding="utf-8")
    return import_config(folder / name, "boats", folder / "boats")


def config_of(made: Imported) -> dict[str, Any]:
    """Return `training.config` of the manifest, without its comments."""
    return {key: value for key, value in made.manifest["training"]["config"].items() if key[0] != "_"}


def dataset_of(made: Imported) -> dict[str, Any]:
    """Return `training.dataset` of the manifest."""
    return dict(made.manifest["training"]["dataset"])


def reasons(made: Imported) -> dict[str, str]:
    """Return why each key was not carried over."""
    return {one.key: one.reason for one in made.not_carried}
