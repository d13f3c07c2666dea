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
    lost,
    number,
    only,
    own_template,
    refused,
    same,
    text,
    to,
    together,
    values,
    whole,
)
from expert_cli.manifest.importers.transformers_keys import (
    BY_ITSELF,
    CORES,
    FULL,
    KERNELS,
    MULTIMODAL,
    NOT_SPLIT,
    OPTIMIZER,
    OTHER_LOSS,
    PADDING,
    PARTS,
    PLUS,
    PREFERENCES,
    SCHEDULER,
    SHARED,
    START,
    STORES,
    STREAMED,
    TOKENS,
    WANDB,
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
_MODEL = "the model's own configuration says it"
_PLUGINS = ("liger", "cut_cross_entropy", "spectrum")


def _template(draft: Draft, key: str, value: Any) -> None:
    if value in ("tokenizer_default", "jinja"):
        draft.agree(key)
    else:
        to("prompt_template", chosen(_TEMPLATES, _OWN_TEMPLATE), "base")(draft, key, value)


def _plugins(draft: Draft, key: str, value: Any) -> None:
    for plugin in value if isinstance(value, list) else [value]:
        known = any(name in str(plugin) for name in _PLUGINS)
        draft.lose(key, KERNELS if known else "no code of axolotl's plugins runs here", str(plugin))


def _all_linear(draft: Draft, key: str, value: Any) -> None:
    if value is True:
        draft.put(key, "config", "target_modules", "all-linear")
    else:
        draft.agree(key)


def _special_tokens(draft: Draft, key: str, value: Any) -> None:
    draft.lose(key, PADDING if isinstance(value, dict) and [*value] == ["pad_token"] else TOKENS)


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


_KERNELS = (
    "use_kernels use_scattermoe use_sonicmoe fused_attn_kernel experts_implementation llama4_linearized_experts "
    "liger_rms_norm_gated lora_mlp_kernel lora_qkv_kernel lora_o_kernel flash_attn_cross_entropy flash_attn_rms_norm "
    "flash_attn_fuse_qkv flash_attn_fuse_mlp liger_rope liger_rms_norm liger_glu_activation "
    "liger_layer_norm liger_fused_linear_cross_entropy cut_cross_entropy chunked_cross_entropy"
)
_SPLIT = (
    "fsdp_version context_parallel_size tensor_parallel_size sequence_parallel_degree dp_shard_size "
    "dp_replicate_size expert_parallel_size device_map"
)
_OF_MODEL = (
    "base_model_config model_type tokenizer_type is_llama_derived_model is_mistral_derived_model "
    "is_falcon_derived_model is_qwen_derived_model"
)
_BY_MACHINE = "lora_on_cpu peft_autocast_adapter_dtype local_rank low_cpu_mem_usage"
KEYS: dict[str, Rule] = {
    **SHARED,
    **dict.fromkeys(_KERNELS.split(), lost(KERNELS)),
    **dict.fromkeys(_SPLIT.split(), lost(NOT_SPLIT)),
    **dict.fromkeys(_OF_MODEL.split(), lost(_MODEL)),
    **dict.fromkeys(_BY_MACHINE.split(), lost(BY_ITSELF)),
    "base_model": base_model,
    "tokenizer_config": lost("the tokenizer is the one beside the model"),
    "tokenizer_use_fast": same(True, otherwise="tokenizers are the fast ones"),
    "revision_of_model": lost("the newest revision is loaded; name a folder for another one"),
    "overrides_of_model_config": lost("a model's configuration stays as it is"),
    "rope_scaling": lost("write base_models[i].rope_scaling, in the form of the model's configuration"),
    "processor_type": refused(MULTIMODAL),
    "image_size": refused(MULTIMODAL),
    "strict": lost("an unknown key of a manifest is always an error"),
    "adapter": only("lora", "qlora", otherwise="the adapters that are read from axolotl are lora and qlora"),
    "load_in_8bit": together,
    "load_in_4bit": together,
    "gptq": refused("weights that GPTQ packed are not trained on here: name the model's own weights"),
    "lora_model_dir": init_adapter,
    "lora_r": to("rank", whole),
    "lora_alpha": to("alpha", number),
    "lora_dropout": to("dropout", number),
    "lora_target_modules": targets,
    "lora_target_linear": _all_linear,
    "lora_target_parameters": lost("adapters lie on linear layers"),
    "lora_fan_in_fan_out": lost("PEFT finds it out"),
    "lora_modules_to_save": lost(PARTS),
    "loraplus_lr_ratio": lost(PLUS),
    "loraplus_lr_embedding": lost(PLUS),
    "loftq_config": lost(START),
    "peft": lost(START),
    "peft_init_lora_weights": lost(START),
    "peft_layers_to_transform": lost("every layer gets an adapter"),
    "peft_use_dora": adapter_type("dora"),
    "peft_use_rslora": adapter_type("rslora"),
    "bnb_config_kwargs": lost("int4 is NF4 with double quantization"),
    "unfrozen_parameters": lost("the base model's weights stay frozen beside an adapter"),
    "relora": refused("an adapter is not merged and begun anew while it trains"),
    "relora_steps": refused("an adapter is not merged and begun anew while it trains"),
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
    "eot_tokens": lost("the end of a turn is the template's, and it is trained"),
    "special_tokens": _special_tokens,
    "tokens": lost(TOKENS),
    "added_tokens_overrides": lost(TOKENS),
    "resize_token_embeddings_to_32x": lost(TOKENS),
    "sequence_len": to("max_seq_length", whole),
    "eval_sequence_len": lost("evaluation has the length of training"),
    "sample_packing": to("packing", flag),
    "eval_sample_packing": lost("validation rows are laid out like training rows"),
    "sample_packing_group_size": lost("packs are filled from all rows"),
    "sample_packing_bin_size": lost("packs are filled from all rows"),
    "pad_to_sequence_len": lost("rows are padded to the longest of their batch, packs are full"),
    "batch_flattening": lost("packing does it"),
    "multipack_real_batches": lost("packs of one batch lie side by side"),
    "excess_length_strategy": to(
        "overflow", chosen({"raise": "error", "drop": "drop", "truncate": "truncate"}, "not here")
    ),
    "curriculum_sampling": lost("rows come in an order that the seed draws"),
    "dataset_prepared_path": lost(STORES),
    "dataset_processes": lost(CORES),
    "dataset_num_proc": lost(CORES),
    "dataset_keep_in_memory": lost("token stores are read from the disk as needed"),
    "dataset_exact_deduplication": lambda draft, key, value: draft.put(
        key, "dataset", "filters", {"deduplicate": value is True}
    ),
    "shuffle_merged_datasets": same(True, otherwise="rows come in an order that the seed draws"),
    "skip_prepare_dataset": lost("rows are tokenized before training"),
    "streaming": lost(STREAMED),
    "num_epochs": to("epochs", number),
    "micro_batch_size": to("batch_size", whole),
    "batch_size": together,
    "eval_batch_size": lost("evaluation has the batches of training"),
    "optimizer": OPTIMIZER,
    "lr_scheduler": SCHEDULER,
    "cosine_min_lr_ratio": _least_rate,
    "cosine_constant_lr_ratio": lost("no scheduler here has it"),
    "lr_groups": lost(PLUS),
    "embedding_lr": lost(PLUS),
    "noisy_embedding_alpha": to("neftune_noise_alpha", number),
    "tf32": to("use_tf32", flag),
    "bfloat16": lost("bf16 says it"),
    "float16": lost("fp16 says it"),
    "flash_attention": to("flash_attention_2", flag),
    "sdp_attention": to("use_sdpa", flag),
    "xformers_attention": to("memory_efficient_attention", flag),
    "flex_attention": lost("not here; the plan of a run names the kernels that are used"),
    "eager_attention": lambda draft, key, value: draft.put(key, "config", "use_sdpa", value is not True),
    "plugins": _plugins,
    "evals_per_epoch": together,
    "eval_table_size": lost("the report shows answers to cases (tests/cases.jsonl)"),
    "eval_max_new_tokens": lost("the report shows answers to cases (tests/cases.jsonl)"),
    "saves_per_epoch": _saves,
    "save_first_step": lost("checkpoints come by time, steps or epochs"),
    "wandb_project": together,
    **dict.fromkeys(("wandb_entity", "wandb_watch", "wandb_name", "wandb_log_model", "wandb_run_id"), lost(WANDB)),
    "use_tensorboard": lambda draft, key, value: draft.put(
        key, "config", "report_to", ["tensorboard"] if value is True else "none"
    ),
    "gc_steps": lost("the allocator reuses freed memory by itself"),
    "loss_watchdog_threshold": lost("a run whose loss is not finite stops by itself"),
    "loss_watchdog_patience": lost("a run whose loss is not finite stops by itself"),
    "rl": refused(PREFERENCES),
    "trl": refused(PREFERENCES),
    "reward_model": refused(PREFERENCES),
    "process_reward_model": refused(PREFERENCES),
    "kd_trainer": refused(OTHER_LOSS),
    "use_eaft": refused(OTHER_LOSS),
    "use_dynamic_finetuning": refused(OTHER_LOSS),
    "qat": refused("no training here computes as if weights were quantized later"),
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
