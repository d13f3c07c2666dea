"""`training.rft`: rejection-sampling fine-tuning (`method: "rft"`) trains on drawn answers that were run and are right."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, create_model

from expert_cli.manifest.key import Key, Positive, Strict, Text, key

Gold = Literal["failed", "always", "never"]
Start = Literal["base", "last"]
_GOLD = {
    "failed": "prompts whose answers are all wrong are trained with their expected answer",
    "always": "all prompts are also trained with their expected answer",
    "never": "expected answers are not trained",
}
OfPrompts = Annotated[float, Field(gt=0, lt=1)]
_FROM = {
    "base": "every round trains a new adapter on the base model",
    "last": "every round continues from the adapter that drew its answers",
}


def _judge(held_back: float | str) -> str:
    if isinstance(held_back, str):
        return f"rounds are judged by the cases of {held_back}"
    return f"rounds are judged by {held_back:g} of the databases, whose prompts are not trained"


class _Keys(Strict):
    """`training.rft`: rounds of drawing answers, running them, and training on those that are right."""

    prompts: Text | None = key(None, "answers to these prompts are drawn and run")
    """File of prompts in the form of [test cases](#test-cases), relative to the manifest, then to the project root."""
    rounds: Annotated[int, Field(gt=0, le=100)] | None = key(
        2, "{} rounds at most", why="the run also ends at a round without gain"
    )
    """Largest number of rounds."""
    samples: Annotated[int, Field(gt=0, le=1000)] | None = key(
        8,
        "{} answers to each prompt are drawn",
        why="enough to find a right answer to most prompts that the expert can answer",
    )
    """Answers drawn for each prompt in a round."""
    temperature: Annotated[float, Field(gt=0, le=10)] | None = key(
        0.8, "answers are drawn at temperature {:g}", why="answers differ, and most remain valid"
    )
    """Sampling temperature; `top_p`, `top_k`, `min_p` and the grammar are those of `training.decoding`."""
    keep: Annotated[int, Field(ge=0, le=1000)] | None = key(
        2,
        "up to {} different right answers to each prompt are trained",
        off="drawn answers are not trained; they decide which prompts are trained with the expected answer",
        why="easy prompts do not outnumber the others",
    )
    """Largest number of different right answers trained for each prompt, the first drawn ones. 0: only expected answers."""
    gold: Gold | None = key("failed", _GOLD, why="what the expert cannot answer is learned from the expected answer")
    """Which prompts are trained with their expected answer: those whose answers are all wrong (`failed`), all, none."""
    replay: Annotated[float, Field(ge=0, le=1)] | None = key(
        1.0,
        "{:g} times the rows of training.dataset are trained in every round",
        off="a round trains its answers only",
        why="what the rows taught is not forgotten",
    )
    """Share of the rows of `training.dataset` that every round trains, too, drawn by the seed."""
    stop_without_gain: bool | None = key(
        True,
        "a round is kept if the 95 % interval of its gain is above 0; the first other one ends the run",
        off="all rounds are made, and the one with the best accuracy is the result",
        why="a gain that may be chance is not kept",
    )
    """Stop after the first round without a significant gain on held-back prompts."""
    held_back: Annotated[OfPrompts | Text, Field(union_mode="left_to_right")] | None = key(
        0.15, _judge, why="enough prompts to judge rounds, and most are still trained"
    )
    """What rounds are judged by: a share of the databases (or other files; of categories if prompts name no file), or a file
    of [test cases](#test-cases) on others, found like `prompts`."""
    limit: Positive | None = key(None, "at most {} prompts are sampled in a round, drawn by the seed")
    """Largest number of prompts in a round; drawn by the seed, others in every round."""


_START = Field(
    default=None,
    json_schema_extra=Key("base", _FROM, why="errors of rounds do not add up"),
    description="Where the training of a round starts: a new adapter on the base model, or the adapter that drew its answers.",
)
_NAMED: Any = {"from": (Start | None, _START)}
"""`from` is a Python keyword, so it cannot be a field's name in a class statement."""
_WithFrom = create_model("_WithFrom", __base__=_Keys, **_NAMED)


class Rft(_WithFrom):
    """`training.rft`: rounds of drawing answers, running them, and training on those that are right."""


@dataclass(frozen=True)
class RftConfig:
    """The settings of rft. held_back: the share that is held back to judge rounds; 0 with `held_back_cases`."""

    prompts: Path
    rounds: int
    samples: int
    temperature: float
    keep: int
    gold: Gold
    replay: float
    start: Start
    stop_without_gain: bool
    held_back: float
    held_back_cases: Path | None
    limit: int | None
