"""Rows that were never trained are told from trained ones: by faults of real base models, and on a real model."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from expert_cli.model.loading.sources import LocalModel
from expert_cli.model.vocabulary_rows import held_weights, stored_weights, token_matrices, untrained_rows
from tests import tiny

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


def test_a_single_row_at_zero_or_at_the_mean_is_told() -> None:
    weight = matrix()
    weight[7], weight[8] = 0, weight.mean(0)
    assert untrained_rows(weight, [6, 7, 8]) == [7, 8]


@pytest.mark.parametrize("tied", [True, False])
def test_the_folder_gives_the_weights_that_the_model_has(tmp_path: Path, tied: bool) -> None:
    folder = tiny.tiny_model_folder(tmp_path / "model", tie_word_embeddings=tied)
    modules = token_matrices(AutoModelForCausalLM.from_pretrained(folder))
    assert list(modules) == (["model.embed_tokens"] if tied else ["model.embed_tokens", "lm_head"])
    held, stored = held_weights(modules), stored_weights(folder, modules)
    assert held.keys() == stored.keys()
    assert all(torch.equal(held[name], stored[name]) for name in held)
    assert stored_weights(folder, ["another"]) == {}


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
