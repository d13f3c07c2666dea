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


def test_generation_has_its_own_attention_for_a_while() -> None:
    model = tiny.tiny_model()
    attention.use(model, "documents")
    with attention.plain_attention(model):
        assert model.config._attn_implementation == "sdpa"
    assert model.config._attn_implementation == attention_backend("documents").registered
