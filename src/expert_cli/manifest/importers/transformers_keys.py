"""The keys of transformers' TrainingArguments, which TRL's configurations have, too."""

from __future__ import annotations

from typing import Any, get_args

from expert_cli.manifest.importers.draft import Draft
from expert_cli.manifest.importers.rules import (
    NOTHING,
    Rule,
    chosen,
    flag,
    listed,
    number,
    numbers,
    only,
    refused,
    text,
    to,
    together,
    whole,
)
from expert_cli.manifest.importers.validation import EVALUATION
from expert_cli.manifest.keys.log_save_eval import ReportTo
from expert_cli.manifest.keys.optim import OPTIMIZERS, SCHEDULERS

FULL = (
    "all weights would be trained; here an adapter is: take TRL, axolotl or torchtitan, or write a LoRA configuration"
)
PREFERENCES = "preferences and rewards are TRL's own (docs/RECIPES.md)"
OTHER_LOSS = "the loss here is the cross entropy of the answers' tokens"

_OPTIMIZERS = {
    "adamw_hf": "adamw_torch",
    "adamw_apex_fused": "adamw_torch_fused",
    "adamw_torch_npu_fused": "adamw_torch_fused",
    "adamw_torch_xla": "adamw_torch",
    "adamw_torch_8bit": "adamw_8bit",
    "lion": "lion_32bit",
    **{name: name for name in OPTIMIZERS},
}
OPTIMIZER = to(
    "optim", chosen(_OPTIMIZERS, "not here; adamw_torch_fused is used, for which the learning rate may not fit")
)
SCHEDULER = to("lr_scheduler", chosen({name: name for name in SCHEDULERS}, "not here; cosine is used"))
_TARGETS = get_args(ReportTo)


def base_model(draft: Draft, key: str, value: Any) -> None:
    """The base model: a hub id, or a folder as it lies from the manifest."""
    draft.put(key, "base", "name", draft.path(str(value)))


def init_adapter(draft: Draft, key: str, value: Any) -> None:
    """The adapter that training goes on from."""
    draft.put(key, "config", "init_adapter", draft.path(str(value)))


def adapter_type(name: str) -> Rule:
    """Another kind of adapter than lora, where it is asked for."""

    def rule(draft: Draft, key: str, value: Any) -> None:
        if value in NOTHING:
            draft.agree(key)
        else:
            draft.put(key, "config", "adapter_type", name)

    return rule


def warmup(draft: Draft, key: str, value: Any) -> None:
    """Steps of a warm-up, a share of all steps where they are below 1."""
    try:
        steps = number(value)
    except ValueError as error:
        draft.lose(key, str(error))
        return
    draft.put(key, "config", "warmup_ratio" if 0 < steps < 1 else "warmup_steps", steps)


def precision(draft: Draft, key: str, value: Any) -> None:
    """bf16 or fp16; auto is what happens here where nothing is written."""
    if value == "auto":
        draft.agree(key)
    else:
        to(key, lambda value: value == "full" or flag(value))(draft, key, value)


def checkpointing(draft: Draft, key: str, value: Any) -> None:
    """Recomputing activations; kinds of it that offload them are recomputed here."""
    if isinstance(value, str) and value.lower() not in ("true", "false"):
        draft.put(key, "config", "gradient_checkpointing", True)
        draft.lose(key, "activations are recomputed here and not moved to the CPU")
    else:
        to("gradient_checkpointing", flag)(draft, key, value)


def checkpointing_kwargs(draft: Draft, key: str, value: Any) -> None:
    """Settings of it, of which there is one here."""
    told = value if isinstance(value, dict) else {"": value}
    draft.agree(key)
    if "use_reentrant" in told:
        draft.put(key, "config", "gradient_checkpointing_kwargs", {"use_reentrant": told["use_reentrant"]})
    for name in told:
        if name != "use_reentrant":
            draft.lose(f"{key}.{name}".rstrip("."), "use_reentrant is the only setting of it here", told[name])


def attention(draft: Draft, key: str, value: Any) -> None:
    """The implementation of attention."""
    if value == "auto":
        draft.agree(key)
    elif value in ("flash_attention_2", "flash_attention_3"):
        draft.put(key, "config", "flash_attention_2", True)
    elif value in ("sdpa", "eager"):
        draft.put(key, "config", "use_sdpa", value == "sdpa")
    else:
        draft.lose(key, "not here; flash-attn and PyTorch's own kernels are, and the plan of a run names what is used")


def fsdp(draft: Draft, key: str, value: Any) -> None:
    """Whether the base model is shared out: true, or words of which `full_shard` asks for it and `auto_wrap` for nothing."""
    words = value.split() if isinstance(value, str) else value if isinstance(value, list) else []
    if value is True or {*words} in ({"full_shard"}, {"full_shard", "auto_wrap"}):
        draft.put(key, "config", "fsdp", True)
    else:
        draft.lose(key, "fsdp is true or full_shard here")


def targets(draft: Draft, key: str, value: Any) -> None:
    """Which linear layers get the adapter."""
    if value in ("all", "all-linear", ["all-linear"], ["all"]):
        draft.put(key, "config", "target_modules", "all-linear")
    elif isinstance(value, str) and set(value) & set("\\^$*()[]|"):
        draft.lose(key, "a pattern is not read here: name the layers; all-linear is used")
    else:
        to("target_modules", listed)(draft, key, value)


def reports(draft: Draft, key: str, value: Any) -> None:
    """Where metrics go beside metrics.jsonl."""
    names = value if isinstance(value, list) else [value]
    known = [name for name in names if name in _TARGETS]
    if known:
        draft.put(key, "config", "report_to", known)
    for name in names:
        if name not in (*_TARGETS, "none"):
            draft.lose(key, f"metrics go to {', '.join(_TARGETS)}, and always to metrics.jsonl", name)
    draft.agree(key)


def steps(draft: Draft, key: str, value: Any) -> None:
    """A maximum of steps; -1 is none."""
    if value in (-1, 0):
        draft.agree(key)
    else:
        to("max_steps", whole)(draft, key, value)


def left_out_kwargs(draft: Draft) -> None:
    """Leave out settings that the scheduler which is used does not have."""
    config = draft.blocks["config"]
    name = config.get("lr_scheduler", "cosine")
    written = config.pop("lr_scheduler_kwargs", {})
    for setting in written.keys() - SCHEDULERS[name]:
        draft.lose(f"lr_scheduler_kwargs.{setting}", f"{name} has no such setting", written[setting])
    if kept := {setting: value for setting, value in written.items() if setting in SCHEDULERS[name]}:
        config["lr_scheduler_kwargs"] = kept


SHARED: dict[str, Rule] = {
    **dict.fromkeys(EVALUATION, together),
    "learning_rate": to("learning_rate", number),
    "max_steps": steps,
    "gradient_accumulation_steps": to("gradient_accumulation_steps", whole),
    "lr_scheduler_kwargs": to("lr_scheduler_kwargs", numbers),
    "warmup_ratio": to("warmup_ratio", number),
    "warmup_steps": warmup,
    "weight_decay": to("weight_decay", number),
    "max_grad_norm": to("max_grad_norm", number),
    "neftune_noise_alpha": to("neftune_noise_alpha", number),
    "label_smoothing_factor": refused(OTHER_LOSS),
    "seed": to("seed", whole),
    "bf16": precision,
    "fp16": precision,
    "gradient_checkpointing": checkpointing,
    "gradient_checkpointing_kwargs": checkpointing_kwargs,
    "torch_compile": to("torch_compile", flag),
    "torch_compile_backend": to("torch_compile_backend", text),
    "torch_compile_mode": to("torch_compile_mode", text),
    "group_by_length": to("group_by_length", flag),
    "dataloader_num_workers": to("dataloader_num_workers", whole),
    "dataloader_pin_memory": to("dataloader_pin_memory", flag),
    "dataloader_prefetch_factor": to("dataloader_prefetch_factor", whole),
    "logging_steps": to("logging_steps", whole),
    "save_strategy": to(
        "save_strategy",
        chosen({name: name for name in ("no", "steps", "epoch")}, "checkpoints come by steps or epochs"),
    ),
    "save_steps": to("save_steps", whole),
    "save_total_limit": to("save_total_limit", whole),
    "attn_implementation": attention,
    "fsdp": fsdp,
}
"""What axolotl's configurations have under the same names, too."""
KEYS: dict[str, Rule] = {
    **SHARED,
    "num_train_epochs": to("epochs", number),
    "per_device_train_batch_size": to("batch_size", whole),
    "lr_scheduler_type": SCHEDULER,
    "optim": OPTIMIZER,
    "tf32": to("use_tf32", flag),
    "report_to": reports,
    "do_train": only(True, otherwise="nothing would be trained"),
    "do_eval": together,
}
