"""What a run that has ended really used, read off the objects that trained: nothing here looks at the settings."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from peft import PeftModel

from expert_cli._compat import graphs_made, is_compiled
from expert_cli.model.activation_checkpointing import attention_block, decoder_layers
from expert_cli.model.fsdp import sharded
from expert_cli.model.kernels.dequantize import DequantizedLinear
from expert_cli.training.trainer import ExpertTrainer


@dataclass(frozen=True)
class UsedAdapter:
    """The adapter on the model: kind, numbers (0 where the kind has none) and the last name parts of its layers.

    tokens: those whose rows of embedding or head were trained.
    """

    kind: str
    rank: int
    alpha: float
    dropout: float
    modules: tuple[str, ...]
    feedforward: tuple[str, ...]
    tokens: tuple[int, ...] = ()


@dataclass(frozen=True)
class UsedCompute:
    """How a step was computed. layers: decoder layers in all, those recomputed as a whole, by their attention, compiled.

    graphs: compiled for all steps and evaluations of the loss together. copies: linear layers whose 4-bit weight was unpacked
    once. shared: tensors of the base model of which each process held a share.
    """

    precision: str
    tf32: bool
    layers: int
    recomputed: int
    recomputed_attention: int
    compiled: int
    graphs: int
    copies: int
    shared: int = 0


@dataclass(frozen=True)
class UsedLoader:
    """How batches came. longest_row: tokens of the longest pack; too_long: documents above it, None where all are cut alike."""

    workers: int
    pinned: bool
    prefetch: int | None
    longest_row: int
    too_long: int | None


@dataclass(frozen=True)
class Used:
    """What trained. warmup: steps; max_steps -1: the epochs decided; best_step 0: no evaluation chose one.

    Counted in the process that ended the run: evaluations, answered (evaluations that ran answers), checkpoints.
    """

    adapter: UsedAdapter
    compute: UsedCompute
    loader: UsedLoader
    optimizer: str
    learning_rate: float
    weight_decay: float
    max_grad_norm: float
    warmup: int
    noise: bool
    seed: int
    batch_size: int
    accumulation: int
    max_steps: int
    steps: int
    epochs: float
    evaluations: int
    answered: int
    checkpoints: int
    best_step: int
    stopped_early: bool
    reports: tuple[str, ...]


def what_was_used(trainer: ExpertTrainer, model: PeftModel) -> Used:
    """Read off what trained."""
    schedule, progress = trainer.batches.schedule, trainer.progress
    groups: list[dict[str, Any]] = trainer.optimizer.param_groups
    return Used(
        adapter=_adapter(model),
        compute=_compute(trainer, model),
        loader=_loader(trainer),
        optimizer=type(getattr(trainer.optimizer, "optimizer", trainer.optimizer)).__name__,
        learning_rate=max(group.get("max_lr", group.get("initial_lr", group["lr"])) for group in groups),
        weight_decay=max(group.get("weight_decay", 0.0) for group in groups),
        max_grad_norm=trainer.args.max_grad_norm,
        warmup=trainer.args.get_warmup_steps(schedule.steps),
        noise=getattr(trainer, "neftune_hook_handle", None) is not None,
        seed=trainer.args.seed,
        batch_size=schedule.batch_size,
        accumulation=schedule.accumulation,
        max_steps=schedule.max_steps,
        steps=progress.step,
        epochs=schedule.epoch_of(progress.schedule_step),
        evaluations=len(progress.evaluations),
        answered=trainer.answered,
        checkpoints=trainer.flow.saves.written,
        best_step=progress.best_step,
        stopped_early=progress.schedule_step < schedule.steps,
        reports=tuple(sorted(_reports(trainer))),
    )


def _adapter(model: PeftModel) -> UsedAdapter:
    config: Any = model.peft_config["default"]
    tuner: Any = model.base_model
    kind = config.peft_type.value.lower()
    if kind == "lora":
        kind = "dora" if config.use_dora else "rslora" if config.use_rslora else "lora"
    token_rows = getattr(config, "trainable_token_indices", None) or {}
    modules = {name.rsplit(".", 1)[-1] for name in tuner.targeted_module_names}
    return UsedAdapter(
        kind=kind,
        rank=getattr(config, "r", 0),
        alpha=getattr(config, "lora_alpha", getattr(config, "alpha", 0.0)),
        dropout=getattr(config, "lora_dropout", getattr(config, "rank_dropout", 0.0)),
        modules=tuple(sorted(modules)),
        feedforward=tuple(sorted(getattr(config, "feedforward_modules", None) or ())),
        tokens=tuple(sorted({row for rows in token_rows.values() for row in rows})),
    )


def _compute(trainer: ExpertTrainer, model: PeftModel) -> UsedCompute:
    layers = decoder_layers(model)
    precision = trainer.accelerator.mixed_precision
    compiled = sum(is_compiled(layer) for layer in layers)
    return UsedCompute(
        precision="fp32" if precision == "no" else precision,
        tf32=trainer.timer.device.tf32_since is not None and torch.backends.cuda.matmul.allow_tf32,
        layers=len(layers),
        recomputed=sum(bool(layer.gradient_checkpointing) for layer in layers),
        recomputed_attention=sum(isinstance(block.forward, partial) for block in map(attention_block, layers) if block),
        compiled=compiled,
        graphs=graphs_made()[0] if compiled else 0,
        copies=sum(isinstance(module, DequantizedLinear) for module in model.modules()),
        shared=len(sharded(model)),
    )


def _loader(trainer: ExpertTrainer) -> UsedLoader:
    loader = trainer.loader(trainer.train_dataset, trainer.batches)
    packs = trainer.train_dataset.packs
    return UsedLoader(
        workers=loader.num_workers,
        pinned=loader.pin_memory,
        prefetch=loader.prefetch_factor,
        longest_row=packs.pack_lengths.longest,
        too_long=None if packs.left_out is None else packs.left_out.rows,
    )


def _reports(trainer: ExpertTrainer) -> list[str]:
    names = [type(callback).__name__ for callback in trainer.callback_handler.callbacks]
    known = {"TensorBoardCallback": "tensorboard", "TrackioCallback": "trackio", "WandbCallback": "wandb"}
    return [known[name] for name in names if name in known]
