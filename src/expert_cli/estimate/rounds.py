"""What rounds of learning from answers that were run will need: exact counts, and upper bounds of what answers decide."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from expert_cli.config.plan import Plan
from expert_cli.config.run_config import RunConfig
from expert_cli.estimate.memory import MB
from expert_cli.estimate.model_shape import Shape, linear_weights
from expert_cli.estimate.prices import Price
from expert_cli.evaluation.evaluate import BATCH, DEFAULT_NEW_TOKENS, room_for_answers
from expert_cli.hardware.devices import DEVICES
from expert_cli.inference.expert import PromptRenderer
from expert_cli.manifest.keys.rft import RftConfig
from expert_cli.model.loading.quantize import DTYPES
from expert_cli.pipeline.rft.prompts import parted
from expert_cli.pipeline.rft.sampling import drawn_before

DRAWN_PER_TRAINED = 0.5
"""Tokens that a CPU draws in the time of one that is trained: 0.4 to 0.7 with SmolLM2-135M on a core of an AMD EPYC, more where
prompts are short and more answers are drawn to each."""
UNKNOWN_SPEED = "not known: no answers were drawn in this output folder yet"


class Training(NamedTuple):
    """What the first training takes."""

    tokens_per_s: float
    seconds: float


@dataclass(frozen=True)
class RoundsEstimate:
    """What one round needs, with how many there are at most. Counts are exact, what is named so is an upper bound.

    begins_from: the adapter that spares the first training; "" = none. seconds, seconds_at_most, cost_at_most: of the whole
    run, but for running the answers.
    """

    begins_from: str
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
    seconds: float | None
    seconds_at_most: float | None
    cost_at_most: float | None

    def as_json(self) -> dict[str, Any]:
        """Return the value under "rft"."""
        return asdict(self)


def estimate_rounds(
    plan: Plan,
    settings: RftConfig,
    rows: Mapping[str, Any],
    first: Training,
    renderer: PromptRenderer,
    memory: int,
    price: Price | None,
) -> RoundsEstimate:
    """Say what a round needs. rows: the statistics of the first training's.

    memory: bytes that drawing answers takes. Raises InputError: prompts at fault, or that cannot be parted.
    """
    prompts, begins_from = parted(settings, plan.run.seed), plan.run.adapter.init_adapter
    asked, held_back = prompts.of_round(1, settings.limit, plan.run.seed), len(prompts.held_back)
    most = len(asked) * _kept(settings) + round(settings.replay * rows["rows"])
    training = first.seconds * (1 if plan.run.optim.max_steps > 0 else most / max(1, rows["rows"]))
    trainings = settings.rounds * training + (0.0 if begins_from else first.seconds)
    room = room_for_answers(renderer, prompts.of_run(settings, plan.run.seed))
    average = min(room, rows["trained_tokens"] / max(1, rows["rows"]))
    answers = len(asked) * settings.samples
    every = settings.rounds * answers + (settings.rounds + 1) * held_back
    speed, source = _drawing_speed(plan.run, first.tokens_per_s)
    seconds = _seconds(every * room, speed, trainings)
    return RoundsEstimate(
        begins_from=str(begins_from or ""),
        rounds=settings.rounds,
        prompts=len(asked),
        held_back=held_back,
        answers=answers,
        tokens=round(answers * average),
        tokens_at_most=answers * room,
        rows_at_most=most,
        training_seconds_at_most=training,
        sampling_seconds=_seconds(round(answers * average), speed),
        sampling_seconds_at_most=_seconds(answers * room, speed),
        sampling_source=source,
        sampling_memory_mb=round(memory / MB, 1),
        seconds=_seconds(every * average, speed, trainings),
        seconds_at_most=seconds,
        cost_at_most=price.cost(seconds) if price and seconds is not None else None,
    )


def _kept(settings: RftConfig) -> int:
    """Return how many answers to a prompt are trained at most."""
    return max(settings.keep, settings.gold == "failed") + (settings.gold == "always")


def _seconds(tokens: float, speed: float, beside: float = 0.0) -> float | None:
    """Return what drawing takes, and what is done beside it; None where no speed is known."""
    return beside + tokens / speed if speed else None


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
