"""Rows of the embedding that were never trained are told, and those that an adapter trains give PEFT's numbers."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import AutoModelForCausalLM, AutoTokenizer, Gemma3ForCausalLM, Gemma3TextConfig

from expert_cli.data.packing.batches import Collator
from expert_cli.model.kernels import attention
from expert_cli.model.kernels.chunked_loss import CausalLoss, can_skip_logits
from expert_cli.model.loading.base_model import LocalModel
from expert_cli.model.vocabulary_rows import held_weights, spare_copies, stored_weights, token_matrices, untrained_rows
from tests import tiny
from tests.packs import model_inputs, pack

VOCABULARY, HIDDEN = 20_000, 32


def matrix(dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Return rows around a point that is not zero, more than one chunk of them."""
    random = torch.Generator().manual_seed(0)
    return (torch.randn(VOCABULARY, HIDDEN, generator=random) + 1).to(dtype)


FAULTS = {
    "alike": lambda rows: rows.new_full((HIDDEN,), 0.3).expand_as(rows),
    "alike but for rounding": lambda rows: rows.new_full((HIDDEN,), 0.3) + 1e-3 * rows,
    "shrunk by weight decay": lambda rows: 1e-23 * rows,
    "zero": torch.zeros_like,
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS.keys())
def test_rows_with_the_faults_of_base_models_are_told(fault: object, dtype: torch.dtype) -> None:
    """And nothing of a matrix with NaN, nor of rows that it lacks."""
    weight, rows = matrix(dtype), [3, 9_000, VOCABULARY - 1]  # in three chunks
    assert untrained_rows(weight, [*rows, 4]) == []
    weight[rows] = fault(weight[rows])  # type: ignore[operator]
    assert untrained_rows(weight, [4, *rows, VOCABULARY]) == rows
    assert untrained_rows(weight, [4, 5]) == untrained_rows(weight, []) == []
    weight[7, 3] = torch.nan
    assert untrained_rows(weight, rows) == []


@pytest.mark.parametrize("tied", [True, False])
def test_the_folder_gives_the_weights_that_the_model_has(tmp_path: Path, tied: bool) -> None:
    folder = tiny.tiny_model_folder(tmp_path / "model", tie_word_embeddings=tied)
    modules = token_matrices(AutoModelForCausalLM.from_pretrained(folder))
    assert list(modules) == (["model.embed_tokens"] if tied else ["model.embed_tokens", "lm_head"])
    held, stored = held_weights(modules), stored_weights(folder, modules)
    assert held.keys() == stored.keys()
    assert all(torch.equal(held[name], stored[name]) for name in held)
    assert stored_weights(folder, ["another"]) == {}


@pytest.mark.slow
@pytest.mark.real
def test_a_real_model_is_told_right(smollm2: LocalModel) -> None:
    (weight,) = stored_weights(smollm2.folder, ["model.embed_tokens"]).values()
    tokenizer = AutoTokenizer.from_pretrained(smollm2.folder)
    unseen = ["<gh_stars>", "<issue_start>", "<jupyter_code>", "<jupyter_output>", "<empty_output>"]
    trained = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<repo_name>", "<filename>"]
    ids = tokenizer.convert_tokens_to_ids
    assert untrained_rows(weight, ids(unseen + trained)) == ids(unseen)
    assert untrained_rows(weight, range(300, 1300)) == []  # a thousand words
    weight[ids("<|im_end|>")] = weight[ids("<gh_stars>")]  # as its base model has it
    assert untrained_rows(weight, ids(trained)) == [ids("<|im_end|>")]


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
