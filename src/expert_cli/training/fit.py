"""Hand model and documents to the Trainer and let it run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from peft import PeftModel
from transformers import EarlyStoppingCallback, PrinterCallback, TrainerCallback
from transformers.integrations import TensorBoardCallback

from expert_cli._compat import forget_graphs, graphs_made, train_on_one_card
from expert_cli.config.run_config import RunConfig
from expert_cli.data.packing.batches import Collator, PackedBatchSampler, orders_of, schedule_of
from expert_cli.data.packing.dataset import PackedDataset
from expert_cli.data.packing.fixed_shape import FixedShape, fixed_shape
from expert_cli.data.packing.step_schedule import Schedule, few_steps, shared_out
from expert_cli.errors import Interrupted, TrainingFailed
from expert_cli.manifest.keys.log_save_eval import EVAL_LOSS, is_eval_loss
from expert_cli.model.adapter import magnitudes
from expert_cli.model.flops import Flops, flops, peak_flops
from expert_cli.model.kernels.chunked_loss import CausalLoss
from expert_cli.model.kernels.select import Kernel, KernelPlan
from expert_cli.model.loading.quantize import autocast_of
from expert_cli.runs.paths import RunPaths
from expert_cli.runs.status import RunStatus
from expert_cli.training.arguments import training_arguments
from expert_cli.training.callbacks import StepCallback
from expert_cli.training.captured_step import CudaGraphs
from expert_cli.training.checkpointing.resume import (
    Checkpoints,
    Resumed,
    check_disk_space,
    truncate_metrics,
)
from expert_cli.training.memory import adjust_as_before, fit_memory, out_of_memory
from expert_cli.training.metrics_callback import MetricsCallback
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
    stop: StopRequest,
    callbacks: Sequence[TrainerCallback] = (),
) -> FitResult:
    """Train the adapter in place.

    stop: what asks the run to stop, entered. callbacks: people's own, called behind the tool's.

    Raises TrainingFailed: loss not finite, out of memory, a DoRA magnitude that stands still. Interrupted: asked to stop,
    after a checkpoint was written.
    """
    paths = RunPaths(run.output)
    begun_with = resume_context.identity["processes"]
    cost = flops(
        model.get_base_model(), data.train.packs.document_lengths, recomputed=run.compute.checkpointing == "all"
    )
    trainer = _trainer(
        model,
        data,
        run,
        kernels,
        paths,
        cost,
        begun_with=begun_with,
        checkpoints=Checkpoints(model, paths.checkpoints, **vars(resume_context)),
    )
    schedule = trainer.batches.schedule
    if told := few_steps(replace(schedule, processes=begun_with)):
        report.warning(told)
    if told := shared_out(schedule, begun_with):
        report.info(told)
    before = magnitudes(model)
    _make_ready(trainer, model, run, paths, resume_context, report)
    cards = trainer.batches.schedule.processes
    peak = peak_flops(trainer.timer.device.card_name(), cards) if trainer.timer.on_gpu else None
    if trainer.recomputes:
        cost = flops(model.get_base_model(), data.train.packs.document_lengths, recomputed=True)
    metrics = MetricsCallback(
        trainer.progress, trainer.timer, paths.metrics, flops=cost, peak_flops=peak and peak[0], warning=report.warning
    )
    capture = _capture_line(trainer, kernels.lines["capture"])
    report.info(f"capture   {capture.used}: {capture.reason}")
    steps = StepCallback(run.watch, schedule.steps_per_epoch, stop.asked)
    _train(
        trainer, [metrics, steps, *run_callbacks(run, paths), *callbacks], metrics, stop, paths, resume_context, report
    )
    if trainer.state.global_step > trainer.args.get_warmup_steps(schedule.steps) + 1:
        _require_moved(model, before)
    return _result(trainer, metrics, cost, peak, capture)


def _trainer(
    model: PeftModel,
    data: TrainingData,
    run: RunConfig,
    kernels: KernelPlan,
    paths: RunPaths,
    cost: Flops,
    *,
    begun_with: int,
    checkpoints: Checkpoints,
) -> ExpertTrainer:
    """Return a trainer. begun_with: the processes that began the run."""
    arguments = training_arguments(run, paths.checkpoints)
    train_on_one_card(arguments)
    schedule = schedule_of(run, data.train, arguments.world_size, begun_with)
    order_of = orders_of(run, data.train)
    capturing = kernels.lines["capture"].used != "off"
    target_cost = cost.per_trained_token / cost.per_token

    def shape_of(schedule: Schedule) -> FixedShape | None:
        fixed = capturing or kernels.fixed_shape
        return fixed_shape(data.train, schedule, order_of, run.data.max_seq_length, target_cost) if fixed else None

    trainer = ExpertTrainer(
        optim_config=run.optim,
        watch=run.watch,
        batches=PackedBatchSampler(schedule, order_of, rank=arguments.process_index),
        model=CausalLoss(model, full_logits=kernels.full_logits, autocast=autocast_of(run.compute.dtype)),
        args=arguments,
        train_dataset=data.train,
        eval_dataset=dict(data.validation),
        data_collator=Collator(data.pad_id, kernels.layout),
        run_answers=data.run_answers,
        shape_of=shape_of,
        graphs=CudaGraphs() if capturing else None,
        checkpoints=checkpoints,
    )
    trainer.remove_callback(PrinterCallback)
    if run.watch.early_stopping_patience:
        trainer.add_callback(EarlyStoppingCallback(run.watch.early_stopping_patience))
    return trainer


def _make_ready(
    trainer: ExpertTrainer,
    model: PeftModel,
    run: RunConfig,
    paths: RunPaths,
    resume_context: ResumeContext,
    report: Reporter,
) -> None:
    """Fit the step to the device's memory, record it, and see that the disk can hold the checkpoints."""
    if run.compute.torch_compile:
        forget_graphs()  # layers of one class share how often they may be compiled anew, with those of other runs too
    resumed = resume_context.resumed
    if resumed is not None:
        adjust_as_before(trainer, resumed.parts, run)
    if trainer.timer.on_gpu and not run.compute.fsdp:
        fit_memory(trainer, run, report)
    elif run.compute.torch_compile:
        trainer.try_step()
        trainer.flat.gradient.zero_()
    if run.compute.torch_compile:
        graphs, seconds = graphs_made()
        report.info(f"compile   {plural(graphs, 'graph')} in {seconds:.1f} s")
    step = resumed.parts.trainer_state["global_step"] if resumed else 0
    schedule = trainer.batches.schedule
    if trainer.args.process_index == 0:
        truncate_metrics(paths, step)
        saves = schedule.steps // run.watch.save_steps + 1 if run.watch.save_strategy == "steps" else 2
        paths.checkpoints.mkdir(exist_ok=True)
        check_disk_space(model, paths.checkpoints, run.optim.optim, run.watch.save_total_limit, saves)
    resume_context.status.reached(step, schedule.steps)


def _capture_line(trainer: ExpertTrainer, planned: Kernel) -> Kernel:
    """Return what became of recording the step."""
    if planned.used == "off":
        return planned
    if trainer.captured is None:
        return Kernel("off", f"the recorded step failed its proof, every step is eager: {trainer.not_captured}")
    return Kernel(planned.used, f"{trainer.data_collator.shape}; proven on the first one")


def run_callbacks(run: RunConfig, paths: RunPaths) -> list[TrainerCallback]:
    """Return the callbacks that every run has, whoever trains."""
    if "tensorboard" not in run.watch.report_to:
        return []
    from torch.utils.tensorboard import SummaryWriter

    return [TensorBoardCallback(SummaryWriter(log_dir=str(paths.tensorboard)))]


def _train(
    trainer: ExpertTrainer,
    callbacks: Sequence[TrainerCallback],
    metrics: MetricsCallback,
    stop: StopRequest,
    paths: RunPaths,
    resume_context: ResumeContext,
    report: Reporter,
) -> None:
    """Train behind a bar. Raises Interrupted: asked to stop, after a checkpoint was written; TrainingFailed: out of memory."""
    steps, resumed = trainer.batches.schedule.steps, resume_context.resumed
    for callback in callbacks:
        trainer.add_callback(callback)
    with report.progress("training", steps, "steps") as metrics.bar:
        try:
            trainer.train(resume_from_checkpoint=str(resumed.path) if resumed else None)
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
            raise out_of_memory(trainer, paths.checkpoints, resume_context.status.go_on) from error
        finally:
            resume_context.status.step = trainer.state.global_step
            trainer.callback_handler.train_dataloader = None  # ends its workers
    stop.asked(at_once=True)  # the last step may have been too short for a look
    stop.agree()
    step = trainer.state.global_step
    if stop.exit_code and step < steps:
        done = f"stopped by {stop.reason} after step {step} of {steps}; checkpoint-{step} is written"
        raise Interrupted(done, f"go on: {resume_context.status.go_on}", stop.exit_code, by_signal=stop.by_signal)


def _require_moved(model: PeftModel, before: dict[str, torch.Tensor]) -> None:
    """DoRA's magnitudes must have moved; in bf16 they would not, and nothing else would tell."""
    after: dict[str, Any] = magnitudes(model)
    still = [name for name, old in before.items() if torch.equal(old, after[name])]
    if before and len(still) == len(before):
        message = f"none of the {len(before)} DoRA magnitude vectors moved"
        raise TrainingFailed(message, "raise learning_rate, or train longer than the warm-up")


def _result(
    trainer: ExpertTrainer,
    metrics: MetricsCallback,
    cost: Flops,
    peak: tuple[float, str] | None,
    capture: Kernel,
) -> FitResult:
    trainer.health.flush()
    progress, here, step = trainer.progress, metrics.done_here(), trainer.state.global_step
    evaluated = [logs for logs in trainer.state.log_history if EVAL_LOSS in logs]
    last = evaluated[-1] if evaluated else {}
    return FitResult(
        steps=step,
        epochs=step / trainer.batches.schedule.steps_per_epoch,
        losses=tuple(progress.losses),
        eval_loss=last.get(EVAL_LOSS),
        eval_losses={name[5:-5]: loss for name, loss in last.items() if is_eval_loss(name) and name != EVAL_LOSS},
        real_tokens=progress.real,
        trained_tokens=progress.trained,
        padded_tokens=progress.padded,
        here=here,
        peak_memory_mb=metrics.peak_memory_mb,
        mfu=cost.of(here.real, here.trained) / max(1e-9, here.seconds) / peak[0] if peak else None,
        peak=peak[1] if peak else "",
        step_time_shares=trainer.timer.shares(),
        capture=capture,
        adjusted=tuple(trainer.adjusted),
        stop_reason=_stop_reason(trainer),
    )


def _stop_reason(trainer: ExpertTrainer) -> str:
    """Return why training ended where it did, in words."""
    step, steps, patience = (
        trainer.state.global_step,
        trainer.batches.schedule.steps,
        trainer.watch.early_stopping_patience,
    )
    if step == steps:
        return f"all {steps} steps of the schedule are done"
    if trainer.stopped_early:
        return (
            f"early stopping after step {step} of {steps}: {trainer.watch.metric_for_best_model} was best at step "
            f"{trainer.state.best_global_step} ({trainer.state.best_metric:.4g}), and early_stopping_patience is {patience}"
        )
    return f"a callback stopped training after step {step} of {steps}"
