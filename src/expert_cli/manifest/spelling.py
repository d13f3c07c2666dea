"""The nearest known name of a key that is not known, names of other tools included."""

from __future__ import annotations

from collections.abc import Iterable

from pydantic import BaseModel
from rapidfuzz.distance import DamerauLevenshtein

OTHER_TOOLS = {
    "per_device_train_batch_size": "batch_size",
    "train_batch_size": "batch_size",
    "micro_batch_size": "batch_size",
    "num_train_epochs": "epochs",
    "lora_r": "rank",
    "r": "rank",
    "lora_rank": "rank",
    "lora_alpha": "alpha",
    "lora_dropout": "dropout",
    "lora_target_modules": "target_modules",
    "lora_target": "target_modules",
    "sequence_len": "max_seq_length",
    "cutoff_len": "max_seq_length",
    "max_length": "max_seq_length",
    "model_max_length": "max_seq_length",
    "sample_packing": "packing",
    "lr": "learning_rate",
    "lr_scheduler_type": "lr_scheduler",
    "scheduler": "lr_scheduler",
    "grad_accum": "gradient_accumulation_steps",
    "grad_accumulation_steps": "gradient_accumulation_steps",
    "gradient_clipping": "max_grad_norm",
    "max_gradient_norm": "max_grad_norm",
    "tf32": "use_tf32",
    "sdp_attention": "use_sdpa",
    "flash_attention": "flash_attention_2",
    "flash_attn": "flash_attention_2",
    "optimizer": "optim",
    "num_workers": "dataloader_num_workers",
    "train_on_inputs": "completion_only_loss",
    "peft_type": "adapter_type",
    "load_in_4bit": "quantization",
    "load_in_8bit": "quantization",
    "use_dora": "adapter_type",
    "use_rslora": "adapter_type",
    "dataset_text_field": "text_field",
    "model_name": "name",
    "model": "base_models",
    "chat_template": "prompt_template",
    "default_system_message": "system_prompt",
    "default_system": "system_prompt",
    "new_system_prompt": "system_prompt",
    "system_message": "system_prompt",
    "system": "system_prompt",
    "val_set_size": "validation_split",
    "prompt": "instruction",
    "question": "instruction",
    "context": "input",
    "output": "response",
    "answer": "response",
    "completion": "response",
    "conversations": "messages",
}
"""What other trainers call a thing, and its name here."""
BY_HAND = {
    "train_on_inputs": "it means the opposite",
    "load_in_4bit": 'true is written "int4" there',
    "load_in_8bit": 'true is written "int8" there',
    "use_dora": 'true is written "dora" there',
    "use_rslora": 'true is written "rslora" there',
}
"""Names of other tools whose values do not go with the name here, and why."""


def nearest(key: str, known: Iterable[str]) -> str:
    """Return the known name meant by `key`: another tool's name for it, or a close spelling; "" if there is none."""
    names = list(known)
    translated = OTHER_TOOLS.get(key.lower(), "")
    if translated in names:
        return translated
    return typo_of(key, names)


def typo_of(key: str, known: Iterable[str]) -> str:
    """Return the known name that `key` misspells (at most a quarter of its letters, swapped ones count once), or ""."""
    plain = key.lower().replace("-", "_")
    ranked = sorted((DamerauLevenshtein.distance(plain, name), name) for name in known)
    if not ranked:
        return ""
    distance, name = ranked[0]
    return name if distance <= max(1, len(name) // 4) and len(name) > 2 else ""


def field_names(block: type[BaseModel]) -> list[str]:
    """Return the keys a block knows."""
    return list(block.model_fields)
