"""One answer that is being written."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from typing import Protocol

from expert_cli.inference.ending import Ending
from expert_cli.inference.generation_config import GenerationConfig
from expert_cli.inference.request import Request, Stop
from expert_cli.inference.sampling import Sampler


class Ends(Protocol):
    """What tells where answers end: a `PromptRenderer`, for one."""

    @property
    def stop_token_ids(self) -> frozenset[int]:
        """The end tokens."""
        ...

    def decode(self, ids: Sequence[int]) -> str:
        """Return an answer's text."""
        ...


class Answer:
    """One answer being written. `stop`: why it has ended, None where it goes on."""

    def __init__(self, request: Request, seed: int, settings: GenerationConfig, ends: Ends) -> None:
        """Take what is asked, and how."""
        self.prompt = tuple(request.prompt)
        self.sampler = Sampler(seed, request.constraint() if request.constraint else None)
        self.ending = Ending(settings, ends.stop_token_ids, ends.decode)
        self.stop: Stop | None = None

    @property
    def length(self) -> int:
        """Tokens of the prompt and the answer so far."""
        return len(self.prompt) + len(self.ending.ids)

    def take(self, token: int | None) -> None:
        """Write the next token, which the grammar has taken; None: it takes none."""
        self.stop = self.ending.add(token)

    def become(self, other: Answer) -> None:
        """Say what another one says, and end as it does."""
        self.ending, self.stop = other.ending, other.stop or "end"

    def fork(self) -> Answer:
        """Return another answer that begins with the same."""
        other = copy(self)
        other.sampler, other.ending = self.sampler.fork(), self.ending.fork()
        return other
