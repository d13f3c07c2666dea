"""torch's varlen attention on a CPU: a reference kernel under torch's own operators, with the contract of the real one.

FlashAttention computes as many rows of a document as `max_seqlen` says and leaves the others as they were allocated, in its
result and in its gradients: here they are not a number. The operators' arguments are those of torch 2.11 to 2.13.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import torch

NAN = float("nan")


@contextmanager
def varlen_on_cpu() -> Iterator[None]:
    """Let `varlen_attn` run on CPU tensors meanwhile; it is torch's own again when its library is let go."""
    import torch.nn.attention.varlen

    library = torch.library.Library("torch_attn", "IMPL", "CPU")
    library.impl("_varlen_attn", _forward)
    library.impl("_varlen_attn_backward", _backward)
    try:
        yield
    finally:
        del library


def _check(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, starts: torch.Tensor, *, grouped: bool) -> None:
    """What the real kernel asks of its arguments."""
    assert starts.dtype == torch.int32
    assert starts.is_contiguous()
    assert q.stride(-1) == k.stride(-1) == v.stride(-1) == 1
    assert q.shape[2] == k.shape[2] == v.shape[2] <= 256
    assert q.shape[2] % 8 == 0
    assert q.shape[1] == k.shape[1] or grouped


def _documents(starts: torch.Tensor, longest: int) -> list[slice]:
    """Return the rows of each document that are computed."""
    return [slice(first, min(end, first + longest)) for first, end in pairwise(starts.tolist())]


def _probabilities(
    q: torch.Tensor, k: torch.Tensor, scale: float | None, window: list[int] | None, *, is_causal: bool
) -> torch.Tensor:
    """Return the softmax of one document's scores, [heads, tokens, tokens]; k has a head for each of q's."""
    left, right = window or (-1, -1)
    distance = torch.arange(len(q))[:, None] - torch.arange(len(k))[None]
    hidden = distance < 0 if is_causal or right == 0 else torch.zeros_like(distance, dtype=torch.bool)
    if left >= 0:
        hidden = hidden | (distance > left)
    scores = torch.einsum("qhd,khd->hqk", q, k) * (q.shape[2] ** -0.5 if scale is None else scale)
    return scores.masked_fill(hidden, -torch.inf).softmax(-1)


@torch.compiler.disable
def _forward(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    starts: torch.Tensor,
    starts_k: torch.Tensor,
    longest: int,
    longest_k: int,
    is_causal: bool = False,
    scale: float | None = None,
    window: list[int] | None = None,
    grouped: Any = None,  # torch 2.11 has another argument here, which is None
    *rest: Any,
) -> tuple[torch.Tensor, ...]:
    _check(q, k, v, starts, grouped=bool(grouped))
    assert torch.equal(starts, starts_k)
    assert longest == longest_k
    assert not any(rest)
    groups = q.shape[1] // k.shape[1]
    out = torch.full_like(q, NAN)
    for part in _documents(starts, longest):
        keys, values = (tensor[part].repeat_interleave(groups, 1) for tensor in (k, v))
        chances = _probabilities(q[part], keys, scale, window, is_causal=is_causal)
        out[part] = torch.einsum("hqk,khd->qhd", chances, values)
    return out, torch.full((q.shape[1], len(q)), NAN), torch.zeros(2, dtype=torch.uint64)


@torch.compiler.disable
def _backward(
    of_out: torch.Tensor,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    out: torch.Tensor,
    _sums: torch.Tensor,
    starts: torch.Tensor,
    _starts_k: torch.Tensor,
    longest: int,
    _longest_k: int,
    is_causal: bool,
    _random: torch.Tensor,
    scale: float | None = None,
    window: list[int] | None = None,
) -> tuple[torch.Tensor, ...]:
    groups, factor = q.shape[1] // k.shape[1], q.shape[2] ** -0.5 if scale is None else scale
    of_q, of_k, of_v = (torch.full_like(tensor, NAN) for tensor in (q, k, v))
    for part in _documents(starts, longest):
        keys, values = (tensor[part].repeat_interleave(groups, 1) for tensor in (k, v))
        chances = _probabilities(q[part], keys, scale, window, is_causal=is_causal)
        of_chances = torch.einsum("qhd,khd->hqk", of_out[part], values)
        share = (of_out[part] * out[part]).sum(-1).t()[..., None]
        of_scores = chances * (of_chances - share) * factor
        of_q[part] = torch.einsum("hqk,khd->qhd", of_scores, keys)
        every_head = (
            torch.einsum("hqk,qhd->khd", of_scores, q[part]),
            torch.einsum("hqk,qhd->khd", chances, of_out[part]),
        )
        of_k[part], of_v[part] = (tensor.unflatten(1, (-1, groups)).sum(2) for tensor in every_head)
    return of_q, of_k, of_v
