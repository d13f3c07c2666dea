"""Base model, adapter, optimizer, batches: what of a manifest is used, and what stands for a key that is not written."""

from __future__ import annotations

from typing import Any, cast

from expert_cli.config.run_config import AdapterConfig, DeviceName, LoaderConfig, ModelConfig, OptimConfig, Packing
from expert_cli.config.settings import Settings, informational
from expert_cli.manifest.schema import Base
from expert_cli.manifest.training_config import TrainingConfig
from expert_cli.manifest.types import Quantization

Config = Settings[TrainingConfig]
WITHOUT_EFFECT = {
    "use_unsloth": "the training step here is the tool's own; it needs no patched model",
    "memory_clear_every": "the allocator reuses freed memory by itself; clearing it in the loop only costs time",
    "use_cuda_graphs": "no graphs are recorded: the documents of a batch differ from step to step",
    "cuda_graph_warmup_steps": "no graphs are recorded",
    "dataloader_persistent_workers": "the same workers serve the whole run, whatever this says",
}
"""Keys of `training.config` that have no effect in any run, and what does their job here."""
PACKINGS: dict[Packing, str] = {
    "random": "each row is filled with whole documents drawn at random, anew for every epoch; they do not see each other",
    "best_fit": "each row is filled with whole documents of like length, the same in every epoch, which do not see each "
    "other: rows of one database or template meet in a step, up to 50 times as often as by chance",
    "concat": "documents are laid end to end and cut; for comparison only",
    "off": "one document a row, padded to the longest of its batch",
}
OVERFLOWS = {
    "truncate": "longer documents lose the middle of their prompt",
    "drop": "longer documents are left out",
    "split": "longer documents are split",
    "error": "a longer document is an error",
}


def model(base: Settings[Base], config: Config) -> ModelConfig:
    """Return the base model to load."""
    base.use("alias", "", "short name for --base-model")
    return ModelConfig(
        name=base.use("name", "", "the base model"),
        sha256=_sha256(base),
        quantization=cast(Quantization, base.use("quantization", "int4", "how the base weights are held in memory")),
        template=base.use("prompt_template", "", "how prompts are written; rows of whole documents stay as they are"),
        system_prompt=_system_prompt(config),
        rope_scaling=_rope(base),
    )


def _sha256(base: Settings[Base]) -> str:
    written = (base.written.sha256 or "").strip().lower().removeprefix("sha256:")
    if len(written) == 64 and not set(written) - set("0123456789abcdef"):
        return str(base.put("sha256", base.written.sha256, "the weights file is verified against it"))
    base.leave("no SHA-256 hash: nothing to verify against", "sha256")
    return base.written.sha256 or ""


def _system_prompt(config: Config) -> str | None:
    written = config.written.system_prompt
    effect = "the system message of every prompt; rows of whole documents stay as they are"
    config.put("system_prompt", written, effect if written else "no system message, no default one either")
    return written


def _rope(base: Settings[Base]) -> tuple[tuple[str, float | str], ...]:
    scaling, kind = base.written.rope_scaling, base.written.rope_type
    if not isinstance(scaling, dict) or not kind:
        base.outcomes[("rope_scaling",)] = informational("not a form that transformers knows; the model keeps its own")
        return ()
    rest = {key: value for key, value in scaling.items() if key not in ("type", "rope_type")}
    base.put("rope_scaling", scaling, "passed to the model's configuration")
    return (("rope_type", kind), *sorted(rest.items()))


def adapter(config: Config) -> AdapterConfig:
    """Return the adapter that is trained."""
    kind = config.written.adapter_type or "lora"
    modules = config.use("target_modules", "all-linear", "the layers that get an adapter")
    config.use("method", "sft", "supervised fine-tuning")
    for key, reason in WITHOUT_EFFECT.items():
        config.leave(reason, key)
    config.put("adapter_type", kind, f"a {kind} adapter is trained")
    rank = config.use("rank", 0, "rank of the adapter's matrices")
    alpha = config.use("alpha", 2.0 * rank, "scale of the adapter")
    dropout = config.use("dropout", 0.0, "dropout inside the adapter")
    feedforward = config.use("feedforward_modules", (), "IA3 scales these at their input")
    if kind == "ia3":
        config.leave("ia3 has no such setting", "rank", "alpha", "dropout")
    else:
        config.leave("only ia3 has it", "feedforward_modules")
    return AdapterConfig(
        type=kind,
        rank=rank,
        alpha=alpha,
        dropout=dropout,
        target_modules=(modules,) if isinstance(modules, str) else tuple(modules),
        feedforward_modules=tuple(feedforward),
    )


def optim(config: Config) -> OptimConfig:
    """Return how the optimizer steps."""
    warmup = _warmup(config)
    epochs, max_steps = _length(config)
    written = config.written
    batch, accumulation = written.batch_size or 1, written.gradient_accumulation_steps or 1
    rows = f"{batch} x {accumulation} rows an optimizer step"
    norm = 1.0 if written.max_grad_norm is None else written.max_grad_norm
    kwargs = config.use("lr_scheduler_kwargs", {}, "passed to the scheduler")
    optimizer = str(written.optim or "adamw_torch_fused")
    return OptimConfig(
        epochs=epochs,
        max_steps=max_steps,
        batch_size=config.put("batch_size", batch, rows),
        gradient_accumulation_steps=config.put("gradient_accumulation_steps", accumulation, rows),
        learning_rate=config.use("learning_rate", 2e-4, "peak learning rate"),
        scheduler=_scheduler(config, warmup),
        scheduler_kwargs=tuple(sorted(kwargs.items())),
        warmup=warmup,
        weight_decay=config.use("weight_decay", 0.0, "decoupled weight decay"),
        max_grad_norm=config.put("max_grad_norm", norm, "gradient clipping" if norm else "gradients are not clipped"),
        optim=config.put("optim", optimizer, f"optimizer {optimizer}"),
        neftune_noise_alpha=config.use("neftune_noise_alpha", None, "noise on the embeddings"),
    )


def _length(config: Config) -> tuple[float, int]:
    """Return (epochs, max_steps): one of them decides, -1 steps: the epochs do."""
    steps, epochs = config.written.max_steps, config.written.epochs or 1.0
    if steps is not None:
        config.leave(f"max_steps {steps} decides", "epochs")
        return epochs, int(config.put("max_steps", steps, f"{steps} optimizer steps"))
    config.leave("not written", "max_steps")
    return float(config.put("epochs", epochs, f"{epochs:g} passes over the data")), -1


def _warmup(config: Config) -> float:
    """Return the warm-up, in steps where it is 1 or more, else as a share of all steps."""
    steps, share = config.written.warmup_steps or 0, config.written.warmup_ratio or 0.0
    if steps:
        config.leave(f"warmup_steps {steps} wins", "warmup_ratio")
        return float(config.put("warmup_steps", steps, f"the learning rate rises for {steps} steps"))
    if share:
        config.put("warmup_steps", 0, f"{share:g} of all steps", "0 means not set; warmup_ratio decides")
    else:
        config.put("warmup_steps", 0, "no warm-up")
    return float(config.put("warmup_ratio", share, f"the learning rate rises over {share:.0%} of all steps"))


def _scheduler(config: Config, warmup: float) -> str:
    name = str(config.written.lr_scheduler or "cosine")
    if name != "constant" or not warmup:
        return str(config.put("lr_scheduler", name, "how the learning rate runs"))
    reason = "a warm-up is asked for, which transformers' constant drops"
    return str(config.put("lr_scheduler", "constant_with_warmup", "constant_with_warmup", reason))


def loader(config: Config, device: DeviceName, *, best_fit: bool = False) -> LoaderConfig:
    """Return how rows are laid out and batches prepared. best_fit: a run goes on that began when `true` meant that."""
    packing = _packing(config, best_fit=best_fit)
    workers = config.written.dataloader_num_workers or 0
    prefetch = None
    if workers:
        prefetch = config.use("dataloader_prefetch_factor", 2, "batches prepared ahead by each worker")
    else:
        config.leave("there are 0 workers", "dataloader_prefetch_factor")
    return LoaderConfig(
        num_workers=config.put("dataloader_num_workers", workers, f"{workers} processes prepare batches"),
        pin_memory=_pin_memory(config, device),
        prefetch_factor=prefetch,
        packing=packing,
        overflow=_overflow(config, packing),
        group_by_length=_grouping(config, packing),
    )


def _pin_memory(config: Config, device: DeviceName) -> bool:
    if device == "cpu":
        config.leave("no GPU: there is nothing to copy to", "dataloader_pin_memory")
        return False
    pins = config.written.dataloader_pin_memory is not False
    return bool(config.put("dataloader_pin_memory", pins, "page-locked batches" if pins else "ordinary memory"))


def _packing(config: Config, *, best_fit: bool) -> Packing:
    written = config.written.packing
    packing: Packing = written if isinstance(written, str) else "off" if written is False else "random"
    if best_fit and written in (None, True):
        reason = "the run that goes on began so"
        return cast(Packing, config.put("packing", "best_fit", PACKINGS["best_fit"], reason))
    return cast(Packing, config.put("packing", packing, PACKINGS[packing]))


def _overflow(config: Config, packing: Packing) -> Any:
    overflow, length = config.written.overflow or "truncate", config.written.max_seq_length or 2048
    if packing == "concat":
        config.leave("concat cuts every document where a row ends", "overflow")
        config.put("max_seq_length", length, f"a row holds {length} tokens")
        return overflow
    config.put("max_seq_length", length, f"a row holds {length} tokens; {OVERFLOWS[overflow]}")
    return config.put("overflow", overflow, f"documents longer than max_seq_length: {overflow}")


def _grouping(config: Config, packing: Packing) -> bool:
    if packing != "off":
        config.leave("packed rows all have about the same length", "group_by_length")
        return False
    grouped = bool(config.written.group_by_length)
    effect = "rows of similar length share a batch, by seed: they are often alike otherwise, too"
    return bool(config.put("group_by_length", grouped, effect if grouped else "rows are shuffled"))
