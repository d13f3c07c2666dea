"""Hand model and documents to the Trainer and let it run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from peft import PeftModel
from transformers import PrinterCallback, TrainerCallback
from transformers.integrations import TensorBoardCallback

from expert_cli._compat import forget_graphs, graphs_made
from expert_cli.config.run_config import RunConfig
from expert_cli.data.packing.batches import Collator, PackedBatchSampler, orders_of, schedule_of
from expert_cli.data.packing.dataset import PackedDataset
from expert_cli.data.packing.step_schedule import few_steps, shared_out
from expert_cli.errors import Interrupted, TrainingFailed
from expert_cli.model.adapter import magnitudes
from expert_cli.model.flops import Flops, flops, peak_flops
from expert_cli.model.kernels.chunked_loss import CausalLoss
from expert_cli.model.kernels.select import KernelPlan
from expert_cli.runs.paths import RunPaths
from expert_cli.runs.status import RunStatus
from expert_cli.training.arguments import training_arguments
from expert_cli.training.checkpointing.resume import (
    Resumed,
    check_disk_space,
    load_best,
    restore,
    save,
    truncate_metrics,
)
from expert_cli.training.metrics_callback import MetricsCallback
from expert_cli.training.oom import adjust_to_memory, largest_batch_fits, out_of_memory
from expert_cli.training.result import FitResult
from expert_cli.training.signals import StopRequest
from expert_cli.training.trainer import ExpertTrainer
from expert_cli.utils.out_of_memory import is_out_of_memory
from expert_cli.utils.reporter import Reporter
from expert_cli.utils.text import plural


@dataclass(frozen=True)
class TrainingData:
    """The packs that train, the sets of those that evaluate by name ("" = of none), and the id that fills up rows.

    run_answers: lets the model as it is answer cases, and returns the share that is right; None: not asked for.
    """

    train: PackedDataset
    validation: Mapping[str, PackedDataset]
    pad_id: int
    run_answers: Callable[[], float] | None = None

    @property
    def longest(self) -> int:
        """Tokens of the longest document, of those that evaluate too."""
        return max(data.packs.document_lengths.longest for data in (self.train, *self.validation.values()))


@dataclass(frozen=True)
class ResumeContext:
    """What ties a run to its checkpoints: what they must have in common, where it goes on, who is told how far it is."""

    identity: Mapping[str, Any]
    resumed: Resumed | None
    status: RunStatus


def fit(
    model: PeftModel,
    data: TrainingData,
    *,
    run: RunConfig,
    kernels: KernelPlan,
    resume_context: ResumeContext,
    report: Reporter,
    callbacks: Sequence[TrainerCallback] = (),
) -> FitResult:
    """Train the adapter in place.

    callbacks: people's own, called behind the tool's.

    Raises TrainingFailed: loss not finite, out of memory, a DoRA magnitude that stands still. Interrupted: asked to stop,
    after a checkpoint was written.
    """
    paths = RunPaths(run.output)
    stop = StopRequest(paths.output)
    begun_with = resume_context.identity["processes"]
    trainer = _trainer(
        model,
        data,
        run,
        kernels,
        paths,
        begun_with=begun_with,
        callbacks=[*run_callbacks(run, paths), *callbacks],
        save=partial(_save, model=model, paths=paths, resume_context=resume_context),
        stop_asked=stop.asked,
    )
    schedule = trainer.batches.schedule
    if told := few_steps(replace(schedule, processes=begun_with)):
        report.warning(told)
    if told := shared_out(schedule, begun_with):
        report.info(told)
    before = magnitudes(model)
    _start(trainer, model, run, paths, resume_context, report)
    recomputed = run.compute.checkpointing == "all" or trainer.recomputes
    cost = flops(model.get_base_model(), data.train.packs.document_lengths, recomputed=recomputed)
    cards = trainer.batches.schedule.processes
    peak = peak_flops(trainer.timer.device.card_name(), cards) if trainer.timer.on_gpu else None
    metrics_callback = _watched(trainer, stop, paths, resume_context, report, cost, peak[0] if peak else None)
    if trainer.progress.step > trainer.args.get_warmup_steps(trainer.batches.schedule.steps) + 1:
        _require_moved(model, before)
    if run.watch.load_best_model_at_end:
        load_best(trainer, model, paths.checkpoints)
    done = _result(trainer, metrics_callback, cost, peak)
    return replace(done, unserved=stop if stop.exit_code else None)


def _trainer(
    model: PeftModel,
    data: TrainingData,
    run: RunConfig,
    kernels: KernelPlan,
    paths: RunPaths,
    *,
    begun_with: int,
    **plugged: Any,
) -> ExpertTrainer:
    """Return a trainer that is ready. begun_with: the processes that began the run. plugged: what is called while it trains."""
    arguments = training_arguments(run, paths.checkpoints)
    if not data.validation:
        arguments.eval_strategy = "no"  # the Trainer refuses another
    schedule = schedule_of(run, data.train, arguments.world_size, begun_with)
    longest = run.data.max_seq_length if kernels.fixed_shape else 0
    trainer = ExpertTrainer(
        optim_config=run.optim,
        watch=run.watch,
        batches=PackedBatchSampler(schedule, orders_of(run, data.train), rank=arguments.process_index),
        model=CausalLoss(model, full_logits=kernels.full_logits),
        args=arguments,
        train_dataset=data.train,
        eval_dataset=dict(data.validation) or None,
        data_collator=Collator(data.pad_id, kernels.layout, longest=longest),
        run_answers=data.run_answers,
        **plugged,
    )
    trainer.remove_callback(PrinterCallback)
    trainer.prepare()
    return trainer


def _start(
    trainer: ExpertTrainer,
    model: PeftModel,
    run: RunConfig,
    paths: RunPaths,
    resume_context: ResumeContext,
    report: Reporter,
) -> None:
    """Put the trainer where the run begins or goes on, with what the device's memory allows."""
    if run.compute.torch_compile:
        forget_graphs()  # layers of one class share how often they may be compiled anew, with those of other runs too
    before = resume_context.resumed.parts if resume_context.resumed is not None else None
    adjust_to_memory(trainer, run, before, trainer.batches.schedule, report)
    if before is not None:
        restore(trainer, model, before)
    if run.compute.torch_compile:
        largest_batch_fits(trainer)
        graphs, seconds = graphs_made()
        report.info(f"compile   {plural(graphs, 'graph')} in {seconds:.1f} s")
    if trainer.args.process_index == 0:
        truncate_metrics(paths, trainer.progress.step)
        saves = trainer.batches.schedule.steps // run.watch.save_steps + 1 if run.watch.save_strategy == "steps" else 2
        paths.checkpoints.mkdir(exist_ok=True)
        check_disk_space(model, paths.checkpoints, run.optim.optim, run.watch.save_total_limit, saves)
    resume_context.status.reached(trainer.progress.step, trainer.batches.schedule.steps)


def _save(trainer: ExpertTrainer, *, model: PeftModel, paths: RunPaths, resume_context: ResumeContext) -> None:
    save(trainer, model, paths.checkpoints, resume_context.identity)
    resume_context.status.reached(trainer.progress.step, trainer.batches.schedule.steps)


def run_callbacks(run: RunConfig, paths: RunPaths) -> list[TrainerCallback]:
    """Return the callbacks that every run has, whoever trains."""
    if "tensorboard" not in run.watch.report_to:
        return []
    from torch.utils.tensorboard import SummaryWriter

    return [TensorBoardCallback(SummaryWriter(log_dir=str(paths.tensorboard)))]


def _watched(
    trainer: ExpertTrainer,
    stop: StopRequest,
    paths: RunPaths,
    resume_context: ResumeContext,
    report: Reporter,
    cost: Flops,
    peak: float | None,
) -> MetricsCallback:
    """Train behind a bar and return who watched. Raises Interrupted: asked to stop, after a checkpoint was written."""
    steps = trainer.batches.schedule.steps
    with stop, report.progress("training", steps, "steps") as bar:
        metrics_callback = MetricsCallback(
            trainer.progress,
            trainer.timer,
            paths.metrics,
            bar,
            flops=cost,
            peak_flops=peak,
            warning=report.warning,
        )
        trainer.callback_handler.callbacks.insert(1, metrics_callback)  # those behind it find its figures in their logs
        try:
            _train(trainer, paths, resume_context)
        finally:
            resume_context.status.step = trainer.progress.step
    stop.asked(at_once=True)  # the last step may have been too short for a look
    stop.agree()
    if stop.exit_code and trainer.progress.schedule_step < steps:
        step = trainer.progress.step
        done = f"stopped by {stop.reason} after step {step} of {steps}; checkpoint-{step} is written"
        raise Interrupted(done, f"go on: {resume_context.status.go_on}", stop.exit_code, by_signal=stop.by_signal)
    return metrics_callback


def _train(trainer: ExpertTrainer, paths: RunPaths, resume_context: ResumeContext) -> None:
    try:
        trainer.train()
    except RuntimeError as error:
        if not is_out_of_memory(error):
            raise
        raise out_of_memory(trainer, paths.checkpoints, resume_context.status.go_on) from error


def _require_moved(model: PeftModel, before: dict[str, torch.Tensor]) -> None:
    """DoRA's magnitudes must have moved; in bf16 they would not, and nothing else would tell."""
    after: dict[str, Any] = magnitudes(model)
    still = [name for name, old in before.items() if torch.equal(old, after[name])]
    if before and len(still) == len(before):
        message = f"none of the {len(before)} DoRA magnitude vectors moved"
        raise TrainingFailed(message, "raise learning_rate, or train longer than the warm-up")


def _result(
    trainer: ExpertTrainer,
    metrics_callback: MetricsCallback,
    cost: Flops,
    peak: tuple[float, str] | None,
) -> FitResult:
    progress, here = trainer.progress, metrics_callback.done_here()
    return FitResult(
        steps=progress.step,
        epochs=trainer.batches.schedule.epoch_of(progress.schedule_step),
        losses=tuple(progress.losses),
        eval_loss=progress.evaluations[-1][1] if progress.evaluations else None,
        eval_losses=dict(progress.set_losses),
        real_tokens=progress.real,
        trained_tokens=progress.trained,
        padded_tokens=progress.padded,
        here=here,
        peak_memory_mb=metrics_callback.peak_memory_mb,
        mfu=cost.of(here.real, here.trained) / max(1e-9, here.seconds) / peak[0] if peak else None,
        peak=peak[1] if peak else "",
        step_time_shares=trainer.timer.shares(),
        adjusted=tuple(trainer.adjusted),
        stop_reason=trainer.flow.stop_reason,
    )
