"""Many answers at once are those of one prompt at a time, and of transformers' own generation."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model

from expert_cli.inference.generate import answers, stream
from expert_cli.inference.generation_config import GenerationConfig
from expert_cli.model.kernels import attention
from expert_cli.model.kernels.attention_backends import attention_backend
from tests import tiny

END = {7, 100, 200, 300}
PROMPTS = [[random.Random(n).randrange(3, 384) for _ in range(4 + 7 * n % 23)] for n in range(9)]


@pytest.fixture(scope="module", params=["llama", "qwen3"])
def model(request: pytest.FixtureRequest) -> Any:
    # large random weights: answers differ, and some end early
    return tiny.tiny_model(request.param, initializer_range=0.3).eval()


def write(model: Any, prompts: list[list[int]], batch_size: int = 16, **settings: Any) -> list[list[int]]:
    return answers(model, prompts, GenerationConfig(40, batch_size, **settings), END)


def test_answers_are_those_of_transformers_one_by_one(model: Any) -> None:
    expected = []
    for prompt in PROMPTS:
        ids = torch.tensor([prompt])
        out = model.generate(ids, max_new_tokens=40, do_sample=False, eos_token_id=sorted(END), pad_token_id=0)
        expected.append([token for token in out[0, len(prompt) :].tolist() if token not in END])
    assert len({len(one) for one in expected}) > 2, "the prompts should end at different steps"
    for size in (1, 2, 4, 16):
        assert write(model, PROMPTS, size) == expected


def test_a_stream_is_the_same_answer(model: Any) -> None:
    together = write(model, PROMPTS)
    assert [list(stream(model, p, GenerationConfig(40, 1), END)) for p in PROMPTS] == together


def test_steps_are_told(model: Any) -> None:
    told: list[tuple[int, int]] = []
    found = answers(model, PROMPTS, GenerationConfig(40, 4), END, lambda done, tokens: told.append((done, tokens)))
    assert told[0] == (0, 4)
    assert [done for done, _ in told] == sorted(done for done, _ in told)
    ended = sum(len(one) < 40 for one in found)
    assert 0 < ended < len(PROMPTS), "some answers should be cut off"
    assert told[-1] == (len(PROMPTS), sum(map(len, found)) + ended)


def test_sampling_depends_on_the_seed_alone(model: Any) -> None:
    warm = {"temperature": 1.5, "top_k": 50, "top_p": 0.95, "min_p": 0.001, "seed": 1}
    before = torch.get_rng_state()
    alone, together = write(model, PROMPTS, 1, **warm), write(model, PROMPTS, 16, **warm)
    assert alone == together != write(model, PROMPTS)
    assert alone != write(model, PROMPTS, temperature=1.5, seed=2)
    assert torch.equal(before, torch.get_rng_state())


def test_a_model_in_training_is_left_as_it_was() -> None:
    base = tiny.tiny_model("llama", initializer_range=0.3).to(torch.bfloat16)
    attention.use(base, "documents")
    adapted = get_peft_model(base, LoraConfig(r=4, target_modules=["q_proj", "v_proj"], lora_dropout=0.5))
    adapted.train()
    first, second = write(adapted, PROMPTS), write(adapted, PROMPTS)
    assert first == second
    assert adapted.training
    assert base.config._attn_implementation == attention_backend("documents").registered
