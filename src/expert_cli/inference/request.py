"""What a model is asked to write, and what it wrote."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from expert_cli.inference.grammar.constraint import Constraint

Stop = Literal["end", "sequence", "looping", "length"]
"""Why an answer ends: an end token, a stop sequence, a block of tokens over and over, or the longest length."""


@dataclass(frozen=True)
class Request:
    """A prompt as ids, and the answers to it: one for each seed, which greedy decoding does not read.

    constraint: makes what holds one answer to a grammar; None: free text.
    """

    prompt: Sequence[int]
    seeds: Sequence[int] = (0,)
    constraint: Callable[[], Constraint] | None = None


@dataclass(frozen=True)
class Completion:
    """An answer's ids, its end token left out, and why it ends."""

    ids: tuple[int, ...]
    stop: Stop
