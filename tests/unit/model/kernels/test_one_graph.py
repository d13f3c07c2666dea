"""The step that a CUDA graph records: one graph of a fixed shape for every micro-batch, with the numbers of an eager step."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from peft import PeftModel

from expert_cli._compat import forget_graphs, graphs_made
from expert_cli.data.packing.batches import Batch, Collator, FixedShape
from expert_cli.manifest.key import AdapterType
from expert_cli.model.kernels import attention
from expert_cli.model.kernels.chunked_loss import CausalLoss
from expert_cli.model.kernels.lora import refresh_norms
from expert_cli.model.vocabulary_rows import spare_copies
from tests import tiny
from tests.adapted import adapted, ours
from tests.packs import model_inputs, pack
from tests.varlen_kernel import varlen_on_cpu

SHAPE = FixedShape(tokens=64, longest=32, borders=12, targets=(62,), padding=0.0)
WAYS: dict[str, tuple[AdapterType, bool]] = {
    "PEFT's LoRA": ("lora", False),
    "fused LoRA": ("lora", True),
    "DoRA": ("dora", True),
}
BATCHES = [[(5, 9, 2)], [(16,), (7, 8)], [(3, 3, 3, 3)], [(12, 9, 3, 2, 1)], [(32,), (32,)], [()], [(20, 1), (20, 1)]]
"""The documents of the packs of micro-batches; of one that nothing is left for, none."""


def model(architecture: tiny.Architecture, kind: AdapterType, *, changed: bool) -> PeftModel:
    base: Any = tiny.tiny_model(architecture, num_hidden_layers=1)
    attention.use(base, "varlen")
    made = adapted(kind, base, token_rows={"model.embed_tokens": [1, 2]}).double()
    spare_copies(made)
    if changed:
        ours(made, kind)
    refresh_norms(made)
    return made


def step(module: Any, inputs: Batch) -> torch.Tensor:
    """Return the loss and the gradients in one row."""
    module.zero_grad()
    loss = module(**inputs)
    loss.backward()
    gradients = [p.grad.flatten() for p in module.parameters() if p.grad is not None]
    return torch.cat([loss.detach().double()[None], *gradients])


@pytest.mark.parametrize(("kind", "changed"), WAYS.values(), ids=WAYS.keys())
@pytest.mark.parametrize("architecture", ["llama", "qwen3"])
def test_every_batch_runs_through_one_graph(
    architecture: tiny.Architecture, kind: AdapterType, *, changed: bool
) -> None:
    """And gives what its documents give without padding; rows past a document's bound are not a number, as on a GPU."""
    module = CausalLoss(model(architecture, kind, changed=changed)).train()
    forget_graphs()
    compiled = torch.compile(module, fullgraph=True, dynamic=False, backend="aot_eager")
    with varlen_on_cpu():
        for packs in BATCHES:
            parts = [pack(*lengths) for lengths in packs]
            fixed = model_inputs(Collator(0, shape=SHAPE), *parts)
            expected = step(module, fixed)
            assert (step(compiled, fixed) - expected).norm() <= 1e-6 * expected.norm()
            plain = step(module, model_inputs(Collator(0), *parts))
            assert (plain - expected).norm() <= 1e-6 * expected.norm()
            assert expected.any() == (packs != [()])
    assert graphs_made()[0] == 1
