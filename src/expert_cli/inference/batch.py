"""Answers that are written together, one token each at every step.

ids        pad pad  p p p p p | a          prompts end together (padding on the left), so that every step adds one column;
attention   0   0   1 1 1 1 1 | 1          answers that have ended leave batch and cache, others may take their place
positions   0   0   0 1 2 3 4 | 5
"""

from __future__ import annotations

from collections.abc import Sequence
from inspect import signature
from typing import Any, cast

import torch

from expert_cli.inference.answer import Answer
from expert_cli.inference.beams import Beams
from expert_cli.inference.cache import PreallocatedCache
from expert_cli.inference.generation_config import GenerationConfig
from expert_cli.inference.sampling import next_tokens


class Batch:
    """Answers and their keys and values. `answers`: those that have not ended, a row each; of one that is searched for its
    beginnings, one after the other.
    """

    def __init__(self, model: Any, settings: GenerationConfig) -> None:
        """Take the model, and how answers are drawn."""
        self.answers: list[Answer] = []
        self._searches: list[Beams] = []
        self._model, self._settings = model, settings
        self._cache, self._width = PreallocatedCache(model.config), 0
        base = model.get_base_model() if hasattr(model, "get_base_model") else model
        # models of Mamba layers alone leave a cache under any other name unread
        self._taken_as = "cache_params" if "cache_params" in signature(base.forward).parameters else "past_key_values"

    @property
    def being_written(self) -> int:
        """How many answers, of whatever beginnings, have not ended."""
        return len(self._searches or self.answers)

    @property
    def can_admit(self) -> bool:
        """Whether answers can be admitted: always to an empty batch, else where all layers attend to everything."""
        return not self.answers or self._cache.is_joinable

    def admit(self, answers: Sequence[Answer]) -> Sequence[Answer]:
        """Read the prompts of answers, each prompt once, and write the first tokens; return these answers."""
        prompts = {prompt: n for n, prompt in enumerate(dict.fromkeys(answer.prompt for answer in answers))}
        width, cache = max(map(len, prompts)), PreallocatedCache(self._model.config)
        ids = [(0,) * (width - len(prompt)) + prompt for prompt in prompts]
        scores = self._read(cache, ids, [len(prompt) for prompt in prompts], width)
        rows = torch.tensor([prompts[answer.prompt] for answer in answers])
        cache.reorder_cache(cast(torch.LongTensor, rows))
        if self.answers:
            self._cache.join(cache)
        else:
            self._cache, self._width = cache, 0
        self._width = max(self._width, width)
        self.answers += answers
        if self._settings.num_beams > 1:
            self._searches += [Beams(answer, self._settings.num_beams) for answer in answers]
        return self._write(answers, scores[rows.to(scores.device)])

    def step(self) -> Sequence[Answer]:
        """Write a token to every answer; return them."""
        self._width += 1
        ids = [(answer.ending.ids[-1],) for answer in self.answers]
        scores = self._read(self._cache, ids, [answer.length for answer in self.answers], self._width)
        return self._write(tuple(self.answers), scores)

    def _read(
        self, cache: PreallocatedCache, ids: Sequence[Sequence[int]], lengths: Sequence[int], width: int
    ) -> torch.Tensor:
        """Return the scores [rows, vocabulary] of what follows the ids, with which rows of these lengths end."""
        device = self._model.device
        padding = width - torch.tensor(lengths, device=device)[:, None]
        columns = torch.arange(width, device=device)
        out = self._model(
            input_ids=torch.tensor(ids, device=device),
            # without padding no mask: transformers then uses the kernel's own causal one
            attention_mask=(columns >= padding).long() if min(lengths) < width else None,
            position_ids=(columns[-len(ids[0]) :] - padding).clamp(min=0),
            use_cache=True,
            # as a tensor: of a slice, which is not contiguous, torch would multiply row by row by copies of the head
            logits_to_keep=torch.tensor([-1], device=device),
            **{self._taken_as: cache},
        )
        scores: torch.Tensor = out.logits[:, -1].float()
        return scores

    def _write(self, answers: Sequence[Answer], scores: torch.Tensor) -> Sequence[Answer]:
        """Give answers their next tokens; those that end leave the batch, and the last ones take their rows."""
        if self._searches:
            return self._search(len(answers), scores)
        tokens = next_tokens(scores, [answer.sampler for answer in answers], self._settings)
        for answer, token in zip(answers, tokens, strict=True):
            answer.take(token)
        kept = [n for n, answer in enumerate(self.answers) if answer.stop is None]
        if len(kept) < len(self.answers):
            last = [n for n in kept if n >= len(kept)]
            rows = [last.pop() if answer.stop else n for n, answer in enumerate(self.answers[: len(kept)])]
            self.answers = [self.answers[n] for n in rows]
            if rows:
                self._close_up(rows)
        return answers

    def _search(self, count: int, scores: torch.Tensor) -> Sequence[Answer]:
        """Give the last `count` rows their next tokens; return the beginnings that go on, and the answers that are found."""
        first, rows, written, start = len(self.answers) - count, list[int](), list[Answer](), 0
        for search in self._searches:
            end = start + len(search.live)
            if start < first:
                rows += range(start, end)
            else:
                rows += [start + row for row in search.step(scores[start - first : end - first])]
                written += [beam.answer for beam in search.live] or [search.answer]
            start = end
        self._searches = [search for search in self._searches if search.live]
        self.answers = [beam.answer for search in self._searches for beam in search.live]
        if rows:
            self._close_up(rows)
        return written

    def _close_up(self, rows: Sequence[int]) -> None:
        """Keep these rows of the cache, and of its columns those that one of them reads."""
        # batch_select_indices leaves states of recurrent layers out
        self._cache.reorder_cache(cast(torch.LongTensor, torch.tensor(rows)))
        if self.can_admit:
            width = max(answer.length for answer in self.answers) - 1
            self._cache.trim(self._width - width)
            self._width = width
