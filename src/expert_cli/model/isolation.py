"""Proves, with the model and attention of the run, that packed documents do not affect each other.

    pack       A A A B B B B B C C C D D          read as in training
    seen       a a a B B B B B c c c D D          every second document is changed: the others must not change
    alone      A A A | B B B B B | C C C | D D    each by transformers' own attention: must equal the packed result

`seen` is exactly 0 in any dtype if tokens interact only in attention. They also interact if a whole batch is scaled or sorted
at once (8-bit weights, experts): then rows of a batch affect each other by rounding, and packed documents may do so, too.
`difference` is rounding: up to 1e-5, or the effect that one rounding of the embeddings has in this model and dtype.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from transformers import PreTrainedModel

from expert_cli.config.run_config import Layout
from expert_cli.errors import EnvironmentProblem
from expert_cli.model.kernels.attention import plain_attention, varlen_kwargs

SHORT = (23, 61, 57, 9)
"""Lengths of short documents, all different."""
BESIDE = (23, 57)
"""Lengths of the documents before and after a long one."""
BEYOND = 8
"""Tokens of a long document beyond the sliding window, where attention uses another code path."""
ROUNDING = 1e-5
SLACK = 2.0
"""This many times the estimated rounding is allowed, because the estimate comes from one sample."""


@dataclass(frozen=True)
class Isolation:
    """Measured norms of differences in the last hidden states, as shares of the norms of the states.

    seen: change of documents if others in their pack change. may_see: change of a document if another row of its batch changes.
    difference: between packed documents and the same ones alone. rounding: its expected size. 0: not measured.
    """

    seen: float
    difference: float
    may_see: float
    rounding: float

    @property
    def holds(self) -> bool:
        """Whether documents do not affect each other, and equal the same documents alone."""
        allowed = SLACK * max(self.may_see, self.rounding) if self.may_see > ROUNDING else ROUNDING
        return self.seen <= allowed and self.difference <= max(ROUNDING, SLACK * self.rounding)


def packs(longest: int, window: int | None, *, one_document: bool = False) -> list[tuple[int, ...]]:
    """Return document lengths that use every code path of the run's documents."""
    found = [tuple(min(length, longest) for length in SHORT)]
    if window and window < longest:
        found.append((BESIDE[0], min(window + BEYOND, longest), BESIDE[1]))
    return [(max(lengths),) for lengths in found] if one_document else found


def prove(
    model: PreTrainedModel,
    layout: Layout,
    backend: str,
    longest: int,
    *,
    one_document: bool = False,
    autocast: torch.dtype | None = None,
) -> None:
    """Raise EnvironmentProblem if documents affect each other in `packs`, or differ from the same documents alone."""
    window = getattr(model.config.get_text_config(), "sliding_window", None)
    for lengths in packs(longest, window, one_document=one_document):
        found = measure_leakage(model, layout, lengths, autocast=autocast)
        if not found.holds:
            instead = 'write "use_sdpa": false to attend with transformers\' eager attention, or '
            raise EnvironmentProblem(
                f"attention back end {backend}, documents of {', '.join(map(str, lengths))} tokens: packed documents are "
                f"not what they are alone (they differ by {found.difference:.2g} of their norm, rounding makes "
                f"{found.rounding:.2g}; other documents beside them change them by {found.seen:.2g})",
                ("" if backend == "eager" else instead) + 'write "packing": false and "batch_size": 1',
            )


def measure_leakage(
    model: PreTrainedModel, layout: Layout, lengths: tuple[int, ...], *, autocast: torch.dtype | None = None
) -> Isolation:
    """Return how packed documents differ from single ones; the model's mode is kept. autocast: the dtype of a training step."""
    was_training, device = model.training, model.device
    model.eval()
    try:
        with torch.no_grad(), torch.autocast(device.type, dtype=autocast, enabled=autocast is not None):
            return _measure(_PackReader(model, layout, lengths), autocast or model.dtype)
    finally:
        model.train(was_training)


def _measure(reader: _PackReader, dtype: torch.dtype) -> Isolation:
    ids = reader.ids
    together = reader.packed(ids)
    changed = torch.zeros(ids.shape[1], dtype=torch.bool, device=ids.device)
    for document in reader.documents[::2]:
        changed[document] = True
    halves = [part for part in (changed, ~changed) if not bool(part.all())]
    seen = max(
        (_share(together[~part], reader.packed(torch.where(part, reader.other, ids))[~part]) for part in halves),
        default=0.0,
    )
    with plain_attention(reader.model):
        alone = reader.alone(ids)
        difference = _share(alone, together)
        rounding = may_see = 0.0
        if max(seen, difference) > ROUNDING:  # otherwise these forward passes are not needed
            may_see = reader.neighbors() if seen > ROUNDING else 0.0
            with _rounded_embeddings(reader.model, dtype):
                rounding = _share(alone, reader.alone(ids))
    return Isolation(seen, difference, may_see, rounding)


class _PackReader:
    """Runs the same documents in several forms; hidden states are fp32 [tokens, hidden size]."""

    def __init__(self, model: PreTrainedModel, layout: Layout, lengths: tuple[int, ...]) -> None:
        self.model = model
        random, size = torch.Generator().manual_seed(0), model.config.get_text_config().vocab_size
        ids = torch.randint(size, (1, sum(lengths)), generator=random)
        other = (ids + torch.randint(1, size, ids.shape, generator=random)) % size  # another token at every position
        positions = torch.cat([torch.arange(length) for length in lengths])[None]
        self.ids, self.other, self._positions = (part.to(model.device) for part in (ids, other, positions))
        ends = torch.tensor(lengths).cumsum(0).tolist()
        self.documents = [slice(end - length, end) for end, length in zip(ends, lengths, strict=True)]
        starts = torch.tensor([0, *ends], dtype=torch.int32, device=model.device)
        self._varlen_kwargs = varlen_kwargs(starts, max(lengths)) if layout == "packed" else {}

    def packed(self, ids: torch.Tensor) -> torch.Tensor:
        return self._hidden(ids, self._positions, **self._varlen_kwargs)[0]

    def alone(self, ids: torch.Tensor) -> torch.Tensor:
        return torch.cat([self._hidden(ids[:, part], self._positions[:, part])[0] for part in self.documents])

    def neighbors(self) -> float:
        """Return how a document changes when another row of its batch changes."""
        longest = max(self.documents, key=lambda part: part.stop - part.start)
        ids, other = self.ids[:, longest], self.other[:, longest]
        positions = self._positions[:, longest].expand(2, -1)
        beside_itself, beside_other = (self._hidden(torch.cat([ids, row]), positions)[0] for row in (ids, other))
        return _share(beside_itself, beside_other)

    def _hidden(self, ids: torch.Tensor, positions: torch.Tensor, **settings: Any) -> torch.Tensor:
        decoder: Any = self.model.get_decoder()
        read: torch.Tensor = decoder(input_ids=ids, position_ids=positions, use_cache=False, **settings)[0]
        return read.float()


@contextmanager
def _rounded_embeddings(model: PreTrainedModel, dtype: torch.dtype) -> Iterator[None]:
    """Perturb the embeddings by up to one rounding each; TF32 keeps 10 of fp32's 23 bits."""
    is_tf32 = model.device.type == "cuda" and dtype == torch.float32 and torch.backends.cuda.matmul.allow_tf32
    epsilon = 2.0**-10 if is_tf32 else torch.finfo(dtype).eps

    def rounded(module: Any, args: Any, out: torch.Tensor) -> torch.Tensor:  # noqa: ARG001  torch's signature
        random = torch.Generator().manual_seed(1)
        off = torch.rand(out.shape, generator=random).to(out.device).mul_(2 * epsilon).sub_(epsilon)
        return (out.float() * (1 + off)).to(out.dtype)

    hook = model.get_input_embeddings().register_forward_hook(rounded)
    try:
        yield
    finally:
        hook.remove()


def _share(of: torch.Tensor, other: torch.Tensor) -> float:
    """Return the norm of the difference as a share of the first tensor's norm; infinity if either is not finite."""
    share = float((other - of).norm() / of.norm())
    return share if share == share else float("inf")  # noqa: PLR0124  not a number
