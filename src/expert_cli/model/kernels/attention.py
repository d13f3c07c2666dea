"""Attention over concatenated documents in one row, without a mask of tokens x tokens.

    per_document_sdpa   a loop over the documents, PyTorch's fused SDPA for each: any device
    varlen_attention    torch.nn.attention.varlen, FlashAttention inside PyTorch: NVIDIA GPUs from Ampere on, bf16 or fp16

Each is a back end of `attention_backends.py`, registered with transformers, which then makes no mask. Document borders are
passed under the names of transformers' flash-attention integration.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention import varlen
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface, PreTrainedModel

from expert_cli._compat import attention_name
from expert_cli.model.kernels.attention_backends import BACKENDS, attention_backend

KNOWS_GROUPS = "enable_gqa" in inspect.signature(varlen.varlen_attn).parameters
"""Whether torch's function supports grouped query heads; torch 2.11's does not, so keys are repeated."""


def varlen_kwargs(starts: Tensor, longest: int) -> dict[str, Any]:
    """Return the keyword arguments of an attention call. starts: int32 [documents + 1], on the device. longest: in tokens."""
    return {"cu_seq_lens_q": starts, "cu_seq_lens_k": starts, "max_length_q": longest, "max_length_k": longest}


def use(model: PreTrainedModel, name: str) -> None:
    """Switch the model's layers to the back end `name`."""
    model.set_attn_implementation(attention_backend(name).registered)


@contextmanager
def plain_attention(model: PreTrainedModel) -> Iterator[None]:
    """Use transformers' own attention inside the context: for generation, with a KV cache and padded rows."""
    before = attention_name(model.config)
    is_ours = any(backend.function and backend.registered == before for backend in BACKENDS)
    model.set_attn_implementation("sdpa" if is_ours else before)
    try:
        yield
    finally:
        model.set_attn_implementation(before)


# Compilation would be repeated for every batch, because the lengths control the loop.
@torch.compiler.disable  # type: ignore[untyped-decorator]
def per_document_sdpa(
    _module: Any, query: Tensor, key: Tensor, value: Tensor, _mask: Any, *, scaling: Any = None, **settings: Any
) -> tuple[Tensor, None]:
    """Attend within each document. query [1, heads, tokens, head_dim], key and value [1, key heads, tokens, head_dim].

    The value's head_dim may differ. Without borders each row is a document. Returns [1, tokens, heads, head_dim of value].
    """
    starts, window = settings.get("cu_seq_lens_q"), settings.get("sliding_window")
    lengths = [query.shape[2]] if starts is None else [length for length in starts.diff().tolist() if length]
    grouped = query.shape[1] != key.shape[1]
    parts = []
    for q, k, v in zip(*(torch.split(part, lengths, 2) for part in (query, key, value)), strict=True):
        mask = _window_mask(q.shape[2], window, q.device)
        how = {"attn_mask": mask, "is_causal": mask is None, "scale": scaling, "enable_gqa": grouped}
        parts.append(scaled_dot_product_attention(q, k, v, dropout_p=settings.get("dropout", 0.0), **how))
    return torch.cat(parts, 2).transpose(1, 2), None


def varlen_attention(
    _module: Any, query: Tensor, key: Tensor, value: Tensor, _mask: Any, *, scaling: Any = None, **settings: Any
) -> tuple[Tensor, None]:
    """Attend within each document by one kernel call; shapes as in `per_document_sdpa`, with a single head_dim.

    The kernel accepts strided tensors with contiguous heads; tensors that must be copied are converted at the same time.
    """
    starts, longest = settings["cu_seq_lens_q"], settings["max_length_q"]
    dtype = torch.get_autocast_dtype("cuda") if query.dtype == torch.float32 else query.dtype
    window, groups = settings.get("sliding_window"), query.shape[1] // key.shape[1]
    grouped: dict[str, Any] = {"enable_gqa": True} if groups > 1 and KNOWS_GROUPS else {}
    if groups > 1 and not KNOWS_GROUPS:
        key, value = (part.repeat_interleave(groups, 1) for part in (key, value))
    # squeezed, not indexed: the gradient of indexing would fill a zero tensor of full size
    q, k, v = (part.squeeze(0).transpose(0, 1).to(dtype) for part in (query, key, value))
    seen = (window - 1 if window else -1, 0)
    out: Any = varlen.varlen_attn(q, k, v, starts, starts, longest, longest, scale=scaling, window_size=seen, **grouped)
    return out.unsqueeze(0), None


def _window_mask(tokens: int, window: int | None, device: torch.device) -> Tensor | None:
    """Return the mask of a sliding window, bool [tokens, tokens], or None if the document fits into it."""
    if not window or tokens <= window:
        return None
    places = torch.arange(tokens, device=device)
    distance = places.unsqueeze(1) - places.unsqueeze(0)
    return (distance >= 0) & (distance < window)


for _backend in BACKENDS:
    if _backend.function:
        AttentionInterface.register(_backend.registered, globals()[_backend.function])
