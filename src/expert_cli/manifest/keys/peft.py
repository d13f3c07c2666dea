"""The adapter."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from expert_cli.manifest.key import AdapterType, Modules, PositiveNumber, Share, Strict, Text, key, unused

REWARDS = 'rewards train with TRL\'s GRPOTrainer: docs/RECIPES.md, "Rewards in TRL"'
"""The hint for a manifest that requests reinforcement learning."""


def _trained_rows(tokens: str | list[str]) -> str:
    words = {
        "auto": "rows of the template's control tokens are trained if the base model never trained them",
        "never": "embedding and head stay as they are",
    }
    return words[tokens] if isinstance(tokens, str) else f"the rows of {' '.join(tokens)} are trained"


class AdapterKeys(Strict):
    """The keys for the adapter."""

    method: Literal["sft", "rft"] | None = key(
        "sft",
        {"sft": "supervised fine-tuning", "rft": "supervised fine-tuning, then rounds of training.rft"},
        why="it needs only rows with questions and answers",
    )
    """Supervised fine-tuning (`sft`); `rft` (rejection-sampling fine-tuning) adds rounds of drawing answers, running them and
    training on the right ones (`training.rft`)."""
    adapter_type: AdapterType | None = key(
        "lora", "a {} adapter is trained", why="the fastest, and supported by all programs"
    )
    """Kind of adapter."""
    rank: Annotated[int, Field(gt=0, le=2**16)] | None = key(
        16,
        "rank of the adapter's matrices",
        why="enough for some ten thousand rows, with 0.5 to 4 % of the model's weights",
    )
    """Rank of the adapter's matrices."""
    alpha: PositiveNumber | None = key(
        None, "scale of the adapter", why="with twice the rank, the learning rate does not depend on the rank"
    )
    """Scale of the adapter: alpha / rank (rslora: alpha / sqrt(rank)); default: twice the rank."""
    dropout: Share | None = key(
        0.0, "dropout inside the adapter", why="short trainings hardly overfit, and dropout takes time"
    )
    """Dropout on the adapter's input."""
    target_modules: Modules | None = key("all-linear", "layers with an adapter", why="attention alone learns less")
    """Names of the linear layers that get an adapter, or "all-linear"."""
    feedforward_modules: Annotated[list[Text], Field(min_length=1)] | None = unused("only IA3 has such layers")
    """For IA3, which is not supported."""
    trainable_token_indices: Literal["auto", "never"] | Annotated[list[Text], Field(min_length=1)] | None = key(
        "auto",
        _trained_rows,
        why="without it answers might never end; if all rows are trained already, it changes nothing",
    )
    """Tokens whose rows in embedding and head are trained, too. An answer cannot end with a token whose row the base model
    never trained. "auto" trains such rows for the prompt template's control tokens; a list names tokens as the tokenizer
    spells them; "never" trains none."""
    init_adapter: Text | None = key(None, "training continues from {}", off="training starts from a new adapter")
    """Run directory or adapter folder to start from (relative to the manifest, then to the project root); as `--from`."""


@dataclass(frozen=True)
class AdapterConfig:
    """The adapter to train. init_adapter: the folder it starts from; None: a new one."""

    type: AdapterType
    rank: int
    alpha: float
    dropout: float
    target_modules: tuple[str, ...]
    init_adapter: Path | None = None
    trainable_token_indices: str | tuple[str, ...] = "auto"  # noqa: S105  no secret
