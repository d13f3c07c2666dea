"""Trains an adapter: creates the Trainer for a model and its data, and runs it."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import Any

import torch
from peft import PeftModel
from transformers import EarlyStoppingCallback, PrinterCallback, TrainerCallback
from transformers.integrations import TensorBoardCallback

from expert_cli._compat import train_on_one_card
from expert_cli.config.run_config import RunConfig
from expert_cli.data.packing.batches import (
    Collator,
    FixedShape,
    PackedBatchSampler,
    Schedule,
    fixed_shape,
    orders_of,
    schedule_of,
)
from expert_cli.data.packing.packed_dataset import TrainingData
from expert_cli.errors import Interrupted, TrainingFailed
from expert_cli.hardware.devices import is_out_of_memory
from expert_cli.manifest.keys.log_save_eval import EVAL_LOSS
from expert_cli.manifest.keys.optim import BY_EVALUATIONS
from expert_cli.model.adapter import magnitudes
from expert_cli.model.flops import flops, peak_flops
from expert_cli.model.kernels.chunked_loss import CausalLoss
from expert_cli.model.kernels.kernel_plan import Kernel, KernelPlan
from expert_cli.model.layers import decoder_layers
from expert_cli.model.loading.quantize import autocast_of
from expert_cli.runs.metrics import mean_span, truncate_metrics
from expert_cli.runs.run_paths import RunPaths
from expert_cli.runs.signals import StopRequest
from expert_cli.training.arguments import training_arguments
from expert_cli.training.callbacks import MetricsCallback, StepCallback
from expert_cli.training.captured_step import CudaGraphs
from expert_cli.training.checkpoint import Checkpoints
from expert_cli.training.memory import fit_memory, out_of_memory
from expert_cli.training.trainer import ExpertTrainer
from expert_cli.utils.reporter import Reporter


def fit(
    model: PeftModel,
    data: TrainingData,
    *,
    run: RunConfig,
    kernels: KernelPlan,
    checkpoints: Checkpoints,
    report: Reporter,
    stop: StopRequest,
    callbacks: Sequence[TrainerCallback] = (),
) -> tuple[dict[str, Any], KernelPlan]:
    """Train the adapter in place; return its part of `train --json`, and the kernel plan with the result of the recording.

    stop: a context that is already entered. callbacks: the user's, called after the tool's own.

    Raises TrainingFailed for a loss or gradients that `health.py` refuses, too little memory, or DoRA magnitudes that do not
    change; Interrupted if the run was stopped on request, after saving a checkpoint.
    """
    paths, resumed, status = RunPaths(run.output), checkpoints.resumed, checkpoints.status
    trainer = _trainer(model, data, run, kernels, checkpoints)
    schedule, device = trainer.batches.schedule, trainer.timer.device
    if told := run.optim.warmup_fault(schedule.steps):
        report.warning(told)
    before = magnitudes(model)
    kernels = _make_ready(trainer, run, kernels, report)
    done = resumed.trainer_state["global_step"] if resumed else 0
    if trainer.args.process_index == 0:
        truncate_metrics(paths.metrics, done)
    status.reached(done, schedule.steps)
    peak = (peak_flops(device.card_name()) or 0.0) * schedule.processes if device.is_gpu else 0.0
    recomputed = any(layer.gradient_checkpointing for layer in decoder_layers(model))
    costs = flops(model.get_base_model(), data.train.document_lengths, recomputed=recomputed)
    metrics = MetricsCallback(trainer.progress, trainer.timer, paths.metrics, costs, peak, report.warning)
    by_evaluations = run.optim.scheduler in BY_EVALUATIONS
    steps = StepCallback(run.watch, schedule.steps_per_epoch, stop.asked, by_evaluations=by_evaluations)
    own: list[TrainerCallback] = [metrics, steps]
    if "tensorboard" in run.watch.report_to:
        from torch.utils.tensorboard import SummaryWriter

        own.append(TensorBoardCallback(SummaryWriter(log_dir=str(paths.tensorboard))))
    for callback in (*own, *callbacks):
        trainer.add_callback(callback)
    with report.progress("training", schedule.steps, "steps") as metrics.bar:
        try:
            trainer.train(resume_from_checkpoint=str(resumed.path) if resumed else None)
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
            raise out_of_memory(trainer, paths.checkpoints, status.go_on) from error
        finally:
            status.step = done = trainer.state.global_step
            trainer.callback_handler.train_dataloader = trainer.callback_handler.eval_dataloader = None  # ends workers
    stop.asked()
    stop.agree()
    if stop.exit_code and done < schedule.steps:
        words = f"stopped by {stop.reason} after step {done} of {schedule.steps}; checkpoint-{done} is written"
        raise Interrupted(words, f"go on: {status.go_on}", stop.exit_code, by_signal=stop.by_signal)
    trainer.health.flush()
    if done > trainer.args.get_warmup_steps(schedule.steps) + 1:
        _require_moved(model, before)
    return _result(trainer, metrics), kernels


def _trainer(
    model: PeftModel, data: TrainingData, run: RunConfig, kernels: KernelPlan, checkpoints: Checkpoints
) -> ExpertTrainer:
    arguments = training_arguments(run, checkpoints.folder)
    train_on_one_card(arguments)
    schedule = schedule_of(run, data.train, arguments.world_size, checkpoints.identity["processes"])
    order_of = orders_of(run, data.train)
    capturing = kernels.lines["capture"].used != "off"

    def shape_of(schedule: Schedule) -> FixedShape | None:
        if not (capturing or kernels.fixed_shape):
            return None
        return fixed_shape(data.train, schedule, order_of, run.data.max_seq_length)

    trainer = ExpertTrainer(
        optim_config=run.optim,
        watch=run.watch,
        batches=PackedBatchSampler(schedule, order_of, rank=arguments.process_index),
        model=CausalLoss(model, full_logits=kernels.full_logits, autocast=autocast_of(run.compute.dtype)),
        args=arguments,
        train_dataset=data.train,
        eval_dataset=data.validation or (),  # the Trainer refuses None with an eval_strategy
        data_collator=Collator(data.pad_id, kernels.layout),
        shape_of=shape_of,
        graphs=CudaGraphs() if capturing else None,
        checkpoints=checkpoints,
        accuracy=data.accuracy,
    )
    trainer.remove_callback(PrinterCallback)
    if run.watch.early_stopping_patience:
        trainer.add_callback(EarlyStoppingCallback(run.watch.early_stopping_patience))
    return trainer


def _make_ready(trainer: ExpertTrainer, run: RunConfig, kernels: KernelPlan, report: Reporter) -> KernelPlan:
    """Fit the step into the device's memory and record it; return the plan with the result."""
    if trainer.timer.device.is_gpu and not run.compute.fsdp:
        fit_memory(trainer, run, report)
    elif run.compute.torch_compile:
        trainer.try_step()
        trainer.flat.gradient.zero_()
    capture = kernels.lines["capture"]
    if trainer.captured is not None:
        capture = Kernel(capture.used, f"{trainer.data_collator.shape}; proven on the first one")
    elif capture.used != "off":
        capture = Kernel("off", f"the recorded step failed its proof, every step is eager: {trainer.not_captured}")
    tell = report.detail if run.compute.device == "cpu" else report.info
    tell(f"capture   {capture.used}: {capture.reason}")
    return kernels.with_line("capture", capture.used, capture.reason)


def _require_moved(model: PeftModel, before: dict[str, torch.Tensor]) -> None:
    """Raise TrainingFailed if no DoRA magnitude has changed, as can happen in bf16: nothing else would show it."""
    after = magnitudes(model)
    if before and all(torch.equal(old, after[name]) for name, old in before.items()):
        message = f"none of the {len(before)} DoRA magnitude vectors moved"
        raise TrainingFailed(message, "raise learning_rate, or train longer than the warm-up")


def _result(trainer: ExpertTrainer, metrics: MetricsCallback) -> dict[str, Any]:
    """Return counts and losses of the whole run, and speed, memory and time shares since this process started."""
    progress, losses, step = trainer.progress, trainer.progress.losses, trainer.state.global_step
    kept = trainer.state.best_global_step if trainer.args.load_best_model_at_end else None
    logged = (one for one in reversed(trainer.state.log_history) if kept in (None, one["step"]))
    last = next((one for one in logged if EVAL_LOSS in one), {})
    span = mean_span(len(losses))
    means = {"first_mean": fmean(losses[:span]), "last_mean": fmean(losses[-span:])}
    return {
        "steps": step,
        "epochs": step / trainer.batches.schedule.steps_per_epoch,
        "loss": {"first": losses[0], "last": losses[-1], **means},
        "eval_loss": last.get(EVAL_LOSS),
        "tokens": {"real": progress.real, "trained": progress.trained, "padded": progress.padded},
        "tokens_per_s": metrics.done_here().tokens_per_s,
        "mfu": metrics.mfu(),
        "step_time_shares": trainer.timer.shares(),
        "adjusted": [*trainer.adjusted],
        "peak_memory_mb": metrics.peak_memory_mb,
        "stop_reason": _stop_reason(trainer),
    }


def _stop_reason(trainer: ExpertTrainer) -> str:
    """Return the reason why training ended, in words."""
    state, watch, steps = trainer.state, trainer.watch, trainer.batches.schedule.steps
    if state.global_step == steps:
        return f"all {steps} steps of the schedule are done"
    if trainer.stopped_early:
        best = f"{watch.metric} was best at step {state.best_global_step} ({state.best_metric:.4g})"
        patience = f"early_stopping_patience is {watch.early_stopping_patience}"
        return f"early stopping after step {state.global_step} of {steps}: {best}, and {patience}"
    return f"a callback stopped training after step {state.global_step} of {steps}"
