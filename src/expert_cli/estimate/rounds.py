"""What rounds of learning from answers that were run will need: exact counts, and upper bounds of what answers decide."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from expert_cli.config.plan import Plan
from expert_cli.evaluation.evaluate import DEFAULT_NEW_TOKENS
from expert_cli.manifest.keys.rft import RftConfig
from expert_cli.pipeline.rft.prompts import parted
from expert_cli.pipeline.rft.sampling import drawn_before

NO_SPEED = "not known: no answers were drawn in this output folder yet"


@dataclass(frozen=True)
class RoundsEstimate:
    """What one round needs, with how many there are at most. Counts are exact, what is named so is an upper bound."""

    rounds: int
    prompts: int
    held_back: int
    answers: int
    tokens_at_most: int
    rows_at_most: int
    training_seconds_at_most: float
    sampling_seconds_at_most: float | None
    sampling_source: str

    def as_json(self) -> dict[str, Any]:
        """Return the value under "rft"."""
        return asdict(self)


def estimate_rounds(plan: Plan, settings: RftConfig, rows: int, seconds: float) -> RoundsEstimate:
    """Say what a round needs. rows, seconds: of the first training.

    Raises InputError: prompts at fault, or that cannot be parted.
    """
    prompts = parted(settings, plan.run.seed)
    asked = len(prompts.of_round(1, settings.limit, plan.run.seed))
    each = settings.keep + (settings.gold == "always")
    most = asked * each + round(settings.replay * rows)
    answers = asked * settings.samples
    tokens = answers * DEFAULT_NEW_TOKENS
    drawn, took = drawn_before(plan.run.output)
    return RoundsEstimate(
        rounds=settings.rounds,
        prompts=asked,
        held_back=len(prompts.held_back),
        answers=answers,
        tokens_at_most=tokens,
        rows_at_most=most,
        training_seconds_at_most=seconds if plan.run.optim.max_steps > 0 else seconds * most / max(1, rows),
        sampling_seconds_at_most=tokens * took / drawn if drawn else None,
        sampling_source=f"{drawn:,} tokens drawn in {plan.run.output}" if drawn else NO_SPEED,
    )
