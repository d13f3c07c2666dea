"""Attention of short documents on a CPU: padded to a few lengths, then plain batched matrix products.

PyTorch's fused attention takes one call a document, and its backward pass on a CPU is slow below some 500 tokens: for
documents of 112 tokens the products here take a third of its time, forward and backward. The scores are rounded to the
products' dtype before the softmax, as in transformers' eager attention.

    query [1, heads, tokens, d] -> [key heads x documents, group x longest, d] for every bucket of like lengths

Values may have another head dim than queries and keys.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from expert_cli._compat import softmax_backward

LONGEST = 512
"""Tokens of a document up to which this may be taken: beyond, scores do not fit into caches, and those that are kept for the
backward pass take memory with their square. Where trials (`cpu_trials.py`) found a fused call faster, the limit is lower."""
FILL = 0.75
"""A bucket's shortest document has at least this share of its longest one's tokens."""


@dataclass(frozen=True)
class Layout:
    """Where the tokens of a row of documents lie in the padded buckets.

    queries int64 [tokens x heads] and keys int64 [tokens x key heads]: rows of the padded tensors. buckets: (documents,
    longest, mask [group x longest, longest]), one after the other in those tensors.
    """

    queries: torch.Tensor
    keys: torch.Tensor
    buckets: tuple[tuple[int, int, torch.Tensor], ...]

    @property
    def rows(self) -> int:
        """Rows of the padded keys for one key head."""
        return sum(documents * longest for documents, longest, _ in self.buckets)


def is_supported(device: str, dtype: torch.dtype, longest: int, limit: int = LONGEST) -> bool:
    """Whether documents of up to `longest` tokens are read here. limit: as trials on the machine, or the constant, say.

    fp32 products gain nothing that counts on any CPU measured: 1.0 to 1.2 times as fast at 32 tokens, slower from 128 on.
    """
    return device == "cpu" and dtype == torch.bfloat16 and longest <= limit


def layout(lengths: Sequence[int], heads: int, key_heads: int, dtype: torch.dtype) -> Layout:
    """Return the layout of documents of `lengths` tokens, in this order in their row."""
    starts = torch.tensor([0, *lengths]).cumsum(0).tolist()
    group = heads // key_heads
    head = torch.arange(heads)
    queries = torch.empty(starts[-1], heads, dtype=torch.int64)
    keys = torch.empty(starts[-1], key_heads, dtype=torch.int64)
    buckets, first = [], 0
    for bucket in _buckets(lengths):
        count, longest = len(bucket), lengths[bucket[0]]
        for place, document in enumerate(bucket):
            tokens = slice(starts[document], starts[document + 1])
            token = torch.arange(lengths[document])[:, None]
            block = head[:key_heads] * count + place
            keys[tokens] = first * key_heads + block * longest + token
            part = block.repeat_interleave(group) * group + head % group
            queries[tokens] = first * heads + part * longest + token
        mask = torch.full((longest, longest), -torch.inf, dtype=dtype).triu_(1).repeat(group, 1)
        buckets.append((count, longest, mask))
        first += count * longest
    return Layout(queries.flatten(), keys.flatten(), tuple(buckets))


def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, where: Layout, scaling: float) -> torch.Tensor:
    """Return causal attention within each document, [1, tokens, heads, dv].

    q [1, heads, tokens, d]; k [1, key heads, tokens, d]; v [1, key heads, tokens, dv].
    """
    out: torch.Tensor = _Attention.apply(q, k, v, where, scaling)  # type: ignore[no-untyped-call]
    return out


def _buckets(lengths: Sequence[int]) -> list[list[int]]:
    """Return the documents' places, longest first, in buckets of like lengths."""
    buckets: list[list[int]] = []
    for place in sorted(range(len(lengths)), key=lambda place: -lengths[place]):
        if buckets and lengths[place] >= FILL * lengths[buckets[-1][0]]:
            buckets[-1].append(place)
        else:
            buckets.append([place])
    return buckets


class _Attention(torch.autograd.Function):
    """softmax(scaling q k^T) v, one batched product a bucket; the probabilities are kept for the backward pass."""

    @staticmethod
    def forward(
        ctx: Any, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, where: Layout, scaling: float
    ) -> torch.Tensor:
        heads, key_heads = q.shape[1], k.shape[1]
        padded = _pad(q.transpose(1, 2), where.queries, where.rows * heads)
        keys, values = (_pad(part.transpose(1, 2), where.keys, where.rows * key_heads) for part in (k, v))
        out = values.new_empty(len(padded), v.shape[3])
        probabilities = []
        parts = [_views(tensor, where, key_heads) for tensor in (padded, keys, values, out)]
        for query, key, value, result, (_, _, mask) in zip(*parts, where.buckets, strict=True):
            scores = torch.baddbmm(mask, query, key.transpose(1, 2), alpha=scaling)
            probabilities.append(torch.softmax(scores, -1))
            torch.bmm(probabilities[-1], value, out=result)
        ctx.save_for_backward(padded, keys, values, *probabilities)
        ctx.where, ctx.scaling, ctx.key_heads = where, scaling, key_heads
        return out.index_select(0, where.queries).view(1, -1, heads, v.shape[3])

    @staticmethod
    def backward(ctx: Any, *outputs: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        padded, keys, values, *probabilities = ctx.saved_tensors
        where: Layout = ctx.where
        gradient = _pad(outputs[0], where.queries, len(padded))
        of_q, of_k, of_v = torch.empty_like(padded), torch.empty_like(keys), torch.empty_like(values)
        tensors = (padded, keys, values, gradient, of_q, of_k, of_v)
        parts = [_views(tensor, where, ctx.key_heads) for tensor in tensors]
        for query, key, value, change, to_q, to_k, to_v, chances in zip(*parts, probabilities, strict=True):
            torch.bmm(chances.transpose(1, 2), change, out=to_v)
            of_chances = torch.bmm(change, value.transpose(1, 2))
            scores = softmax_backward(of_chances, chances).mul_(ctx.scaling)
            torch.bmm(scores, key, out=to_q)
            torch.bmm(scores.transpose(1, 2), query, out=to_k)
        tokens = outputs[0].shape[1]
        places = (where.queries, where.keys, where.keys)
        back = (part.index_select(0, place) for part, place in zip((of_q, of_k, of_v), places, strict=True))
        return (*(part.view(1, tokens, -1, part.shape[1]).transpose(1, 2) for part in back), None, None)


def _pad(tensor: torch.Tensor, places: torch.Tensor, rows: int) -> torch.Tensor:
    """Return [rows, d] with the vectors of `tensor` at `places` and zeros elsewhere."""
    d = tensor.shape[-1]
    return tensor.new_zeros(rows, d).index_copy_(0, places, tensor.reshape(-1, d))


def _views(tensor: torch.Tensor, where: Layout, key_heads: int) -> list[torch.Tensor]:
    """Return the buckets of a padded tensor, each [key heads x documents, rows of one of them, d]."""
    per_key = len(tensor) // where.rows
    sizes = [documents * longest * per_key for documents, longest, _ in where.buckets]
    counts = [documents * key_heads for documents, _, _ in where.buckets]
    return [
        part.view(count, -1, tensor.shape[1]) for part, count in zip(torch.split(tensor, sizes), counts, strict=True)
    ]
