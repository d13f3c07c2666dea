"""The step that a CUDA graph records: one graph of fixed shapes for every micro-batch, with the numbers of an eager step."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch.nn.functional import pad, scaled_dot_product_attention
from transformers import AttentionInterface

from expert_cli._compat import forget_graphs, graphs_made
from expert_cli.data.packing.batches import Collator
from expert_cli.manifest.types import AdapterType
from expert_cli.model.adapter import add_adapter
from expert_cli.model.kernels.chunked_loss import CausalLoss
from expert_cli.model.kernels.dora import patch_dora
from expert_cli.model.kernels.fused_lora import fuse
from expert_cli.model.token_rows import spare_copies
from tests import run_blocks, tiny
from tests.unit.model.kernels.test_varlen import pack

TOKENS, DOCUMENTS, TARGETS = 64, 8, 60
WAYS: dict[str, tuple[AdapterType, Any]] = {
    "PEFT's LoRA": ("lora", lambda model: None),
    "fused LoRA": ("lora", fuse),
    "DoRA": ("dora", patch_dora),
}


def by_mask(
    _: Any, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *__: Any, scaling: float, cu_seq_lens_q: Any, **___: Any
) -> tuple[torch.Tensor, None]:
    """Attend within each document by a mask of tokens x tokens: stands for varlen, which needs a GPU."""
    places = torch.arange(q.shape[2])
    document = torch.searchsorted(cu_seq_lens_q, places, right=True)
    seen = (document[:, None] == document) & (places[:, None] >= places)
    out = scaled_dot_product_attention(q, k, v, attn_mask=seen, scale=scaling, enable_gqa=True)
    return out.transpose(1, 2), None


AttentionInterface.register("by_mask", by_mask)


def batch(*lengths: int) -> dict[str, Any]:
    """Return documents as a micro-batch of fixed shapes: what is missing is padding, empty documents and targets of -100."""
    made = Collator(0, "packed", TOKENS, TOKENS)([pack(*lengths)])
    del made["real_tokens"]
    more = TARGETS - len(made["targets"])
    made["targets"] = pad(made["targets"], (0, more), value=-100)
    made["target_positions"] = pad(made["target_positions"], (0, more))
    made["cu_seqlens"] = pad(made["cu_seqlens"], (0, DOCUMENTS + 2 - len(made["cu_seqlens"])), value=TOKENS)
    return made


def step(module: Any, model: torch.nn.Module, inputs: dict[str, Any]) -> tuple[torch.Tensor, torch.Tensor]:
    model.zero_grad()
    loss = module(**inputs)
    loss.backward()
    return loss.detach(), torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])


@pytest.mark.parametrize(("kind", "change"), WAYS.values(), ids=WAYS.keys())
@pytest.mark.parametrize("architecture", ["llama", "qwen3"])
def test_every_batch_runs_through_one_graph(architecture: tiny.Architecture, kind: AdapterType, change: Any) -> None:
    torch.manual_seed(0)
    base: Any = tiny.tiny_model(architecture)
    base.set_attn_implementation("by_mask")
    config = replace(run_blocks.ADAPTER, type=kind, target_modules=("all-linear",))
    model = add_adapter(base, config, {"model.embed_tokens": [1, 2]})
    for name, parameter in model.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(parameter, std=0.1)
    spare_copies(model)
    change(model)
    module = CausalLoss(model).train()
    forget_graphs()
    compiled = torch.compile(module, fullgraph=True, dynamic=False, backend="aot_eager")
    for lengths in [(5, 9, 2), (7, 8), (3, 3, 3, 3), (12, 9, 3, 2, 1), (64,), (20, 1)]:
        inputs = batch(*lengths)
        (loss, gradient), (again, same) = (step(way, model, inputs) for way in (module, compiled))
        torch.testing.assert_close(again, loss, rtol=1e-6, atol=0)
        assert (same - gradient).norm() <= 1e-6 * gradient.norm()
    assert graphs_made()[0] == 1
