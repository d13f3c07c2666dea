"""Short documents attend in padded buckets: the same numbers as PyTorch's fused attention, document by document."""

from __future__ import annotations

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

from expert_cli.model.kernels import attention, cpu_attention

HEADS, KEY_HEADS, D = 4, 2, 16
FORMS = {
    "one": (5,),
    "alike": (7, 7, 6),
    "of all lengths": (40, 1, 9, 3, 39, 31, 2),
    "as long as it goes": (cpu_attention.LONGEST, 3),
}


def parts(lengths: tuple[int, ...], heads: int = HEADS, of_values: int = D) -> tuple[torch.Tensor, ...]:
    torch.manual_seed(0)
    forms = [(1, count, sum(lengths), d) for count, d in ((heads, D), (KEY_HEADS, D), (KEY_HEADS, of_values))]
    return tuple(torch.randn(form, dtype=torch.float64, requires_grad=True) for form in forms)


def alone(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, lengths: tuple[int, ...]) -> torch.Tensor:
    documents = zip(*(part.split(lengths, 2) for part in (q, k, v)), strict=True)
    outs = [scaled_dot_product_attention(*one, is_causal=True, enable_gqa=True, scale=0.3) for one in documents]
    return torch.cat(outs, 2).transpose(1, 2)


@pytest.mark.parametrize("lengths", FORMS.values(), ids=FORMS.keys())
@pytest.mark.parametrize("of_values", [D, 24], ids=["one head dim", "another of values"])
@pytest.mark.parametrize("heads", [KEY_HEADS, HEADS], ids=["a key head each", "grouped"])
def test_values_and_gradients_are_those_of_the_documents_alone(
    lengths: tuple[int, ...], heads: int, of_values: int
) -> None:
    q, k, v = parts(lengths, heads, of_values)
    where = cpu_attention.layout(lengths, heads, KEY_HEADS, torch.float64)
    out = cpu_attention.attend(q, k, v, where, 0.3)
    change = torch.randn(out.shape, dtype=torch.float64)
    expected = alone(q, k, v, lengths)
    torch.testing.assert_close(out, expected, rtol=0, atol=1e-12)
    ours = torch.autograd.grad(out, (q, k, v), change)
    theirs = torch.autograd.grad(expected, (q, k, v), change)
    for mine, known in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine, known, rtol=0, atol=1e-12)


def test_documents_of_unlike_lengths_are_not_padded_to_the_longest() -> None:
    where = cpu_attention.layout((40, 1, 9, 3, 39, 31, 2), HEADS, KEY_HEADS, torch.bfloat16)
    assert [(count, longest) for count, longest, _ in where.buckets] == [(3, 40), (1, 9), (1, 3), (1, 2), (1, 1)]
    assert where.rows == 3 * 40 + 9 + 3 + 2 + 1
    assert len(set(where.queries.tolist())) == 125 * HEADS
    assert len(set(where.keys.tolist())) == 125 * KEY_HEADS


@pytest.mark.parametrize(
    ("dtype", "longest", "dropout", "window", "batched"),
    [
        (torch.bfloat16, cpu_attention.LONGEST, 0.0, None, True),
        (torch.bfloat16, cpu_attention.LONGEST + 1, 0.0, None, False),
        (torch.float32, 8, 0.0, None, False),
        (torch.bfloat16, 8, 0.1, None, False),
        (torch.bfloat16, 8, 0.0, 4, False),
    ],
)
def test_what_takes_this_way(
    dtype: torch.dtype, longest: int, dropout: float, window: int | None, *, batched: bool
) -> None:
    lengths = (longest, 3)
    q, k, v = (part.detach().to(dtype).requires_grad_() for part in parts(lengths))
    starts = torch.tensor([0, longest, longest + 3], dtype=torch.int32)
    out, _ = attention.per_document_sdpa(
        torch.nn.Module(), q, k, v, None, dropout=dropout, cu_seq_lens_q=starts, sliding_window=window
    )
    assert out.shape == (1, longest + 3, HEADS, D)
    assert ("_AttentionBackward" in type(out.grad_fn).__name__) == batched


def test_in_bfloat16_it_is_as_near_to_the_truth_as_the_scores_allow() -> None:
    lengths = (40, 9, 31)
    exact = [part.detach().bfloat16().double() for part in parts(lengths)]
    where = cpu_attention.layout(lengths, HEADS, KEY_HEADS, torch.bfloat16)
    out = cpu_attention.attend(*(part.bfloat16() for part in exact), where, 0.3)
    difference = (out.double() - alone(*exact, lengths)).norm() / out.double().norm()
    assert difference < 2**-7
