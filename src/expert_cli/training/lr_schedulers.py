"""The one learning-rate schedule that transformers has not."""

from __future__ import annotations

from typing import Any

from torch.optim import Optimizer
from torch.optim.lr_scheduler import OneCycleLR


def one_cycle(
    optimizer: Optimizer, steps: int, learning_rate: float, warmup: float, settings: dict[str, Any]
) -> OneCycleLR:
    """Return a schedule that rises to `learning_rate` and falls again within `steps`.

    warmup: share of the steps in which it rises, unless `settings` say; 0: as torch's documents have it, 0.3.
    """
    return OneCycleLR(
        optimizer,
        max_lr=learning_rate,
        total_steps=steps + 1,
        cycle_momentum=False,
        **{"pct_start": min(1.0, warmup) or 0.3, **settings},
    )
