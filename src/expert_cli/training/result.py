"""What a training run came to."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class FitResult:
    """Steps done, losses (mean per trained token of one optimizer step, unrounded), tokens and time of the loop."""

    steps: int
    epochs: float
    first_loss: float
    last_loss: float
    eval_loss: float | None
    real_tokens: int
    trained_tokens: int
    padded_tokens: int
    seconds: float
    peak_memory_mb: float

    @property
    def tokens_per_s(self) -> float:
        """Real tokens (no padding) a second."""
        return self.real_tokens / self.seconds if self.seconds else 0.0
