"""Our own attention functions: gradients stay in their document, and generation has its own attention."""

from __future__ import annotations

import torch

from expert_cli.model.kernels import attention
from expert_cli.model.kernels.attention_backends import attention_backend
from tests import tiny


def test_gradients_of_one_document_stay_in_it() -> None:
    q, k, v = (torch.randn(1, 2, 12, 8, requires_grad=True) for _ in range(3))
    starts = torch.tensor([0, 4, 12], dtype=torch.int32)
    out, _ = attention.per_document_sdpa(torch.nn.Module(), q, k, v, None, cu_seq_lens_q=starts)
    out[:, 4:].sum().backward()
    for tensor in (q, k, v):
        assert not tensor.grad[:, :, :4].any()
        assert tensor.grad[:, :, 4:].abs().sum() > 0 or tensor is q


def test_borders_that_are_written_anew_in_one_buffer_are_read_anew() -> None:
    q, k, v = (torch.randn(1, 2, 12, 8) for _ in range(3))
    buffer = torch.tensor([0, 4, 12, 12], dtype=torch.int32)
    found = []
    for ends in ([0, 4, 12, 12], [0, 7, 12, 12]):
        buffer.copy_(torch.tensor(ends))
        found.append(
            [
                attention.per_document_sdpa(torch.nn.Module(), q, k, v, None, cu_seq_lens_q=starts)[0]
                for starts in (buffer, torch.tensor(ends))
            ]
        )
    assert all(torch.equal(of_buffer, fresh) for of_buffer, fresh in found)
    assert not torch.equal(found[0][0], found[1][0])
    assert attention._lengths(buffer) == [7, 5], "a kernel is launched for an empty document"


def test_generation_has_its_own_attention_for_a_while() -> None:
    model = tiny.tiny_model()
    attention.use(model, "documents")
    with attention.plain_attention(model):
        assert model.config._attn_implementation == "sdpa"
    assert model.config._attn_implementation == attention_backend("documents").registered
