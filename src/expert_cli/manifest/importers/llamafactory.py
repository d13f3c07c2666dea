"""Configurations of LLaMA-Factory."""

from __future__ import annotations

from typing import Any

from expert_cli.manifest.importers.axolotl_data import PREAMBLE
from expert_cli.manifest.importers.draft import Draft
from expert_cli.manifest.importers.llamafactory_data import read_data
from expert_cli.manifest.importers.rules import (
    Program,
    Rule,
    flag,
    lost,
    number,
    only,
    refused,
    same,
    text,
    to,
    together,
    whole,
)
from expert_cli.manifest.importers.transformers_keys import (
    CORES,
    FULL,
    KERNELS,
    KEYS,
    MULTIMODAL,
    OTHER_LOSS,
    PARTS,
    PLUS,
    PREFERENCES,
    START,
    STORES,
    STREAMED,
    TOKENS,
    adapter_type,
    attention,
    base_model,
    init_adapter,
    targets,
)
from expert_cli.manifest.importers.validation import evaluation, has_validation, validation_share

_TEMPLATES = {
    "alpaca": "alpaca",
    "chatml": "chatml",
    "qwen3_nothink": "qwen3",
    "llama3": "llama",
    "gemma": "gemma",
    "mistral": "mistral",
    "phi": "phi",
    "deepseek3": "deepseek",
}
"""Its templates that write the same here; qwen3 writes think blocks, as the tokenizer's own does."""
_FLASH = {"fa2": "flash_attention_2", "fa3": "flash_attention_3", "disabled": "eager"}
_OPTIMIZERS = ("use_galore", "use_apollo", "use_badam", "use_adam_mini", "use_muon")


def _template(draft: Draft, key: str, value: Any) -> None:
    """Write the template of prompts, and Alpaca's with its system message."""
    if str(value) not in _TEMPLATES:
        draft.lose(key, "the tokenizer's own chat template is used, which a chat model was trained with")
        return
    draft.put(key, "base", "prompt_template", _TEMPLATES[value])
    if value == "alpaca" and not draft.written.get("default_system"):
        draft.put(key, "config", "system_prompt", PREAMBLE)


def _attention(draft: Draft, key: str, value: Any) -> None:
    attention(draft, key, _FLASH.get(str(value), value))


def _bits(draft: Draft, key: str, value: Any) -> None:
    if value in (4, 8):
        draft.put(key, "base", "quantization", f"int{value}")
    else:
        draft.lose(key, "base weights are held in 4 bits, 8 bits or whole; here whole")


def _negated(name: str) -> Rule:
    return to(name, lambda value: not flag(value))


def _reentrant(draft: Draft, key: str, value: Any) -> None:
    draft.put(key, "config", "gradient_checkpointing_kwargs", {"use_reentrant": value is True})


def _finish(draft: Draft) -> None:
    """Decide what several keys say together."""
    if "quantization" not in draft.blocks["base"]:
        draft.put("quantization_bit", "base", "quantization", "none")
    rank = draft.values.get("lora_rank")
    if not draft.written.get("lora_alpha") and isinstance(rank, int):
        draft.put("lora_alpha", "config", "alpha", 2 * rank)
    read_data(draft)
    has_rows = validation_share(draft, "val_size", draft.values.get("val_size")) or has_validation(draft)
    evaluation(draft, has_rows=has_rows)


def _finetuning(draft: Draft, key: str, value: Any) -> None:
    if value == "lora":
        draft.agree(key)
    else:
        draft.refuse(
            key, FULL if value in ("full", "freeze") else "the adapter that is read from LLaMA-Factory is lora"
        )


_KEYS: dict[str, Rule] = {
    **KEYS,
    "model_name_or_path": base_model,
    "adapter_name_or_path": init_adapter,
    "stage": only("sft", "pt", otherwise=PREFERENCES),
    "finetuning_type": _finetuning,
    "lora_rank": to("rank", whole),
    "lora_alpha": to("alpha", number),
    "lora_dropout": to("dropout", number),
    "lora_target": targets,
    "use_dora": adapter_type("dora"),
    "use_rslora": adapter_type("rslora"),
    "loraplus_lr_ratio": lost(PLUS),
    "loraplus_lr_embedding": lost(PLUS),
    "pissa_init": lost(START),
    "pissa_iter": lost(START),
    "pissa_convert": lost(START),
    "additional_target": lost(PARTS),
    "create_new_adapter": lost("training goes on with the adapter that is named"),
    "quantization_bit": _bits,
    "quantization_method": same("bnb", "bitsandbytes", "bnb_4bit", otherwise="weights are quantized by bitsandbytes"),
    "quantization_type": same("nf4", otherwise="int4 is NF4"),
    "double_quantization": same(True, otherwise="int4 has double quantization"),
    "model_revision": same("main", otherwise="the newest revision is loaded; name a folder for another one"),
    "rope_scaling": lost("write base_models[i].rope_scaling, in the form of the model's configuration"),
    "flash_attn": _attention,
    "shift_attn": refused("attention stays that of the model"),
    "mixture_of_depths": refused("the model's layers stay as they are"),
    "use_llama_pro": refused(FULL),
    "train_from_scratch": refused(FULL),
    "pure_bf16": to("bf16", flag),
    "disable_gradient_checkpointing": _negated("gradient_checkpointing"),
    "use_reentrant_gc": _reentrant,
    "use_unsloth": lost("the training step here is the tool's own"),
    "use_unsloth_gc": lost("activations are recomputed here and not moved to the CPU"),
    "enable_liger_kernel": lost(KERNELS),
    "upcast_layernorm": lost("norms are computed as the model has them"),
    "resize_vocab": lost(TOKENS),
    "add_tokens": lost(TOKENS),
    "add_special_tokens": lost(TOKENS),
    "split_special_tokens": lost("control tokens in a user's text are always text"),
    "dataset": together,
    "eval_dataset": together,
    "dataset_dir": together,
    "max_samples": together,
    "media_dir": refused(MULTIMODAL),
    **dict.fromkeys(
        ("image_max_pixels", "video_max_pixels", "freeze_vision_tower", "freeze_multi_modal_projector"),
        refused(MULTIMODAL),
    ),
    "val_size": together,
    "template": _template,
    "default_system": to("system_prompt", text),
    "tool_format": lost("the tokenizer's own chat template writes tools"),
    "enable_thinking": to("chat_template_kwargs", lambda value: {"enable_thinking": flag(value)}),
    "cutoff_len": to("max_seq_length", whole),
    "packing": to("packing", flag),
    "neat_packing": to("packing", flag),
    "train_on_prompt": _negated("completion_only_loss"),
    "mask_history": to("mask_history", flag),
    "mix_strategy": same("concat", otherwise="rows of all data sets are mixed by the seed; a task has a weight"),
    "interleave_probs": lost("write tasks.NAME.weight"),
    "streaming": lost(STREAMED),
    "buffer_size": lost(STREAMED),
    "overwrite_cache": lost(STORES),
    "tokenized_path": lost(STORES),
    "preprocessing_num_workers": lost(CORES),
    "preprocessing_batch_size": lost(CORES),
    "cache_dir": lost("models are kept in the hub client's cache"),
    "plot_loss": lost("report.html draws the losses"),
    "compute_accuracy": lost("`expert-cli evaluate` answers and judges cases"),
    "predict_with_generate": lost("`expert-cli evaluate` answers and judges cases"),
    "early_stopping_steps": to("early_stopping_patience", whole),
    "disable_shuffling": lost("rows come in an order that the seed draws"),
    "use_dft_loss": refused(OTHER_LOSS),
    "use_eaft_loss": refused(OTHER_LOSS),
    "use_asft_loss": refused(OTHER_LOSS),
    **dict.fromkeys(_OPTIMIZERS, lost("not here; adamw_torch_fused is used, for which the learning rate may not fit")),
    **dict.fromkeys(("pref_beta", "pref_loss", "pref_ftx", "ref_model", "reward_model"), refused(PREFERENCES)),
    "use_swanlab": lost("metrics go to tensorboard, trackio or wandb"),
    "ray_run_name": lost("a run is started by itself, or by torchrun"),
    "ray_storage_path": lost("a run is started by itself, or by torchrun"),
    "ray_num_workers": lost("a run is started by itself, or by torchrun"),
    "placement_strategy": lost("a run is started by itself, or by torchrun"),
    "resources_per_worker": lost("a run is started by itself, or by torchrun"),
    "use_kt": lost("a model is not split over devices here"),
    "infer_backend": lost("`expert-cli chat` answers, `export` writes files for other programs"),
}
LLAMAFACTORY = Program(
    "LLaMA-Factory",
    "model_name_or_path",
    _KEYS,
    _finish,
    defaults={
        "lora_rank": 8,
        "learning_rate": 5e-5,
        "num_train_epochs": 3,
        "per_device_train_batch_size": 8,
        "lr_scheduler_type": "linear",
        "packing": False,
        "disable_gradient_checkpointing": False,
    },
)
