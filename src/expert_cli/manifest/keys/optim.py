"""The length of training, and the optimizer."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from expert_cli.manifest.key import NotNegative, NotNegativeNumber, Positive, PositiveNumber, Share, Strict, key

Epochs = Annotated[float, Field(gt=0, le=100_000, allow_inf_nan=False)]
SCHEDULERS: dict[str, frozenset[str]] = {
    "linear": frozenset(),
    "cosine": frozenset({"num_cycles"}),
    "cosine_with_restarts": frozenset({"num_cycles"}),
    "polynomial": frozenset({"lr_end", "power"}),
    "constant": frozenset(),
    "constant_with_warmup": frozenset(),
    "inverse_sqrt": frozenset({"timescale"}),
    "cosine_with_min_lr": frozenset({"num_cycles", "min_lr", "min_lr_rate"}),
    "cosine_warmup_with_min_lr": frozenset({"num_cycles", "min_lr", "min_lr_rate", "warmup_lr_rate"}),
    "warmup_stable_decay": frozenset({"num_decay_steps", "num_stable_steps", "min_lr_ratio", "num_cycles"}),
    "one_cycle": frozenset({"pct_start", "div_factor", "final_div_factor", "three_phase"}),
    "reduce_lr_on_plateau": frozenset({"factor", "patience", "threshold", "cooldown"}),
    "greedy": frozenset({"factor", "patience", "threshold", "cooldown", "warmup", "min_lr", "max_lr"}),
}
BY_EVALUATIONS = ("reduce_lr_on_plateau", "greedy")
OPTIMIZERS = (
    *("adamw_torch", "adamw_torch_fused", "adamw_8bit", "adamw_bnb_8bit"),
    *("paged_adamw", "paged_adamw_32bit", "paged_adamw_8bit", "adafactor"),
    *("lion_32bit", "lion_8bit", "paged_lion_32bit", "paged_lion_8bit"),
    *("rmsprop", "rmsprop_bnb", "rmsprop_bnb_8bit", "sgd", "adagrad"),
)
OLD_OPTIMIZERS = {
    "ademamix": "adamw_torch_fused",
    "ademamix_8bit": "adamw_8bit",
    "paged_ademamix_32bit": "paged_adamw_32bit",
    "paged_ademamix_8bit": "paged_adamw_8bit",
}
"""Names that earlier versions accepted, and the optimizer that replaces each."""
WITHOUT_WAITS = frozenset({"adamw_torch", "adamw_torch_fused", "adafactor", "rmsprop", "sgd", "adagrad"})
"""Optimizers whose step does not wait for the GPU. Those of bitsandbytes wait after every parameter (0.50.2:
Optimizer8bit.step), and the adapter is one parameter."""
_ROWS = "{keys[batch_size]} x {keys[gradient_accumulation_steps]} rows in each optimizer step"


def _optimizer(name: str) -> str:
    waits = "" if name in WITHOUT_WAITS else "; its step waits for the GPU once"
    return f"optimizer {name}{waits}"


class OptimKeys(Strict):
    """The keys for the length of training and the optimizer."""

    epochs: Epochs | None = key(1.0, "{:g} passes over the data", why="rows are not memorized; few rows need more")
    """Passes over the data, fractions allowed."""
    num_epochs: Epochs | None = None
    """Old name of `epochs`."""
    max_steps: Positive | None = key(None, "{} optimizer steps")
    """Optimizer steps; overrides `epochs`."""
    learning_rate: Annotated[float, Field(gt=0, le=100, allow_inf_nan=False)] | None = key(
        2e-4,
        "peak learning rate",
        why="QLoRA's for models of some billion weights; below 0.5 billion 1e-3 to 2e-3 learn faster",
    )
    """Peak learning rate."""
    lr_scheduler: Literal[tuple(SCHEDULERS)] | None = key(  # type: ignore[valid-type]
        "cosine",
        "learning rate schedule",
        why="it ends near 0, so that the last rows do not count more than earlier ones",
    )
    """Learning rate schedule."""
    lr_scheduler_kwargs: dict[str, int | float | bool] | None = key(None, "passed to the scheduler")
    """Settings of the scheduler, such as `num_cycles`."""
    warmup_steps: NotNegative | None = key(
        0,
        "the learning rate rises for {} steps",
        off="no warm-up",
        why="a new adapter is zero, so its first gradients are small anyway",
    )
    """Steps in which the learning rate rises from 0; 0 means "not set" beside a `warmup_ratio`."""
    warmup_ratio: Share | None = key(0.0, "warm-up over {:.0%} of all steps", off="no warm-up", why="as `warmup_steps`")
    """The same as a share of all steps; `warmup_steps` > 0 wins."""
    weight_decay: NotNegativeNumber | None = key(0.0, "decoupled weight decay", why="the low rank limits the adapter")
    """Decoupled weight decay."""
    max_grad_norm: NotNegativeNumber | None = key(
        1.0, "gradients are clipped", off="no clipping", why="limits the effect of unusual rows"
    )
    """Gradients with a larger norm are scaled down to this one (0: never)."""
    batch_size: Positive | None = key(1, _ROWS, why="a packed row of 2048 tokens holds 16 documents of 128 tokens")
    """Rows of each device in a micro-step."""
    gradient_accumulation_steps: Positive | None = key(1, _ROWS, why="for LoRA more steps are better than larger ones")
    """Micro-steps of an optimizer step."""
    optim: Literal[*OPTIMIZERS, *OLD_OPTIMIZERS] | None = key(  # type: ignore[valid-type]
        "adamw_torch_fused", _optimizer, why="the fastest exact one; the states of an adapter are small"
    )
    """Optimizer; AdEMAMix becomes AdamW."""
    neftune_noise_alpha: PositiveNumber | None = key(None, "noise on the embeddings")
    """Noise on the embeddings (NEFTune)."""


@dataclass(frozen=True)
class OptimConfig:
    """Steps, learning rate, optimizer. `max_steps` -1: decided by `epochs`. `warmup` < 1 is a share of all steps."""

    epochs: float
    max_steps: int
    batch_size: int
    gradient_accumulation_steps: int
    learning_rate: float
    scheduler: str
    scheduler_kwargs: tuple[tuple[str, float], ...]
    warmup: float
    weight_decay: float
    max_grad_norm: float
    optim: str
    neftune_noise_alpha: float | None

    def warmup_fault(self, steps: int) -> str:
        """Return a warning if the warm-up takes all `steps` of a run, "" otherwise."""
        taken = int(self.warmup) if self.warmup >= 1 else math.ceil(steps * self.warmup)
        reached = self.learning_rate * (steps - 1) / max(1, taken)
        told = f"the warm-up takes {taken} steps and the run has {steps}: the learning rate begins at 0 and ends at "
        return f"{told}{reached:.2g}, not at {self.learning_rate:g}" if taken >= steps else ""
