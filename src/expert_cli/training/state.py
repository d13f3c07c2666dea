"""What a run counts beside the Trainer's own state, so that a resumed run ends like an unbroken one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass
class TrainingState:
    """The loss of each optimizer step (mean per trained token), tokens so far, and seconds in the loop."""

    losses: list[float] = field(default_factory=list)
    real: int = 0
    trained: int = 0
    padded: int = 0
    seconds: float = 0.0

    def load(self, values: Mapping[str, Any]) -> None:
        """Take back what `vars` gave."""
        vars(self).update(values)
