"""Our own attention functions: layout, groups, window, scale, gradients; whole models: test_attention_backends.py."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
import torch
from torch.nn.attention import varlen

from expert_cli.model.kernels import attention
from expert_cli.model.kernels.attention_backends import attention_backend
from tests.varlen_kernel import varlen_on_cpu

LENGTHS, HEADS, D = (5, 1, 9, 3), 4, 16
STARTS = torch.tensor([0, 5, 6, 15, 18, 18, 18], dtype=torch.int32)  # two empty documents
NOT_TOLD = "not told of groups"
Parts = tuple[torch.Tensor, ...]


@pytest.fixture
def seen(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return what reaches torch's function, which runs on this CPU; of torch 2.11, where NOT_TOLD, it knows no groups."""
    own, tensors = varlen.varlen_attn, []

    def look(q: Any, k: Any, v: Any, cu_q: Any, cu_k: Any, max_q: int, max_k: int, **settings: Any) -> Any:
        tensors.extend((q, k, v))
        return own(q, k, v, cu_q, cu_k, max_q, max_k, **settings)

    if getattr(request, "param", "") != NOT_TOLD:
        look.__signature__ = inspect.signature(own)  # type: ignore[attr-defined]
    monkeypatch.setattr(varlen, "varlen_attn", look)
    with varlen_on_cpu():
        yield tensors


def parts(key_heads: int) -> Parts:
    """Return q, k and v as transformers hands them over: [1, heads, tokens, d], of projections [1, tokens, heads, d]."""
    torch.manual_seed(0)
    forms = [(1, sum(LENGTHS), heads, D) for heads in (HEADS, key_heads, key_heads)]
    return tuple(torch.randn(form, dtype=torch.float64).transpose(1, 2).requires_grad_() for form in forms)


def read(function: Any, inputs: Parts, window: int | None = None, scaling: float | None = None) -> Parts:
    """Return the result and the gradients."""
    starts = attention.varlen_kwargs(STARTS, max(LENGTHS))
    out, _ = function(torch.nn.Module(), *inputs, None, scaling=scaling, sliding_window=window, **starts)
    weight = torch.arange(out.numel(), dtype=torch.float64).view_as(out).cos()
    return out, *torch.autograd.grad((out * weight).sum(), inputs)


def one_by_one(inputs: Parts, window: int | None = None, scaling: float | None = None) -> Parts:
    """The same by hand, a document at a time."""
    outputs = []
    for q, k, v in zip(*(torch.split(part, LENGTHS, 2) for part in inputs), strict=True):
        keys, values = (part.repeat_interleave(HEADS // part.shape[1], 1) for part in (k, v))
        distance = torch.arange(q.shape[2])[:, None] - torch.arange(q.shape[2])
        hidden = (distance < 0) | (distance >= (window or 99))
        scores = (q @ keys.mT * (scaling or D**-0.5)).masked_fill(hidden, -torch.inf)
        outputs.append(scores.softmax(-1) @ values)
    out = torch.cat(outputs, 2).transpose(1, 2)
    weight = torch.arange(out.numel(), dtype=torch.float64).view_as(out).cos()
    return out, *torch.autograd.grad((out * weight).sum(), inputs)


@pytest.mark.parametrize("seen", ["groups", NOT_TOLD], indirect=True)
@pytest.mark.parametrize("function", [attention.varlen_attention, attention.per_document_sdpa])
@pytest.mark.parametrize(("window", "scaling"), [(None, None), (3, 0.3)])
@pytest.mark.parametrize("key_heads", [1, 2, HEADS])
def test_values_and_gradients_are_those_of_each_document_by_itself(
    seen: Any, function: Any, key_heads: int, window: int | None, scaling: float | None
) -> None:
    inputs = parts(key_heads)
    found, known = read(function, inputs, window, scaling), one_by_one(inputs, window, scaling)
    for mine, other in zip(found, known, strict=True):
        torch.testing.assert_close(mine, other, rtol=0, atol=1e-13)


@pytest.mark.parametrize("seen", ["groups", NOT_TOLD], indirect=True)
def test_nothing_is_copied_on_the_way_to_the_kernel(request: pytest.FixtureRequest, seen: list[torch.Tensor]) -> None:
    """Keys and values reach it as they lie, in groups where it knows them; the plan counts them so."""
    inputs = parts(2)
    read(attention.varlen_attention, inputs)
    repeats = NOT_TOLD in request.node.name
    assert attention_backend("varlen").repeats_keys() is repeats
    assert [tensor.numel() for tensor in seen] == [(inputs[0] if repeats else tensor).numel() for tensor in inputs]
    assert repeats or [tensor.data_ptr() for tensor in seen] == [tensor.data_ptr() for tensor in inputs]


@pytest.mark.usefixtures("seen")
def test_gradients_are_not_written_into_zeros() -> None:
    """An indexed tensor's gradient is made in a tensor of zeros; of a view it is a view."""
    starts = attention.varlen_kwargs(STARTS, max(LENGTHS))
    out, _ = attention.varlen_attention(torch.nn.Module(), *parts(2), None, **starts)
    kinds: set[str] = set()
    pending: list[Any] = [out.grad_fn]
    while pending:
        node = pending.pop()
        kinds.add(type(node).__name__)
        pending += [following for following, _ in node.next_functions if following is not None]
    assert "TransposeBackward0" in kinds
    assert not kinds & {"SelectBackward0", "SliceBackward0", "IndexBackward0", "CloneBackward0"}


def test_borders_that_are_written_anew_in_one_buffer_are_read_anew() -> None:
    inputs = [torch.randn(1, 2, 12, 8) for _ in range(3)]
    buffer = torch.tensor([0, 4, 12, 12], dtype=torch.int32)
    attention.per_document_sdpa(torch.nn.Module(), *inputs, None, cu_seq_lens_q=buffer)
    buffer.copy_(torch.tensor([0, 7, 12, 12]))
    of_buffer, fresh = (
        attention.per_document_sdpa(torch.nn.Module(), *inputs, None, cu_seq_lens_q=starts)[0]
        for starts in (buffer, buffer.clone())
    )
    assert torch.equal(of_buffer, fresh)
