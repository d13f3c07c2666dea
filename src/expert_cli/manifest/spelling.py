"""The nearest known name of a key that is not known, names of other tools included."""

from __future__ import annotations

from collections.abc import Iterable

from rapidfuzz.distance import DamerauLevenshtein

_ELSEWHERE = {
    "batch_size": "per_device_train_batch_size train_batch_size micro_batch_size",
    "epochs": "num_train_epochs",
    "rank": "lora_r r lora_rank",
    "alpha": "lora_alpha",
    "dropout": "lora_dropout",
    "target_modules": "lora_target_modules lora_target",
    "max_seq_length": "sequence_len cutoff_len max_length model_max_length",
    "packing": "sample_packing",
    "learning_rate": "lr",
    "lr_scheduler": "lr_scheduler_type scheduler",
    "gradient_accumulation_steps": "grad_accum grad_accumulation_steps",
    "max_grad_norm": "gradient_clipping max_gradient_norm",
    "use_tf32": "tf32",
    "use_sdpa": "sdp_attention",
    "flash_attention_2": "flash_attention flash_attn",
    "optim": "optimizer",
    "dataloader_num_workers": "num_workers",
    "completion_only_loss": "train_on_inputs train_on_prompt assistant_only_loss",
    "chat_template_path": "chat_template_jinja",
    "adapter_type": "peft_type use_dora use_rslora",
    "quantization": "load_in_4bit load_in_8bit",
    "text_field": "dataset_text_field",
    "name": "model_name",
    "base_models": "model",
    "prompt_template": "chat_template",
    "system_prompt": "default_system_message default_system new_system_prompt system_message system",
    "validation_split": "val_set_size",
    "instruction": "prompt question",
    "input": "context",
    "response": "output answer completion",
    "messages": "conversations field_messages",
    "system": "field_system",
    "tools": "field_tools",
    "role": "role_tag message_field_role",
    "content": "content_tag message_field_content",
}
OTHER_TOOLS = {name: ours for ours, names in _ELSEWHERE.items() for name in names.split()}
"""What other trainers call a thing, and its name here."""
BY_HAND = {
    "train_on_inputs": "it means the opposite",
    "train_on_prompt": "it means the opposite",
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
    distance, name = min(((DamerauLevenshtein.distance(plain, name), name) for name in known), default=(0, ""))
    return name if distance <= max(1, len(name) // 4) and len(name) > 2 else ""
