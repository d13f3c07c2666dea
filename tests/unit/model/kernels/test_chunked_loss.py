"""The loss without logits is the loss with them, value and gradient, in every number of chunks."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState
from peft import LoraConfig, PeftModel, get_peft_model
from torch._dynamo.utils import counters
from torch.nn.functional import cross_entropy, linear
from transformers import Gemma2Config, Gemma2ForCausalLM

from expert_cli.config.run_config import Layout
from expert_cli.data.packing.batches import Batch, Collator, FixedShape
from expert_cli.manifest.key import AdapterType
from expert_cli.model.kernels import attention
from expert_cli.model.kernels.chunked_loss import CausalLoss, can_skip_logits, head_loss
from expert_cli.model.kernels.lora import refresh_norms
from expert_cli.model.vocabulary_rows import MatrixRows, spare_copies
from tests import tiny
from tests.adapted import adapted, ours
from tests.packs import model_inputs, pack
from tests.varlen_kernel import varlen_on_cpu

VOCABULARY, HIDDEN, ROWS = 97, 16, 23


@pytest.mark.parametrize("chunk_rows", [16, 22, 23, 1000])
@pytest.mark.parametrize("trained", [[], [3, 90]], ids=["", "trained rows"])
def test_value_and_gradients_are_those_of_all_logits(chunk_rows: int, trained: list[int]) -> None:
    """Targets of -100 fill up a fixed number of places, which may be of any token."""
    torch.manual_seed(0)
    hidden = torch.randn(ROWS, HIDDEN, requires_grad=True)
    head = torch.nn.Linear(HIDDEN, VOCABULARY, bias=not trained).requires_grad_(False)
    targets = torch.randint(VOCABULARY, (ROWS,))
    targets[:2], targets[20:] = torch.tensor([3, 90]), -100
    rows = MatrixRows(torch.tensor(trained, dtype=torch.int64), torch.randn(len(trained), HIDDEN, requires_grad=True))
    weight = head.weight.index_copy(0, *rows)
    expected = cross_entropy(linear(hidden, weight, head.bias), targets, reduction="sum")
    loss = head_loss(hidden, head, targets, 4 * VOCABULARY * chunk_rows, rows if trained else None)
    torch.testing.assert_close(loss, expected, rtol=1e-6, atol=0)
    wanted = [hidden, rows.values] if trained else [hidden]
    for found, known in zip(
        torch.autograd.grad(3 * loss, wanted), torch.autograd.grad(3 * expected, wanted), strict=True
    ):
        torch.testing.assert_close(found, known, rtol=1e-4, atol=1e-5)


def test_the_sum_is_made_in_fp32() -> None:
    torch.manual_seed(0)
    hidden = torch.randn(4096, HIDDEN, dtype=torch.bfloat16)
    head = torch.nn.Linear(HIDDEN, VOCABULARY, bias=False, dtype=torch.bfloat16).requires_grad_(False)
    targets = torch.randint(VOCABULARY, (4096,))
    exact = cross_entropy(head(hidden).double(), targets, reduction="sum")
    loss = head_loss(hidden, head, targets, 4 * VOCABULARY * 16)
    assert loss.dtype == torch.float32
    assert abs(float(loss) / float(exact) - 1) < 1e-5


PACKS = [pack(6, 4), pack(9)]


@torch.no_grad()
@pytest.mark.parametrize(
    ("architecture", "backend", "layout"), [("llama", "documents", "packed"), ("qwen3", "eager", "padded")]
)
def test_packed_loss_is_the_sum_of_the_documents(architecture: tiny.Architecture, backend: str, layout: Layout) -> None:
    base = tiny.tiny_model(architecture)
    expected = 0.0
    for one in PACKS:
        borders = [*(one["position_ids"] == 0).nonzero().flatten().tolist(), len(one["input_ids"])]
        for begin, end in itertools.pairwise(borders):
            ids = one["input_ids"][None, begin:end]
            expected += float(base(input_ids=ids, labels=ids).loss) * (end - begin - 1)
    model = get_peft_model(base, LoraConfig(r=2, target_modules=["q_proj"]))
    attention.use(base, backend)
    batch = model_inputs(Collator(0, layout), *PACKS)
    found = [float(CausalLoss(model, full_logits=full)(**batch)) for full in (False, True)]
    assert found == pytest.approx([expected] * 2, rel=1e-5)


def test_it_computes_in_its_own_autocast_and_is_left_alone_by_accelerate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(AcceleratorState, "_shared_state", {})  # all accelerators of a process share it
    base = tiny.tiny_model()
    model = CausalLoss(get_peft_model(base, LoraConfig(r=2, target_modules=["q_proj"])), autocast=torch.bfloat16)
    assert Accelerator(cpu=True, mixed_precision="bf16").prepare(model) is model
    assert "forward" not in vars(model)
    seen: list[Any] = []
    base.model.layers[0].mlp.down_proj.register_forward_hook(
        lambda *found: seen.append((found[2].dtype, torch.is_autocast_cache_enabled()))
    )
    attention.use(base, "documents")
    assert model(**model_inputs(Collator(0), *PACKS)).dtype == torch.float32
    assert seen == [(torch.bfloat16, False)]


def test_heads_that_are_more_than_a_product_keep_their_logits() -> None:
    plain = get_peft_model(tiny.tiny_model(), LoraConfig(r=2, target_modules=["q_proj"]))
    assert can_skip_logits(plain) == ""
    trained = get_peft_model(
        tiny.tiny_model(tie_word_embeddings=False), LoraConfig(r=2, target_modules=["q_proj", "lm_head"])
    )
    assert "head itself" in can_skip_logits(trained)
    scaled = get_peft_model(tiny.tiny_model(lm_head_multiplier=0.5), LoraConfig(r=2, target_modules=["q_proj"]))
    assert "lm_head_multiplier" in can_skip_logits(scaled)
    shape = {"vocab_size": 99, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "head_dim": 8}
    capped = Gemma2ForCausalLM(Gemma2Config(**shape, num_attention_heads=2, num_key_value_heads=1))
    assert "final_logit_softcapping" in can_skip_logits(
        get_peft_model(capped, LoraConfig(r=2, target_modules=["q_proj"]))
    )


SHAPE = FixedShape(tokens=64, longest=32, borders=12, targets=62)
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
def test_each_batch_runs_through_one_graph(
    architecture: tiny.Architecture, kind: AdapterType, *, changed: bool
) -> None:
    """And gives what its documents give without padding; rows past a document's bound are not a number, as on a GPU."""
    module = CausalLoss(model(architecture, kind, changed=changed)).train()
    torch.compiler.reset()
    counters.clear()
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
    assert counters["stats"]["unique_graphs"] == 1
