"""Logging, checkpoints and evaluation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from expert_cli.manifest.key import TIME, Positive, Strategy, Strict, key

EVAL_LOSS, EXECUTION_ACCURACY = "eval_loss", "execution_accuracy"
NEVER = 1_000_000
"""`eval_steps` of a run that evaluates nothing, not even after its last step."""

# fmt: off
ReportTo = Literal["azure_ml", "clearml", "codecarbon", "comet_ml", "dagshub", "dvclive", "flyte", "kubeflow", "mlflow",
                   "neptune", "swanlab", "tensorboard", "trackio", "wandb"]
# fmt: on


def seconds_of(time: str) -> float:
    """Return the seconds of a duration: "30s", "5m", "1h"."""
    return float(time[:-1]) * {"s": 1, "m": 60, "h": 3600}[time[-1]]


class LogSaveEvalKeys(Strict):
    """The keys for logs, checkpoints and evaluations."""

    logging_steps: Positive | None = key(10, "a log line every {} steps", why="enough to follow the loss")
    """Steps between two log lines."""
    save_strategy: Strategy | None = key(
        None, 'checkpoints: "{}"', why="by time (`save_every`), because steps take different times"
    )
    """When checkpoints are written, the first one after at most 60 s of training; default: by time (`save_every`). With
    `load_best_model_at_end`, "steps" and "epoch" become the strategy of evaluation."""
    save_steps: Positive | None = key(500, "a checkpoint every {} steps", why="transformers' own")
    """Steps between two checkpoints. With `load_best_model_at_end` raised to a multiple of the steps between two
    evaluations."""
    save_every: Annotated[str, Field(pattern=TIME)] | None = key(
        "5m",
        lambda time: f"a checkpoint every {seconds_of(time):g} s of training, at a step's end",
        why="a crash loses 5 minutes at most, and a checkpoint of an adapter takes about a second",
    )
    """Time between two checkpoints ("30s", "5m", "1h"); the default applies if no other key says when to save."""
    save_total_limit: Positive | None = key(None, "the newest {} checkpoints are kept", off="every checkpoint is kept")
    """Checkpoints that are kept, at least 2; null keeps all."""
    evaluation_strategy: Strategy | None = None
    """Old name of `eval_strategy`."""
    eval_strategy: Strategy | None = key(None, 'evaluation: "{}"', why="without an evaluation all rows can be trained")
    """When the validation rows are evaluated; default "no", unless another key needs it."""
    eval_steps: Positive | None = key(None, "an evaluation every {} steps")
    """Steps between two evaluations; default: `save_steps`."""
    load_best_model_at_end: bool | None = key(
        False,
        "the best checkpoint becomes the adapter",
        off="the last step becomes the adapter",
        why="with a schedule that ends near 0 the last step is the best one, unless rows are memorized",
    )
    """Keep the best step by `metric_for_best_model`, saved when it is evaluated, instead of the last one."""
    metric_for_best_model: Literal["eval_loss", "loss", "execution_accuracy"] | None = key(
        EVAL_LOSS, "the best model is chosen by {}", why="it needs no test cases"
    )
    """What "best" means: the loss on the validation rows, or with `evaluation.every_steps` the share of right answers."""
    greater_is_better: bool | None = key(None, "larger is better", off="smaller is better")
    """Whether a larger metric is better: true for execution_accuracy, else false."""
    early_stopping_patience: Positive | None = key(None, "stops after {} evaluations in a row without a better one")
    """Stop after this many evaluations without a better one."""
    report_to: Literal["none"] | ReportTo | list[ReportTo] | None = key(
        None, lambda targets: f"metrics are written to {', '.join(targets) or 'metrics.jsonl only'}"
    )
    """Where metrics go besides metrics.jsonl: the integrations of transformers' Trainer, whose packages must be installed."""

    @property
    def compares_steps(self) -> bool:
        """Whether the run compares its steps to find the best one."""
        return bool(self.load_best_model_at_end or self.early_stopping_patience)

    @property
    def goes_by_loss(self) -> bool:
        """Whether "best" means the loss on the validation rows, not the share of right answers."""
        return self.metric_for_best_model != EXECUTION_ACCURACY

    @property
    def evaluates_loss(self) -> bool:
        """Whether the loss on the validation rows is computed during the run."""
        needs_loss = self.eval_steps or (self.compares_steps and self.goes_by_loss)
        return self.eval_strategy != "no" and bool(self.eval_strategy or needs_loss)


@dataclass(frozen=True)
class LogSaveEvalConfig:
    """What is logged, saved and evaluated, and when. `save_total_limit` None keeps every checkpoint.

    save_every_s > 0: checkpoints by time, whatever `save_strategy` is. validates: an evaluation computes the loss on the
    validation rows. answers: the number of cases answered in it. metric: chooses the best step; its name in the Trainer's log.
    """

    logging_steps: int
    save_strategy: Strategy
    save_steps: int
    save_every_s: float
    save_total_limit: int | None
    eval_strategy: Strategy
    eval_steps: int
    validates: bool
    answers: int
    metric: str
    load_best_model_at_end: bool
    early_stopping_patience: int
    report_to: tuple[str, ...]
