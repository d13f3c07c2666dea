"""Configurations of axolotl."""

from __future__ import annotations

from typing import Any

from expert_cli.manifest.importers.axolotl_data import read_datasets
from expert_cli.manifest.importers.draft import Draft
from expert_cli.manifest.importers.rules import (
    Program,
    Rule,
    chosen,
    flag,
    number,
    only,
    own_template,
    refused,
    text,
    to,
    together,
    values,
    whole,
)
from expert_cli.manifest.importers.transformers_keys import (
    FULL,
    OPTIMIZER,
    PREFERENCES,
    SCHEDULER,
    SHARED,
    adapter_type,
    base_model,
    init_adapter,
    targets,
)
from expert_cli.manifest.importers.validation import ONCE_AN_EPOCH, evaluation, has_validation, validation_share

_TEMPLATES: dict[str, str] = {
    "alpaca": "alpaca",
    "chatml": "chatml",
    "llama3": "llama",
    "gemma": "gemma",
    "mistral_v2v3": "mistral",
    "phi_3": "phi",
    "phi_35": "phi",
    "deepseek_v3": "deepseek",
}
"""Its templates that write the same here."""
_OWN_TEMPLATE = "the tokenizer's own chat template is used, which a model that was trained with this one mostly has"


def _template(draft: Draft, key: str, value: Any) -> None:
    if value in ("tokenizer_default", "jinja"):
        draft.agree(key)
    else:
        to("prompt_template", chosen(_TEMPLATES, _OWN_TEMPLATE), "base")(draft, key, value)


def _all_linear(draft: Draft, key: str, value: Any) -> None:
    if value is True:
        draft.put(key, "config", "target_modules", "all-linear")
    else:
        draft.agree(key)


def _least_rate(draft: Draft, key: str, value: Any) -> None:
    draft.put(key, "config", "lr_scheduler", "cosine_with_min_lr")
    to("lr_scheduler_kwargs", lambda ratio: {"min_lr_rate": number(ratio)})(draft, key, value)


def _prompts(draft: Draft, key: str, value: Any) -> None:
    draft.put(key, "config", "completion_only_loss", value is not True)


def _finish(draft: Draft) -> None:
    """Decide what several keys say together."""
    read_datasets(draft)
    values, bits = draft.values, "none"
    if not values.get("adapter"):
        draft.refuse("adapter", FULL)
    for key, name in (("load_in_8bit", "int8"), ("load_in_4bit", "int4")):
        bits = name if values.get(key) is True else bits
    bits = "int4" if values.get("adapter") == "qlora" else bits
    draft.put("adapter", "base", "quantization", bits)
    size, micro = values.get("batch_size"), values.get("micro_batch_size")
    if isinstance(size, int) and isinstance(micro, int) and not draft.written.get("gradient_accumulation_steps"):
        draft.put("batch_size", "config", "gradient_accumulation_steps", max(size // max(micro, 1), 1))
    if draft.written.get("warmup_steps") is None and draft.written.get("warmup_ratio") is None:
        draft.put("warmup_ratio", "config", "warmup_ratio", 0.03)  # at most 100 steps there
    if draft.written.get("wandb_project"):
        draft.put("wandb_project", "config", "report_to", ["wandb"])
    has_rows = validation_share(draft, "val_set_size", values.get("val_set_size")) or has_validation(draft)
    evaluation(draft, has_rows=has_rows)


def _saves(draft: Draft, key: str, value: Any) -> None:
    if not value:
        draft.agree(key)
        return
    draft.put(key, "config", "save_strategy", "epoch")
    if value != 1:
        draft.lose(key, ONCE_AN_EPOCH)


_OTHER = "text alone is trained here, by an adapter on the model's own weights"
_REFUSED = "processor_type image_size gptq relora relora_steps use_eaft use_dynamic_finetuning kd_trainer qat"
_PREFERENCES = "rl trl reward_model process_reward_model"
KEYS: dict[str, Rule] = {
    **SHARED,
    **dict.fromkeys(_REFUSED.split(), refused(_OTHER)),
    **dict.fromkeys(_PREFERENCES.split(), refused(PREFERENCES)),
    "base_model": base_model,
    "adapter": only("lora", "qlora", otherwise="the adapters that are read from axolotl are lora and qlora"),
    "load_in_8bit": together,
    "load_in_4bit": together,
    "lora_model_dir": init_adapter,
    "lora_r": to("rank", whole),
    "lora_alpha": to("alpha", number),
    "lora_dropout": to("dropout", number),
    "lora_target_modules": targets,
    "lora_target_linear": _all_linear,
    "peft_use_dora": adapter_type("dora"),
    "peft_use_rslora": adapter_type("rslora"),
    "datasets": together,
    "test_datasets": together,
    "pretraining_dataset": refused(
        'whole texts are trained as rows: name them under datasets, with "type": completion'
    ),
    "val_set_size": together,
    "chat_template": _template,
    "chat_template_jinja": own_template,
    "chat_template_kwargs": to("chat_template_kwargs", values),
    "default_system_message": to("system_prompt", text),
    "train_on_inputs": _prompts,
    "sequence_len": to("max_seq_length", whole),
    "sample_packing": to("packing", flag),
    "excess_length_strategy": to(
        "overflow", chosen({"raise": "error", "drop": "drop", "truncate": "truncate"}, "not here")
    ),
    "dataset_exact_deduplication": lambda draft, key, value: draft.put(
        key, "dataset", "filters", {"deduplicate": value is True}
    ),
    "num_epochs": to("epochs", number),
    "micro_batch_size": to("batch_size", whole),
    "batch_size": together,
    "optimizer": OPTIMIZER,
    "lr_scheduler": SCHEDULER,
    "cosine_min_lr_ratio": _least_rate,
    "noisy_embedding_alpha": to("neftune_noise_alpha", number),
    "tf32": to("use_tf32", flag),
    "flash_attention": to("flash_attention_2", flag),
    "sdp_attention": to("use_sdpa", flag),
    "xformers_attention": to("memory_efficient_attention", flag),
    "eager_attention": lambda draft, key, value: draft.put(key, "config", "use_sdpa", value is not True),
    "evals_per_epoch": together,
    "saves_per_epoch": _saves,
    "wandb_project": together,
    "use_tensorboard": lambda draft, key, value: draft.put(
        key, "config", "report_to", ["tensorboard"] if value is True else "none"
    ),
}
AXOLOTL = Program(
    "axolotl",
    "base_model",
    KEYS,
    _finish,
    defaults={
        "sequence_len": 512,
        "sample_packing": False,
        "excess_length_strategy": "drop",
        "lora_target_modules": ["q_proj", "v_proj"],
    },
)
