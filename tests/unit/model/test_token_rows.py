"""Trained rows of embedding and head give the numbers of PEFT, loss and gradients, on every way that computes them."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import Gemma3ForCausalLM, Gemma3TextConfig

from expert_cli.data.packing.batches import Collator
from expert_cli.model.kernels import attention
from expert_cli.model.kernels.chunked_loss import CausalLoss, can_skip_logits
from expert_cli.model.vocabulary_rows import spare_copies
from tests import tiny
from tests.packs import model_inputs, pack

ROWS = {"model.embed_tokens": [2, 1], "lm_head": [2]}


def adapted(base: Any) -> PeftModel:
    """Return a model with LoRA factors that change something, and rows that differ from the base model's."""
    is_tied = base.get_input_embeddings().weight is base.get_output_embeddings().weight
    rows = {name: ROWS[name] for name in list(ROWS)[: 1 if is_tied else 2]}
    torch.manual_seed(0)
    config = LoraConfig(r=2, target_modules=["q_proj"], init_lora_weights=False, trainable_token_indices=rows)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = get_peft_model(base, config)
    for name, parameter in model.named_parameters():
        if "trainable_tokens" in name:
            parameter.data = torch.randn_like(parameter, dtype=torch.float32) * 0.05
    return model


def gradients(model: PeftModel, *, full_logits: bool, dtype: torch.dtype | None) -> dict[str, torch.Tensor]:
    batch = model_inputs(Collator(0), pack(6, 4), pack(9))
    batch["input_ids"][:, 3::4], batch["input_ids"][:, ::5], batch["targets"][::3] = 2, 1, 2
    loss = CausalLoss(model, full_logits=full_logits, autocast=dtype)(**batch)
    loss.backward()
    return {"loss": loss.detach()} | {name: p.grad for name, p in model.named_parameters() if p.requires_grad}


@pytest.mark.parametrize("dtype", [None, torch.bfloat16], ids=["fp32", "bf16"])
@pytest.mark.parametrize("tied", [True, False], ids=["tied", "untied"])
def test_loss_and_gradients_are_those_of_peft(tied: bool, dtype: torch.dtype | None) -> None:
    found = {}
    for way in ("peft", "in chunks", "with logits"):
        base = tiny.tiny_model(tie_word_embeddings=tied).to(dtype or torch.float32).requires_grad_(False)
        attention.use(base, "documents")
        model = adapted(base)
        if way != "peft":
            spare_copies(model)
        assert can_skip_logits(model) == ""
        found[way] = gradients(model, full_logits=way != "in chunks", dtype=dtype)
    assert sum("trainable_tokens" in name for name in found["peft"]) == (1 if tied else 2)
    for way in ("in chunks", "with logits"):
        for name, expected in found["peft"].items():
            assert expected.any()
            largest = float((found[way][name] - expected).abs().max() / expected.abs().max())
            assert largest < (1e-5 if dtype is None else 0.03), (way, name)


def test_the_embedding_of_gemma_multiplies_them_too() -> None:
    shape = {"vocab_size": 99, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "head_dim": 8}
    config = Gemma3TextConfig(**shape, num_attention_heads=2, num_key_value_heads=1)
    model = adapted(Gemma3ForCausalLM(config)).get_base_model()
    ids = torch.tensor([[2, 5, 1, 2]])
    expected = model(input_ids=ids).logits
    spare_copies(model)
    torch.testing.assert_close(model(input_ids=ids).logits, expected, rtol=1e-5, atol=1e-6)


@torch.no_grad()
def test_off_and_merged_they_are_what_peft_makes_of_them() -> None:
    plain = tiny.tiny_model()
    model = adapted(tiny.tiny_model())
    spare_copies(model)
    ids = torch.tensor([[2, 5, 1, 2]])
    changed = model(input_ids=ids).logits
    with model.disable_adapter():
        assert torch.equal(model(input_ids=ids).logits, plain(input_ids=ids).logits)
    assert torch.equal(model(input_ids=ids).logits, changed)
    merged = model.merge_and_unload()
    torch.testing.assert_close(merged(input_ids=ids).logits, changed, rtol=1e-5, atol=1e-5)
    assert merged.get_input_embeddings().weight is merged.get_output_embeddings().weight
