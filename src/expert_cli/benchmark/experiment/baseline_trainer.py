"""A stock Trainer on the micro-batches that were laid down for it, telling its steps as this tool tells its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import DataLoader
from transformers import (
    PrinterCallback,
    Trainer,
    TrainerCallback,
    TrainerControl,
    TrainerState,
    TrainingArguments,
)

from expert_cli.benchmark.experiment.baseline_rows import StepRows, Tokens
from expert_cli.config.run_config import RunConfig
from expert_cli.data.packing.dataset import IGNORE_INDEX
from expert_cli.errors import EnvironmentProblem, TrainingFailed
from expert_cli.hardware.devices import DEVICES
from expert_cli.model.flops import flops
from expert_cli.runs.paths import RunPaths
from expert_cli.training.arguments import training_arguments
from expert_cli.training.metrics_callback import MetricsCallback
from expert_cli.training.state import TrainingState
from expert_cli.training.step_timer import Phase, StepTimer
from expert_cli.utils.length_histogram import LengthHistogram
from expert_cli.utils.out_of_memory import is_out_of_memory
from expert_cli.utils.reporter import NullBar

Counts = tuple[int, int, int]
"""Real tokens, trained ones, padding."""


@dataclass(frozen=True)
class StockRun:
    """What a way trains and with what.

    run: the settings, those that decide its speed as the way has them. parts: what the trainer takes beside model and rows,
    its collator or its tokenizer. settings: of `arguments`, what it has beyond TrainingArguments.
    """

    run: RunConfig
    data: StepRows
    parts: Mapping[str, Any]
    trainer: Any = Trainer
    arguments: type[TrainingArguments] = TrainingArguments
    settings: Mapping[str, Any] = field(default_factory=dict)


def counts_of(batch: Mapping[str, torch.Tensor], documents: Sequence[Tokens] = ()) -> Counts:
    """Return what a batch holds. documents: what must be in it, in this order; none where it is made of texts.

    Raises EnvironmentProblem where the batch holds other tokens, or trains others.
    """
    ids, labels = batch["input_ids"], batch["labels"]
    real = batch["attention_mask"].bool() if "attention_mask" in batch else torch.ones_like(ids, dtype=torch.bool)
    tokens, trained = int(real.sum()), int((labels != IGNORE_INDEX).sum())
    wanted = {name: [token for each in documents for token in each[name]] for name in ("input_ids", "labels")}
    count = len(wanted["labels"]) - wanted["labels"].count(IGNORE_INDEX)
    same = (ids[real].tolist(), labels[real].tolist(), trained) == (*wanted.values(), count)
    if documents and not same:
        raise EnvironmentProblem(
            f"a batch holds other tokens, or trains others, than its {len(documents)} documents: {tokens} tokens instead of "
            f"{len(wanted['labels'])}, {trained} of them trained instead of {count}",
            "compare with other versions: pip install -U transformers trl",
        )
    return tokens, trained, ids.numel() - tokens


def totals_of_steps(data: StepRows, collator: Callable[[list[Any]], Any]) -> NDArray[np.int64]:
    """Return what is trained up to the end of every optimizer step, int64 [steps, 3] in the order of `counts_of`.

    All batches are made once for it, before the time is taken.
    """

    def counts(numbers: list[int]) -> Counts:
        rows = [data.rows[number] for number in numbers]
        return counts_of(collator(rows), rows if isinstance(rows[0], dict) else ())

    return np.cumsum([np.sum([counts(numbers) for numbers in step], axis=0) for step in data.steps], axis=0)


class _Steps(TrainerCallback):
    """Tells forward, backward and optimizer apart, and counts tokens; it must come before the `MetricsCallback`."""

    def __init__(
        self, model: torch.nn.Module, totals: NDArray[np.int64], timer: StepTimer, progress: TrainingState
    ) -> None:
        self.totals = totals
        self.timer = timer
        self.progress = progress
        self._open = ExitStack()
        model.register_forward_pre_hook(lambda *_: self._begin("forward"))
        model.register_forward_hook(lambda *_: self._begin("backward"))

    def _begin(self, phase: Phase) -> None:
        self._open.close()
        self._open.enter_context(self.timer.phase(phase))

    def on_train_begin(self, *_: Any, **__: Any) -> None:
        self.timer.lap()

    def on_pre_optimizer_step(self, *_: Any, **__: Any) -> None:
        self._begin("optimizer")

    def on_substep_end(self, *_: Any, **__: Any) -> None:
        self._open.close()

    on_optimizer_step = on_substep_end

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:  # noqa: ARG002
        self._open.close()
        progress, step = self.progress, state.global_step
        progress.step, (progress.real, progress.trained, progress.padded) = step, self.totals[step - 1].tolist()


def _trainer(model: Any, stock: StockRun, timer: StepTimer, checkpoints: Path) -> Any:
    """Return the way's own Trainer, reading its micro-batches as they are laid down."""
    arguments = training_arguments(
        stock.run,
        checkpoints,
        stock.arguments,
        logging_nan_inf_filter=False,  # a loss that is not finite would be logged as 0.0
        gradient_checkpointing=stock.run.compute.checkpointing != "off",
        gradient_checkpointing_kwargs={"use_reentrant": False},
        **stock.settings,
    )
    stock_trainer = stock.trainer

    class InOurSteps(stock_trainer):  # type: ignore[misc, valid-type]
        def get_train_dataloader(self) -> DataLoader[Any]:
            return DataLoader(
                self.train_dataset,
                batch_sampler=stock.data.micro_batches(),
                collate_fn=self.data_collator,
                num_workers=self.args.dataloader_num_workers,
                pin_memory=self.args.dataloader_pin_memory and timer.device.is_gpu,
            )

        def get_batch_samples(self, *arguments: Any, **named: Any) -> Any:
            with timer.phase("data"):
                return super().get_batch_samples(*arguments, **named)

    trainer = InOurSteps(model=model, args=arguments, train_dataset=stock.data.rows, **stock.parts)
    trainer.remove_callback(PrinterCallback)
    return trainer


def fit_stock(model: Any, stock: StockRun, paths: RunPaths) -> float:
    """Let the way's Trainer train, its steps told as the tool tells its own; return the most memory that it took, in MB.

    Raises EnvironmentProblem where its batches are not what the tool trains, TrainingFailed when memory runs out.
    """
    progress, timer = TrainingState(), StepTimer(DEVICES[stock.run.compute.device])
    trainer = _trainer(model, stock, timer, paths.checkpoints)
    length = LengthHistogram.of(np.array([stock.run.data.max_seq_length]))
    cost = flops(model.get_base_model(), length, recomputed=True)
    metrics_callback = MetricsCallback(progress, timer, paths.metrics, NullBar(), flops=cost, peak_flops=None)
    trainer.add_callback(_Steps(model, totals_of_steps(stock.data, trainer.data_collator), timer, progress))
    trainer.add_callback(metrics_callback)
    try:
        trainer.train()
    except RuntimeError as error:
        if not is_out_of_memory(error):
            raise
        told = str(error).partition("\n")[0]  # with the bytes
        raise TrainingFailed(f"out of memory: {told}".rstrip(": "), "halve batch_size") from error
    return metrics_callback.peak_memory_mb
