"""Converts a `RunConfig` into `TrainingArguments`: one table, no decisions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from transformers import TrainingArguments

from expert_cli.config.run_config import RunConfig
from expert_cli.errors import EnvironmentProblem
from expert_cli.hardware.machine import has_package
from expert_cli.manifest.keys.log_save_eval import EVAL_LOSS
from expert_cli.manifest.keys.optim import BY_EVALUATIONS
from expert_cli.training.checkpoint import LEAST

REPORT_PACKAGES = {"azure_ml": "azureml", "flyte": "flytekit"}  # other integrations are named like their packages


def training_arguments(run: RunConfig, checkpoints: Path, **more: Any) -> TrainingArguments:
    """Return the Trainer's arguments for this run. more: arguments that replace or extend them. Raises EnvironmentProblem."""
    for name in run.watch.report_to:
        if not has_package(package := REPORT_PACKAGES.get(name, name)):
            hint = f"pip install {package}, or take it out of report_to"
            raise EnvironmentProblem(f"report_to: {name} is not installed", hint)
    optim, watch, compute, loader = run.optim, run.watch, run.compute, run.loader
    # If checkpoints are saved by time alone, the best step is saved when it is found.
    by_time = watch.load_best_model_at_end and watch.save_strategy == "no"
    stays = optim.scheduler in BY_EVALUATIONS and watch.eval_strategy == "no"
    is_rising = optim.scheduler in BY_EVALUATIONS and watch.metric != EVAL_LOSS
    settings = {
        "output_dir": str(checkpoints),
        "seed": run.seed,
        "num_train_epochs": optim.epochs,
        "max_steps": optim.max_steps,
        "per_device_train_batch_size": optim.batch_size,
        "gradient_accumulation_steps": optim.gradient_accumulation_steps,
        "learning_rate": optim.learning_rate,
        # one_cycle is created in trainer.py; the Trainer only needs a known name.
        "lr_scheduler_type": "constant" if stays or optim.scheduler == "one_cycle" else optim.scheduler,
        # "greedy": transformers' default of min_lr is higher than an adapter's usual learning rate
        "lr_scheduler_kwargs": {
            **({"min_lr": 0.0} if optim.scheduler == "greedy" else {}),
            **dict(optim.scheduler_kwargs),
            **({"mode": "max"} if is_rising else {}),
        },
        "warmup_steps": optim.warmup,
        "weight_decay": optim.weight_decay,
        "max_grad_norm": optim.max_grad_norm,
        # transformers calls it paged_adamw_32bit
        "optim": "paged_adamw_32bit" if optim.optim == "paged_adamw" else optim.optim,
        "neftune_noise_alpha": optim.neftune_noise_alpha,
        "logging_steps": watch.logging_steps,
        "logging_first_step": True,
        "logging_nan_inf_filter": False,  # it would synchronize at every step, and replace NaN by 0.0
        "report_to": [name for name in watch.report_to if name != "tensorboard"] or "none",
        "eval_strategy": watch.eval_strategy,
        "eval_steps": watch.eval_steps,
        "save_strategy": "best" if by_time else watch.save_strategy,
        "save_steps": watch.save_steps,
        "save_total_limit": watch.save_total_limit and max(LEAST, watch.save_total_limit),
        "load_best_model_at_end": watch.load_best_model_at_end,
        "metric_for_best_model": watch.metric,
        "greater_is_better": watch.metric != EVAL_LOSS,
        "restore_callback_states_from_checkpoint": True,
        "dataloader_num_workers": loader.num_workers,
        "dataloader_pin_memory": loader.pin_memory,
        "dataloader_prefetch_factor": loader.prefetch_factor,
        "use_cpu": compute.device == "cpu",
        "bf16": compute.dtype == "bf16",
        "fp16": compute.dtype == "fp16",
        "tf32": compute.tf32 or None,  # False would raise without TF32; `set_flags` disables it
        "remove_unused_columns": False,
        "disable_tqdm": True,
    }
    return TrainingArguments(**{**settings, **more})
