"""How far a run has come: what a checkpoint must hold besides tensors, so that a resumed run ends like an unbroken one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Position:
    """Where in the data a run stands: epochs begun, optimizer steps done, micro-steps done in this epoch."""

    epoch: int
    step: int
    micro_step: int


@dataclass
class TrainingState:
    """Optimizer steps done, the loss of each (mean per trained token), tokens and evaluations so far.

    evaluations: losses of the validation rows, by step. set_losses: the last one of each named set of them. best: the best
    evaluation, at `best_step` (0: none yet); `stale`: evaluations since then. seconds: time of the loop. skipped: steps of the
    schedule that were left out, because a callback ended their epoch.
    """

    step: int = 0
    losses: list[float] = field(default_factory=list)
    real: int = 0
    trained: int = 0
    padded: int = 0
    evaluations: list[tuple[int, float]] = field(default_factory=list)
    best: float | None = None
    best_step: int = 0
    stale: int = 0
    seconds: float = 0.0
    skipped: int = 0
    set_losses: dict[str, float] = field(default_factory=dict)

    @property
    def schedule_step(self) -> int:
        """The step of the schedule (from 0) that comes next."""
        return self.step + self.skipped

    def judge(self, value: float, *, greater_is_better: bool) -> bool:
        """Take what the best model is chosen by in, at the present step; return whether it is the best so far."""
        better = self.best is None or (value > self.best if greater_is_better else value < self.best)
        self.best, self.best_step = (value, self.step) if better else (self.best, self.best_step)
        self.stale = 0 if better else self.stale + 1
        return better

    def is_stale(self, patience: int | None) -> bool:
        """Whether so many evaluations in a row were no better that early stopping ends the run; None or 0: never."""
        return bool(patience) and self.stale >= (patience or 0)

    def as_json(self) -> dict[str, Any]:
        """Return the values under the names that checkpoints hold; floats survive JSON exactly."""
        return {**vars(self), "losses": list(self.losses), "evaluations": list(self.evaluations)}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> TrainingState:
        """Return what `as_json` gave."""
        evaluations = [(int(step), float(value)) for step, value in values["evaluations"]]
        return cls(**{**values, "losses": list(values["losses"]), "evaluations": evaluations})
