"""Which prompts an expert answers in training, and what its answers are worth: method grpo."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from expert_cli.manifest.key import key
from expert_cli.manifest.types import NotNegativeNumber, Positive, PositiveNumber, Strict, Text

Reward = Literal["dense", "binary"]


class Grpo(Strict):
    """`training.grpo`: reinforcement learning from answers that are judged, by TRL's GRPOTrainer."""

    prompts: Text | None = key(None, "the prompts, and what judges the answers to them")
    """File of prompts with what judges their answers, relative to the manifest: rows as those of `tests/cases.jsonl`. Needed
    where `training.config.method` is grpo."""
    samples: Annotated[int, Field(ge=2, le=1024)] | None = key(
        8,
        "{} answers to a prompt are drawn and compared",
        why="of fewer, often all are right or all wrong, and teach nothing",
    )
    """Answers that are drawn to each prompt, and compared with each other; `batch_size` times `gradient_accumulation_steps`
    is a multiple of it."""
    temperature: PositiveNumber | None = key(
        1.0,
        "answers are drawn at temperature {:g}",
        why="answers are drawn as the expert weighs them, which GRPO assumes",
    )
    """Temperature at which they are drawn."""
    reward: Reward | None = key(
        "dense",
        {"dense": "answers are worth how far they came", "binary": "answers are worth 1 or 0"},
        why="wrong answers differ in it, too, so that prompts without a right one teach something",
    )
    """`dense`: by how far an answer came (parses, runs, has the columns, is right); `binary`: 1 where it is right, else 0."""
    max_new_tokens: Positive | None = key(
        256, "answers of at most {} tokens", why="queries and JSON need no more, and drawing is most of the time"
    )
    """Longest answer, in tokens."""
    beta: NotNegativeNumber | None = key(
        0.0,
        "a divergence weighed {:g} holds the expert to the base model",
        off="nothing holds it to the base model",
        why="TRL's own; answers are run and cannot be flattered, and the model at the start needs no pass",
    )
    """Weight of the divergence from the model at the start; 0: none."""


@dataclass(frozen=True)
class GrpoConfig:
    """What answers are drawn in training, and what they are worth. prompts: an absolute path."""

    prompts: Path
    samples: int
    temperature: float
    reward: Reward
    max_new_tokens: int
    beta: float
