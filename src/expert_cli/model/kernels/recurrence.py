"""Layers that carry a state along their row, as gated DeltaNet, Mamba and short convolutions do, read one document a row.

No mask keeps documents apart there: whatever lies before a document in its row is in its state and in its convolution.

    A A A B B B B B C C   ->   A A A . .   ->   the layer   ->   A A A B B B B B C C
                               B B B B B
                               C C . . .

A row is padded on the right, where nothing can reach the document. All other layers, attention among them, keep the batch as
it is. transformers hands borders on to the CUDA kernels of some of these layers alone; this way needs none of them, and where
they are installed they get rows as every other program's.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import nn
from transformers import PreTrainedModel

_LENGTHS: ContextVar[Sequence[int] | None] = ContextVar("document lengths", default=None)
BLOCK = 64
"""Tokens that gated DeltaNet computes at once, whatever it is given: shorter documents cost as much."""


@dataclass(frozen=True)
class DocumentRows:
    """One document a row, in buckets of like lengths.

    buckets: int64 [documents, longest] each, places in the flattened batch; a shorter document's last one fills up its row.
    back: int64 [tokens], where each token of the batch lies in the flattened buckets, one after the other.
    """

    buckets: tuple[torch.Tensor, ...]
    back: torch.Tensor


def recurrent_layers(model: PreTrainedModel) -> list[Any]:
    """Return the layers that carry a state: those around a convolution over the tokens.

    Some that carry one without it are not found (lightning attention), nor those that need more than hidden states
    (RecurrentGemma): for these, `isolation` refuses what leaks.
    """
    decoder: Any = model.get_decoder()
    around = [m for m in decoder.modules() if any(isinstance(child, nn.Conv1d) for child in m.children())]
    return [layer for layer in around if _takes_hidden_states_alone(layer.forward)]


def block_length(model: PreTrainedModel) -> int:
    """Return the tokens from which on a state is handed from block to block in some layer; 0 where none carries one."""
    layers = recurrent_layers(model)
    return max((getattr(layer, "chunk_size", BLOCK) for layer in layers), default=0)


def read_by_document(model: PreTrainedModel) -> None:
    """Let the layers that carry a state read one document a row, wherever the decoder is called without a cache.

    A document begins where `position_ids` are 0, in both layouts.
    """
    layers, batch = recurrent_layers(model), _Batch()
    for layer in layers:
        layer.forward = partial(_by_document, layer.forward, batch)
    if layers:
        for module in (model, model.get_decoder()):
            module.register_forward_pre_hook(partial(batch.begin, model), with_kwargs=True)


def read_as_weights(layer: Any) -> set[str]:
    """Return the names of the linear layers within one that carries a state whose weights it reads itself.

    It passes an adapter by, in some layers only with their CUDA kernels, and then in silence.
    """
    linear = {name for name, child in layer.named_children() if isinstance(child, nn.Linear)}
    return linear & set(re.findall(r"self\.(\w+)\.weight\b", inspect.getsource(type(layer))))


def rows_of(lengths: Sequence[int], device: torch.device) -> DocumentRows:
    """Return the rows of a batch. lengths: the tokens of its documents, through the flattened batch, padding too.

    Within a bucket the longest document has at most twice the tokens of the shortest, or at most BLOCK.
    """
    counts = np.asarray(lengths, np.int64)
    starts = counts.cumsum() - counts
    sizes = np.array([((length - 1) // BLOCK).bit_length() for length in lengths])
    buckets, real = [], []
    for size in np.unique(sizes):
        first, count = starts[sizes == size, None], counts[sizes == size, None]
        column = np.arange(count.max())
        buckets.append(first + np.minimum(column, count - 1))
        real.append(column < count)
    back = np.empty(counts.sum(), np.int64)
    back[np.concatenate([bucket[part] for bucket, part in zip(buckets, real, strict=True)])] = np.flatnonzero(
        np.concatenate([part.ravel() for part in real])
    )
    on_device = [torch.from_numpy(places).to(device, non_blocking=True) for places in (*buckets, back)]
    return DocumentRows(tuple(on_device[:-1]), on_device[-1])


@contextmanager
def known_lengths(lengths: Sequence[int] | None) -> Iterator[None]:
    """Let the lengths of a batch's documents be known while the decoder reads it: asking a GPU for them would wait for it."""
    before = _LENGTHS.set(lengths)
    try:
        yield
    finally:
        _LENGTHS.reset(before)


def _lengths(position_ids: torch.Tensor) -> Sequence[int]:
    """Return the tokens of the documents; position_ids int64 [rows, tokens] begin at 0 with every row and every document."""
    known = _LENGTHS.get()
    if known is not None:
        return known
    flat = position_ids.flatten().cpu()
    found: list[int] = torch.cat([(flat == 0).nonzero().flatten(), torch.tensor([len(flat)])]).diff().tolist()
    return found


class _Batch:
    """The batch that the decoder reads now, as all its layers and their recomputation in the backward pass see it."""

    rows: DocumentRows | None = None

    def begin(self, model: Any, module: Any, given: Any, settings: dict[str, Any]) -> None:  # noqa: ARG002  torch's
        positions = settings.get("position_ids")
        if settings.get("use_cache") is not False:
            self.rows = None
        elif positions is not None or module is model:  # some models do not hand positions on to their decoder
            self.rows = None if positions is None else rows_of(_lengths(positions), positions.device)


# Compiled, it would be made anew for every batch: the lengths are its shapes.
@torch.compiler.disable  # type: ignore[untyped-decorator]
def _by_document(
    forward: Callable[..., torch.Tensor], batch: _Batch, hidden_states: torch.Tensor, *given: Any, **settings: Any
) -> torch.Tensor:
    if batch.rows is None:
        return forward(hidden_states, *given, **settings)
    flat = hidden_states.flatten(0, 1)
    read = [forward(flat[bucket]).flatten(0, 1) for bucket in batch.rows.buckets]
    return torch.cat(read)[batch.rows.back].view_as(hidden_states)


def _takes_hidden_states_alone(forward: Callable[..., Any]) -> bool:
    first, *rest = inspect.signature(forward).parameters.values()
    return first.name == "hidden_states" and all(
        parameter.default is not parameter.empty or parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
        for parameter in rest
    )
