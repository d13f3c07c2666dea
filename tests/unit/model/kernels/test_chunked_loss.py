"""The loss without logits is the loss with them, value and gradient, in every number of chunks."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState
from peft import LoraConfig, get_peft_model
from torch.nn.functional import cross_entropy
from transformers import Gemma2Config, Gemma2ForCausalLM

from expert_cli.data.packing.batches import Collator
from expert_cli.model.kernels import attention
from expert_cli.model.kernels.chunked_loss import CausalLoss, can_skip_logits, head_loss
from expert_cli.model.token_rows import TokenRows
from tests import tiny

VOCABULARY, HIDDEN, ROWS = 97, 16, 23
PADDING = {"target_positions": 0, "targets": -100}


def parts() -> tuple[torch.Tensor, torch.nn.Linear, torch.Tensor]:
    torch.manual_seed(0)
    hidden = torch.randn(ROWS, HIDDEN, requires_grad=True)
    head = torch.nn.Linear(HIDDEN, VOCABULARY, bias=True).requires_grad_(False)
    return hidden, head, torch.randint(VOCABULARY, (ROWS,))


@pytest.mark.parametrize("chunk_bytes", [4 * VOCABULARY * n for n in (16, 22, 23, 1000)])
def test_chunks_do_not_change_value_or_gradient(chunk_bytes: int) -> None:
    hidden, head, targets = parts()
    expected = cross_entropy(head(hidden), targets, reduction="sum")
    (3 * expected).backward()
    gradient, hidden.grad = hidden.grad.clone(), None
    loss = head_loss(hidden, head, targets, chunk_bytes)
    (3 * loss).backward()
    torch.testing.assert_close(loss, expected.detach(), rtol=1e-6, atol=0)
    torch.testing.assert_close(hidden.grad, gradient, rtol=1e-5, atol=1e-6)


def test_the_sum_is_made_in_fp32() -> None:
    torch.manual_seed(0)
    hidden = torch.randn(4096, HIDDEN, dtype=torch.bfloat16)
    head = torch.nn.Linear(HIDDEN, VOCABULARY, bias=False, dtype=torch.bfloat16).requires_grad_(False)
    targets = torch.randint(VOCABULARY, (4096,))
    exact = cross_entropy(head(hidden).double(), targets, reduction="sum")
    loss = head_loss(hidden, head, targets, 4 * VOCABULARY * 16)
    assert loss.dtype == torch.float32
    assert abs(float(loss) / float(exact) - 1) < 1e-5


def test_nothing_to_train_is_zero_with_a_gradient_of_zero() -> None:
    hidden, head, _ = parts()
    loss = head_loss(hidden[:0], head, torch.empty(0, dtype=torch.int64))
    loss.backward()
    assert float(loss.detach()) == 0
    assert not hidden.grad.any()


def packs() -> list[dict[str, torch.Tensor]]:
    random = torch.Generator().manual_seed(2)
    made = []
    for lengths in ((6, 4), (9,)):
        ids = torch.randint(384, (sum(lengths),), generator=random)
        positions = torch.cat([torch.arange(n) for n in lengths])
        labels = torch.where(positions < 2, -100, ids)
        made.append({"input_ids": ids, "labels": labels, "position_ids": positions})
    return made


@pytest.mark.parametrize("with_rows", [False, True], ids=["", "trained rows"])
def test_targets_that_fill_up_a_fixed_number_add_nothing(*, with_rows: bool) -> None:
    """Whatever their place: it is one that is trained, too."""
    hidden, head, targets = parts()
    rows = TokenRows(torch.tensor([3, 90]), torch.randn(2, HIDDEN, requires_grad=True)) if with_rows else None
    wanted, filled = hidden[:20], torch.cat([hidden[:20], hidden[5:8]])
    targets[20:] = -100
    trained = [hidden, rows.values] if rows else [hidden]
    plain = head_loss(wanted, head, targets[:20], 4 * VOCABULARY * 16, rows)
    loss = head_loss(filled, head, targets, 4 * VOCABULARY * 16, rows)
    torch.testing.assert_close(loss, plain, rtol=1e-6, atol=0)
    for found, expected in zip(torch.autograd.grad(loss, trained), torch.autograd.grad(plain, trained), strict=True):
        torch.testing.assert_close(found, expected)


@torch.no_grad()
@pytest.mark.parametrize("architecture", ["llama", "qwen3"])
@pytest.mark.parametrize(("backend", "layout"), [("documents", "packed"), ("eager", "padded")])
def test_packed_loss_is_the_sum_over_the_documents(architecture: tiny.Architecture, backend: str, layout: str) -> None:
    base = tiny.tiny_model(architecture)
    expected = 0.0
    for pack in packs():
        borders = [*(pack["position_ids"] == 0).nonzero().flatten().tolist(), len(pack["input_ids"])]
        for begin, end in itertools.pairwise(borders):
            logits = base(input_ids=pack["input_ids"][None, begin:end]).logits[0, :-1]
            expected += float(cross_entropy(logits, pack["labels"][begin + 1 : end], reduction="sum"))
    model = get_peft_model(base, LoraConfig(r=2, target_modules=["q_proj"]))
    attention.use(base, backend)
    batch = Collator(0, layout)(packs())  # type: ignore[arg-type]
    batch.pop("real_tokens")
    filled = {name: torch.nn.functional.pad(batch[name], (0, 5), value=fill) for name, fill in PADDING.items()}
    ways = [CausalLoss(model, full_logits=full)(**batch | more) for full in (False, True) for more in ({}, filled)]
    assert list(map(float, ways)) == pytest.approx([expected] * 4, rel=1e-5)


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
    batch = Collator(0)(packs())
    batch.pop("real_tokens")
    assert model(**batch).dtype == torch.float32
    assert seen == [(torch.bfloat16, False)]


def test_a_mode_is_set_where_any_part_of_the_model_is_in_another() -> None:
    base = tiny.tiny_model().eval()
    model = CausalLoss(get_peft_model(base, LoraConfig(r=2, lora_dropout=0.5, target_modules=["q_proj"])))
    for part in (model, model.model, base):
        model.train()
        assert all(module.training for module in model.modules())
        part.eval()
    layers = [base.model.layers[0].train(), model.train().base.model.layers[1].eval()]
    assert model.train() is model
    assert [layer.training for layer in layers] == [True, False], "it looked into the layers"


def test_heads_that_are_more_than_a_product_keep_their_logits() -> None:
    plain = get_peft_model(tiny.tiny_model(), LoraConfig(r=2, target_modules=["q_proj"]))
    assert can_skip_logits(plain) == ""
    trained = get_peft_model(
        tiny.tiny_model(tie_word_embeddings=False), LoraConfig(r=2, target_modules=["q_proj", "lm_head"])
    )
    assert "head itself" in can_skip_logits(trained)
    shape = {"vocab_size": 99, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "head_dim": 8}
    capped = Gemma2ForCausalLM(Gemma2Config(**shape, num_attention_heads=2, num_key_value_heads=1))
    assert "final_logit_softcapping" in can_skip_logits(
        get_peft_model(capped, LoraConfig(r=2, target_modules=["q_proj"]))
    )
