"""Where an answer ends: at an end token, at a stop sequence, or where it says one thing over and over."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from copy import copy

import numpy as np

from expert_cli.inference.generation_config import GenerationConfig
from expert_cli.inference.request import Stop

BLOCK = 8
"""Tokens that a repeated block has at least: shorter ones, which tables of numbers hold, count in multiples."""
TIMES = 4
"""How often a block stands one after another in an answer that loops."""
SLACK = 16
"""Tokens that are read again for a stop sequence, beside its own: some decoders leave out a space at the start."""


class Ending:
    """Watches one answer."""

    def __init__(
        self, settings: GenerationConfig, stop_token_ids: Collection[int], decode: Callable[[Sequence[int]], str]
    ) -> None:
        """Take how answers are generated, the end tokens, and what turns ids into text."""
        self.ids: list[int] = []
        self.stop_token_ids = stop_token_ids
        self._settings, self._decode = settings, decode
        self._window = SLACK + max((len(stop.encode()) for stop in settings.stops), default=0)
        self._history = np.zeros(settings.max_new_tokens, np.int64)
        self._runs = np.zeros(settings.max_new_tokens, np.int64)

    def add(self, token: int | None) -> Stop | None:
        """Take the answer's next token; return why the answer ends, None where it goes on. None: no token may come."""
        if token is None or token in self.stop_token_ids:
            return "end"
        self.ids.append(token)
        if self._settings.stops:
            tail = self._decode(self.ids[-self._window :])
            if any(stop in tail for stop in self._settings.stops):
                return "sequence"
        if self._loops(token):
            return "looping"
        return "length" if len(self.ids) == self._settings.max_new_tokens else None

    def fork(self) -> Ending:
        """Return one for another answer that begins with the same."""
        other = copy(self)
        other.ids, other._history, other._runs = [*self.ids], self._history.copy(), self._runs.copy()
        return other

    def _loops(self, token: int) -> bool:
        """Whether the last tokens are a block of at least BLOCK tokens, TIMES times.

        _runs[p - 1]: how many of the last tokens in a row are each the same as the one p before it.
        """
        count = len(self.ids) - 1
        self._runs[:count] = (self._runs[:count] + 1) * (self._history[:count][::-1] == token)
        self._history[count] = token
        periods = np.arange(BLOCK, count + 1)
        return bool((self._runs[BLOCK - 1 : count] >= (TIMES - 1) * periods).any())
