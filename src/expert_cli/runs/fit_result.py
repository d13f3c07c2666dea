"""The result of a training run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


def mean_span(steps: int) -> int:
    """Return how many losses the means at either end of a run are of: five, in a short run fewer, so that none is in both."""
    return max(1, min(5, steps // 2))


@dataclass(frozen=True)
class Done:
    """What one process trained: real and trained tokens, and the time of its loop."""

    real: int
    trained: int
    seconds: float

    @property
    def tokens_per_s(self) -> float:
        """Real tokens (no padding) a second; 0 where no time has passed."""
        return self.real / self.seconds if self.seconds else 0.0


@dataclass(frozen=True)
class FitResult:
    """Steps done, the loss of each (mean per trained token of one optimizer step, unrounded), tokens: of the whole run.

    Of the process that ended it, which may have gone on from a checkpoint: `here`, peak_memory_mb, mfu (None: the peak of the
    hardware is not known), step_time_shares, which sum to 1, capture: as the kernel plan says it.
    adjusted: what had to be changed to fit the GPU's memory. stop_reason: why training ended where it did.
    """

    steps: int
    epochs: float
    losses: tuple[float, ...]
    eval_loss: float | None
    real_tokens: int
    trained_tokens: int
    padded_tokens: int
    here: Done
    peak_memory_mb: float
    mfu: float | None
    step_time_shares: Mapping[str, float]
    capture: tuple[str, str]
    adjusted: tuple[str, ...]
    stop_reason: str

    def mean_losses(self) -> tuple[float, float]:
        """Return the means of the first and of the last `mean_span` losses, which a single odd batch moves less."""
        span = mean_span(len(self.losses))
        return sum(self.losses[:span]) / span, sum(self.losses[-span:]) / span
