"""`RunConfig` -> `TrainingArguments`: one table, nothing decided."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from transformers import TrainingArguments

from expert_cli.config.run_config import RunConfig
from expert_cli.errors import EnvironmentProblem
from expert_cli.hardware.machine import has_package

REPORT_PACKAGES = {"tensorboard": "tensorboard", "trackio": "trackio", "wandb": "wandb"}


def training_arguments(
    run: RunConfig, checkpoints: Path, kind: type[TrainingArguments] = TrainingArguments, **more: Any
) -> TrainingArguments:
    """Return the Trainer's arguments for this run. kind, more: of a Trainer that is not ours, to compare with.

    Raises EnvironmentProblem for a reporting package that is missing.
    """
    for name in run.watch.report_to:
        if not has_package(REPORT_PACKAGES[name]):
            hint = f"pip install {REPORT_PACKAGES[name]}, or take it out of report_to"
            raise EnvironmentProblem(f"report_to: {name} is not installed", hint)
    return kind(
        output_dir=str(checkpoints),
        **_steps(run),
        **_loader(run),
        **_compute(run),
        report_to=[name for name in run.watch.report_to if name != "tensorboard"] or "none",
        seed=run.seed,
        data_seed=run.seed,
        **_flow(run),
        remove_unused_columns=False,
        ddp_find_unused_parameters=False,  # every adapter takes part in every step
        disable_tqdm=True,
        **more,
    )


def _steps(run: RunConfig) -> dict[str, Any]:
    optim = run.optim
    return {
        "num_train_epochs": optim.epochs,
        "max_steps": optim.max_steps,
        "per_device_train_batch_size": optim.batch_size,
        "per_device_eval_batch_size": optim.batch_size,
        "gradient_accumulation_steps": optim.gradient_accumulation_steps,
        "learning_rate": optim.learning_rate,
        # one_cycle is ours (lr_schedulers.py); the Trainer only wants a name it knows.
        "lr_scheduler_type": "constant" if optim.scheduler == "one_cycle" else optim.scheduler,
        "lr_scheduler_kwargs": dict(optim.scheduler_kwargs),
        "warmup_steps": optim.warmup,
        "weight_decay": optim.weight_decay,
        "max_grad_norm": optim.max_grad_norm,
        # transformers knows the paged one by its width alone
        "optim": "paged_adamw_32bit" if optim.optim == "paged_adamw" else optim.optim,
        "neftune_noise_alpha": optim.neftune_noise_alpha,
    }


def _flow(run: RunConfig) -> dict[str, Any]:
    """What callbacks read of logging, evaluation and saving. What is due when is `FlowCallback`'s.

    Not load_best_model_at_end: `fit` does that, with strategies of evaluation and saving that the Trainer would refuse.
    """
    watch = run.watch
    return {
        "logging_strategy": "steps",
        "logging_steps": watch.logging_steps,
        "logging_first_step": True,
        "eval_strategy": watch.eval_strategy,
        "eval_steps": watch.eval_steps,
        "save_strategy": watch.save_strategy,
        "save_steps": watch.save_steps,
        "save_total_limit": watch.save_total_limit,
        "metric_for_best_model": watch.metric_for_best_model,
        "greater_is_better": watch.greater_is_better,
    }


def _loader(run: RunConfig) -> dict[str, Any]:
    loader = run.loader
    return {
        "dataloader_num_workers": loader.num_workers,
        "dataloader_pin_memory": loader.pin_memory,
        "dataloader_prefetch_factor": loader.prefetch_factor,
    }


def _compute(run: RunConfig) -> dict[str, Any]:
    compute = run.compute
    return {
        "use_cpu": compute.device == "cpu",
        "bf16": compute.dtype == "bf16",
        "fp16": compute.dtype == "fp16",
        "tf32": compute.tf32 or None,  # False would raise where there is none; `set_flags` switches it off
    }
