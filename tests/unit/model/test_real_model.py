"""SmolLM2-135M-Instruct from the package index: the weights and the tokenizer mean what they meant."""

from __future__ import annotations

import pytest
import torch
from transformers import AutoModelForCausalLM

from expert_cli.model.loading.base_model import LocalModel
from expert_cli.model.tokenizer import load_tokenizer

pytestmark = pytest.mark.real


def test_it_answers_and_stops(smollm2: LocalModel) -> None:
    """In fp32: its two likeliest first tokens are 0.1 apart at 25, where numbers of bf16 are 0.125 apart."""
    info = load_tokenizer(smollm2.folder)
    model = AutoModelForCausalLM.from_pretrained(smollm2.folder, dtype=torch.float32)
    asked = [{"role": "user", "content": "What is the capital of France?"}]
    text = info.hf.apply_chat_template(asked, tokenize=False, add_generation_prompt=True)
    prompt = torch.tensor([info.backend.encode(text, add_special_tokens=False).ids])
    answer = model.generate(
        prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=20, do_sample=False, eos_token_id=info.eos_id
    )[0, prompt.shape[1] :]
    assert (
        info.backend.decode(answer.tolist(), skip_special_tokens=False) == "The capital of France is Paris.<|im_end|>"
    )


def test_digits_are_split_as_the_model_was_trained(smollm2: LocalModel) -> None:
    info = load_tokenizer(smollm2.folder)
    pieces = info.backend.encode("    12 and\n  7", add_special_tokens=False).tokens
    assert pieces == ["ĠĠĠĠ", "1", "2", "Ġand", "ĊĠĠ", "7"]
    assert (info.eos_token, info.vocab_size) == ("<|im_end|>", 49152)
