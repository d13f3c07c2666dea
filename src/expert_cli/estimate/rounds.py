"""What rounds of learning from answers that were run will need: exact counts, and upper bounds of what answers decide."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from expert_cli.config.plan import Plan
from expert_cli.config.run_config import RunConfig
from expert_cli.estimate.memory import MB
from expert_cli.estimate.model_shape import Shape, linear_weights
from expert_cli.evaluation.evaluate import BATCH, DEFAULT_NEW_TOKENS
from expert_cli.hardware.devices import DEVICES
from expert_cli.manifest.keys.rft import RftConfig
from expert_cli.model.loading.quantize import DTYPES
from expert_cli.pipeline.rft.prompts import parted
from expert_cli.pipeline.rft.sampling import drawn_before

DRAWN_PER_TRAINED = 0.5
"""Tokens that a CPU draws in the time of one that is trained: 0.4 to 0.7 with SmolLM2-135M on a core of an AMD EPYC, more where
prompts are short and more answers are drawn to each."""
UNKNOWN_SPEED = "not known: no answers were drawn in this output folder yet"


@dataclass(frozen=True)
class RoundsEstimate:
    """What one round needs, with how many there are at most. Counts are exact, what is named so is an upper bound."""

    rounds: int
    prompts: int
    held_back: int
    answers: int
    tokens: int
    tokens_at_most: int
    rows_at_most: int
    training_seconds_at_most: float
    sampling_seconds: float | None
    sampling_seconds_at_most: float | None
    sampling_source: str
    sampling_memory_mb: float

    def as_json(self) -> dict[str, Any]:
        """Return the value under "rft"."""
        return asdict(self)


def estimate_rounds(
    plan: Plan, settings: RftConfig, rows: Mapping[str, Any], speed: float, seconds: float, memory: int
) -> RoundsEstimate:
    """Say what a round needs. rows: the statistics of the first training's. speed: its tokens a second; seconds: it takes.

    memory: bytes that drawing answers takes. Raises InputError: prompts at fault, or that cannot be parted.
    """
    prompts = parted(settings, plan.run.seed)
    asked = len(prompts.of_round(1, settings.limit, plan.run.seed))
    each = max(settings.keep, settings.gold == "failed") + (settings.gold == "always")
    most = asked * each + round(settings.replay * rows["rows"])
    answers = asked * settings.samples
    tokens = min(answers * DEFAULT_NEW_TOKENS, round(answers * rows["trained_tokens"] / max(1, rows["rows"])))
    drawing, source = _drawing_speed(plan.run, speed)
    return RoundsEstimate(
        rounds=settings.rounds,
        prompts=asked,
        held_back=len(prompts.held_back),
        answers=answers,
        tokens=tokens,
        tokens_at_most=answers * DEFAULT_NEW_TOKENS,
        rows_at_most=most,
        training_seconds_at_most=seconds if plan.run.optim.max_steps > 0 else seconds * most / max(1, rows["rows"]),
        sampling_seconds=tokens / drawing if drawing else None,
        sampling_seconds_at_most=answers * DEFAULT_NEW_TOKENS / drawing if drawing else None,
        sampling_source=source,
        sampling_memory_mb=round(memory / MB, 1),
    )


def _drawing_speed(run: RunConfig, training: float) -> tuple[float, str]:
    """Return how many tokens are drawn a second, 0 where that is not known, and where the figure comes from."""
    drawn, took = drawn_before(run.output)
    if drawn:
        return drawn / took, f"{drawn:,} tokens drawn in {run.output}"
    if DEVICES[run.compute.device].kind == "cpu":
        return DRAWN_PER_TRAINED * training, f"{DRAWN_PER_TRAINED:.0%} of the training's tokens a second assumed"
    return 0.0, UNKNOWN_SPEED


def sampling_bytes(shape: Shape, run: RunConfig, process: int) -> int:
    """Return the bytes that drawing answers takes where prompts are as long as rows may be, and answers as they may be.

    All weights in the compute dtype, on a CPU those of linear layers once more, packed for its products; keys and values of a
    batch; its scores in fp32. process: of the CUDA context or of the Python process.
    """
    device, element = DEVICES[run.compute.device], DTYPES[run.compute.dtype].itemsize
    batch, linear = BATCH[device.kind], linear_weights(shape)
    packed = linear if device.kind == "cpu" else 0
    cache = batch * (run.data.max_seq_length + DEFAULT_NEW_TOKENS) * len(shape.layers) * 2 * shape.key_heads
    numbers = linear + shape.other + packed + shape.adapter_parameters + cache
    return process + element * numbers + 4 * batch * shape.vocabulary
