"""`training.config` -> the blocks of `RunConfig`: what happens where something is not written."""

from __future__ import annotations

from typing import Any, Literal

from expert_cli.machine import Machine
from expert_cli.manifest.schema import Base, EvaluationBlock
from expert_cli.manifest.training_config import TrainingConfig
from expert_cli.runconfig import (
    EXECUTION_ACCURACY,
    AdapterConfig,
    Checkpointing,
    ComputeConfig,
    DeviceName,
    Dtype,
    LoaderConfig,
    ModelConfig,
    OptimConfig,
    Packing,
    Strategy,
    WatchConfig,
)

ROPE_TYPES = ("linear", "dynamic", "yarn", "longrope", "llama3")
SAVE_EVERY = "5m"


def model(base: Base, config: TrainingConfig) -> ModelConfig:
    """Return the base model to load."""
    return ModelConfig(
        name=base.name,
        sha256=base.sha256 or "",
        quantization=base.quantization or "int4",
        template=base.prompt_template or "",
        system_prompt=config.system_prompt,
        rope_scaling=_rope(base),
    )


def adapter(config: TrainingConfig) -> AdapterConfig:
    """Return the adapter that is trained."""
    modules = config.target_modules or "all-linear"
    return AdapterConfig(
        type=config.adapter_type or "lora",
        rank=config.rank or 0,
        alpha=config.alpha or 2.0 * (config.rank or 0),
        dropout=config.dropout or 0.0,
        target_modules=(modules,) if isinstance(modules, str) else tuple(modules),
        feedforward_modules=tuple(config.feedforward_modules or ()),
    )


def optim(config: TrainingConfig) -> OptimConfig:
    """Return how the optimizer steps."""
    warmup = float(config.warmup_steps) if config.warmup_steps else config.warmup_ratio or 0.0
    scheduler = str(config.lr_scheduler or "cosine")
    return OptimConfig(
        epochs=config.epochs or 1.0,
        max_steps=config.max_steps or -1,
        batch_size=config.batch_size or 1,
        gradient_accumulation_steps=config.gradient_accumulation_steps or 1,
        learning_rate=config.learning_rate or 2e-4,
        # transformers' "constant" drops a warm-up without a word
        scheduler="constant_with_warmup" if scheduler == "constant" and warmup else scheduler,
        scheduler_kwargs=tuple(sorted((config.lr_scheduler_kwargs or {}).items())),
        warmup=warmup,
        weight_decay=config.weight_decay or 0.0,
        max_grad_norm=1.0 if config.max_grad_norm is None else config.max_grad_norm,
        optim=str(config.optim or "adamw_torch_fused"),
        neftune_noise_alpha=config.neftune_noise_alpha,
    )


def loader(config: TrainingConfig, device: DeviceName) -> LoaderConfig:
    """Return how rows are laid out and batches prepared."""
    workers = config.dataloader_num_workers or 0
    return LoaderConfig(
        num_workers=workers,
        pin_memory=device == "cuda" and config.dataloader_pin_memory is not False,
        prefetch_factor=(config.dataloader_prefetch_factor or 2) if workers else None,
        persistent_workers=bool(workers and config.dataloader_persistent_workers),
        packing=_packing(config),
        overflow=config.overflow or "truncate",
        group_by_length=bool(config.group_by_length) and config.packing is False,
    )


def _packing(config: TrainingConfig) -> Packing:
    if isinstance(config.packing, str):
        return config.packing
    return "off" if config.packing is False else "random"


def compute(config: TrainingConfig, machine: Machine, device: DeviceName) -> ComputeConfig:
    """Return how a step is computed on this machine."""
    on_gpu = device == "cuda"
    return ComputeConfig(
        device=device,
        dtype=_dtype(config, machine, device),
        tf32=bool(on_gpu and machine.gpus[0].has_tf32 and config.use_tf32),
        attention=_attention(config),
        checkpointing=_checkpointing(config),
        reentrant=bool((config.gradient_checkpointing_kwargs or {}).get("use_reentrant", False)),
        torch_compile=bool(config.torch_compile),
        compile_backend=config.torch_compile_backend or "inductor",
        # reduce-overhead records CUDA graphs, which need batches of one fixed shape
        compile_mode="default" if config.torch_compile_mode in (None, "reduce-overhead") else config.torch_compile_mode,
        fused_kernels=config.fused_kernels or "auto",
        dequantized_copy=config.dequantized_copy or "auto",
        on_oom=config.on_oom or "fit",
    )


def _dtype(config: TrainingConfig, machine: Machine, device: DeviceName) -> Dtype:
    if config.fp16 is False and config.bf16 is False:
        return "fp32"
    if device == "cpu":
        wanted = config.bf16 is True or (machine.cpu_bf16 and config.bf16 is not False)
        return "bf16" if wanted else "fp32"
    if config.fp16 or not machine.gpus[0].has_bf16 or config.bf16 is False:
        return "fp16"
    return "bf16"


def _attention(config: TrainingConfig) -> Literal["fused", "flash", "eager"]:
    if config.flash_attention_2:
        return "flash"
    return "fused" if config.use_sdpa is not False or config.memory_efficient_attention else "eager"


def _checkpointing(config: TrainingConfig) -> Checkpointing:
    if config.gradient_checkpointing == "selective":
        return "selective"
    if config.gradient_checkpointing is False:
        return "off"
    if config.activation_checkpointing:
        return "attention_only"
    return "all" if config.gradient_checkpointing else "off"


def watch(config: TrainingConfig, evaluation: Any) -> WatchConfig:
    """Return when a run logs, evaluates and saves."""
    judging = evaluation if isinstance(evaluation, EvaluationBlock) else EvaluationBlock()
    by_running = config.metric_for_best_model == EXECUTION_ACCURACY
    # answers that are run need no checkpoint at fixed steps: each better one is saved
    wants_best = bool(config.load_best_model_at_end) and not by_running
    asks_eval = bool(config.eval_steps or wants_best or (config.early_stopping_patience and not by_running))
    asks_save = bool(config.save_steps or wants_best)
    save_strategy: Strategy = config.save_strategy or ("steps" if asks_save else "no")
    by_time = config.save_every or (SAVE_EVERY if not (config.save_strategy or asks_save) else "0s")
    at_ends = wants_best and save_strategy == "epoch"
    eval_strategy: Strategy = config.eval_strategy or (("epoch" if at_ends else "steps") if asks_eval else "no")
    save_steps = config.save_steps or config.eval_steps or 500
    report_to = config.report_to or ()
    return WatchConfig(
        logging_steps=config.logging_steps or 10,
        save_strategy=save_strategy,
        save_steps=save_steps,
        save_every_s=float(by_time[:-1]) * {"s": 1, "m": 60, "h": 3600}[by_time[-1]],
        save_total_limit=config.save_total_limit,
        eval_strategy=eval_strategy,
        eval_steps=config.eval_steps or save_steps,
        load_best_model_at_end=bool(config.load_best_model_at_end),
        metric_for_best_model=str(config.metric_for_best_model or "eval_loss"),
        greater_is_better=by_running if config.greater_is_better is None else config.greater_is_better,
        early_stopping_patience=config.early_stopping_patience or 0,
        judge_every=judging.every_steps or 0,
        judge_sample=judging.sample or 24,
        report_to=() if report_to == "none" else (report_to,) if isinstance(report_to, str) else tuple(report_to),
    )


def _rope(base: Base) -> tuple[tuple[str, float | str], ...]:
    scaling = base.rope_scaling
    if not isinstance(scaling, dict):
        return ()
    kind = scaling.get("rope_type", scaling.get("type"))
    if kind not in ROPE_TYPES:
        return ()
    rest = {key: value for key, value in scaling.items() if key not in ("type", "rope_type")}
    return (("rope_type", kind), *sorted(rest.items()))
