"""Answers of a batch are those of one prompt at a time, end where they must, and leave the model as it was."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model
from transformers import GenerationConfig as ModelGenerationConfig
from transformers import GPT2Config, GPT2LMHeadModel

from expert_cli.errors import EnvironmentProblem
from expert_cli.inference.expert_config import GenerationConfig
from expert_cli.inference.generate import Completion, Request, batches, generate, is_looping, stream
from expert_cli.model.kernels import attention
from expert_cli.model.kernels.attention_backends import attention_backend
from tests import tiny
from tests.tiny_hybrids import hybrid

END = frozenset(range(7, 384, 20))
ENDS = tiny.IdsAsText(END, tiny.tiny_tokenizer(), pad_id=7)
LENGTH = 24
PROMPTS = [[random.Random(n).randrange(3, 384) for _ in range(4 + 7 * n % 23)] for n in range(9)]

# large random weights: answers differ, and some end early; larger still, and rounding tells in layers with a state
MODELS: dict[str, Callable[[], Any]] = {
    "llama": lambda: tiny.tiny_model("llama", initializer_range=0.3),
    "qwen3": lambda: tiny.tiny_model("qwen3", initializer_range=0.3),
    "gpt2": lambda: GPT2LMHeadModel(GPT2Config(vocab_size=384, n_embd=64, n_layer=2, n_head=4, initializer_range=0.3)),
    "qwen3_5": lambda: hybrid("qwen3_5", initializer_range=0.1),
}


@pytest.fixture(scope="module")
def llama() -> Any:
    return MODELS["llama"]().eval()


def complete(model: Any, requests: list[Request], batch_size: int = 16, **settings: Any) -> list[list[Completion]]:
    return generate(model, requests, GenerationConfig(LENGTH, batch_size, **settings), ENDS)


def write(model: Any, prompts: list[list[int]], batch_size: int = 16, **settings: Any) -> list[list[int]]:
    found = complete(model, [Request(prompt) for prompt in prompts], batch_size, **settings)
    return [list(one.ids) for (one,) in found]


@pytest.mark.parametrize("num_beams", [1, 3])
@pytest.mark.parametrize("name", MODELS)
def test_answers_are_those_of_transformers_one_by_one(name: str, num_beams: int) -> None:
    torch.manual_seed(0)  # GPT-2 is made here, of the numbers that come next
    model = MODELS[name]().eval()
    expected = []
    asked = {"max_new_tokens": LENGTH, "do_sample": False, "eos_token_id": sorted(END), "pad_token_id": 0}
    for prompt in PROMPTS:
        out = model.generate(torch.tensor([prompt]), num_beams=num_beams, **asked)
        expected.append([token for token in out[0, len(prompt) :].tolist() if token not in END])
    assert len({len(one) for one in expected}) > 2, "the prompts should end at different steps"
    for size in (1, 4 * num_beams, 64):
        assert write(model, PROMPTS, size, num_beams=num_beams) == expected


def test_answers_are_told_as_they_are_made(llama: Any) -> None:
    requests = [Request(prompt) for prompt in PROMPTS]
    made = [*batches(llama, requests, GenerationConfig(LENGTH, 4), ENDS)]
    assert [len(one) for one in made] == [4, 4, 1]
    found = generate(llama, requests, GenerationConfig(LENGTH, 4), ENDS)
    assert {n: some for one in made for n, some in one.items()} == dict(enumerate(found))


def test_drawn_answers_are_those_of_their_seeds_and_global_random_numbers_stay(llama: Any) -> None:
    before = torch.get_rng_state()
    warm = {"temperature": 1.5, "top_k": 50, "top_p": 0.95, "min_p": 0.001}
    requests = [Request(prompt, seed=n, count=3) for n, prompt in enumerate(PROMPTS)]
    found = complete(llama, requests, **warm)
    assert {len(of_one) for of_one in found} == {3}
    assert len({one.ids for of_one in found for one in of_one}) > 20
    assert complete(llama, requests, **warm) == found
    assert complete(llama, [Request(one.prompt, seed=9, count=3) for one in requests], **warm) != found
    assert torch.equal(before, torch.get_rng_state())


def test_a_stream_is_the_same_answer_and_may_be_left(llama: Any) -> None:
    backend = tiny.tiny_backend()
    for prompt, ids in zip(PROMPTS[:4], write(llama, PROMPTS[:4]), strict=True):
        pieces = "".join(stream(llama, Request(prompt), GenerationConfig(LENGTH, 1), ENDS))
        text = backend.decode(ids, skip_special_tokens=False)
        assert pieces.startswith(text)
        assert pieces.removeprefix(text) in {"", *(backend.decode([end]) for end in END)}
    left = stream(llama, Request(PROMPTS[0]), GenerationConfig(2_000, 1), tiny.IdsAsText(frozenset(), ENDS.hf))
    next(left)
    left.close()


@pytest.mark.parametrize("length", [3, 40])
def test_an_answer_ends_at_a_stop_sequence_a_loop_or_the_limit(llama: Any, length: int) -> None:
    settings = GenerationConfig(LENGTH, 16)
    (free,) = generate(llama, [Request(PROMPTS[0])], settings, tiny.IdsAsText(frozenset(), ENDS.hf))[0]
    assert (len(free.ids), free.stop) == (LENGTH, "length")
    stop = f" {free.ids[1]} {free.ids[2]}"
    ends = tiny.IdsAsText(frozenset(), ENDS.hf)
    (stopped,) = generate(llama, [Request(PROMPTS[0])], GenerationConfig(LENGTH, 1, stops=(stop,)), ends)[0]
    assert stopped == Completion(free.ids[:3], "sequence")
    constant = tiny.tiny_model("llama", initializer_range=0.0).eval()  # every token is as likely: always the first
    unpadded = tiny.IdsAsText(frozenset(), ENDS.hf, pad_id=1)
    (looping,) = generate(constant, [Request(PROMPTS[0])], GenerationConfig(length, 1), unpadded)[0]
    assert (len(looping.ids), looping.stop) == ((3, "length") if length == 3 else (32, "looping"))


def test_the_padding_of_a_batch_is_no_part_of_an_answer_where_no_answer_ends_with_it(llama: Any) -> None:
    """As of Qwen: the pad token is not the end token. Every answer ends in another step of the batch."""
    ends = tiny.IdsAsText(frozenset(), ENDS.hf, pad_id=1)
    alone = [generate(llama, [Request(prompt)], GenerationConfig(LENGTH, 1), ends)[0][0] for prompt in PROMPTS]
    stops = tuple(f" {one.ids[n + 1]} {one.ids[n + 2]}" for n, one in enumerate(alone))
    settings = GenerationConfig(LENGTH, len(PROMPTS), stops=stops)
    together = [found for (found,) in generate(llama, [Request(prompt) for prompt in PROMPTS], settings, ends)]
    by_one = [
        found for (found,) in generate(llama, [Request(p) for p in PROMPTS], replace(settings, batch_size=1), ends)
    ]
    assert together == by_one
    assert {one.stop for one in together} == {"sequence"}
    assert len({len(one.ids) for one in together}) > 2, "the rows should end in different steps"


def test_of_beams_none_goes_round_in_circles() -> None:
    constant = tiny.tiny_model("llama", initializer_range=0.0).eval()
    ends = tiny.IdsAsText(frozenset({383}), ENDS.hf, pad_id=1)
    (found,) = generate(constant, [Request(PROMPTS[0])], GenerationConfig(80, 4, num_beams=2), ends)[0]
    assert not is_looping(found.ids)


@pytest.mark.parametrize("period", [1, 3, 7, 8, 9, 50])
def test_a_block_makes_a_loop_the_fourth_time_not_the_third(period: int) -> None:
    """A shorter block counts in multiples: as soon as they are long enough."""
    start = [random.Random(0).randrange(200, 300) for _ in range(17)]
    length = 4 * next(n * period for n in range(1, 9) if n * period >= 8)
    repeated = (list(range(20, 20 + period)) * length)[:length]
    assert is_looping([*start, *repeated])
    assert not is_looping([*start, *repeated[:-1]])
    assert not is_looping([*start, *repeated[:-1], 99])
    assert not is_looping([*start, *repeated[: length // 2], 99, *repeated[: length // 2]])


def test_too_little_memory_is_told_with_a_batch_that_fits(llama: Any) -> None:
    def small(_: Any, __: Any, given: dict[str, Any]) -> None:
        if len(given["input_ids"]) > 4:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB")

    hook = llama.register_forward_pre_hook(small, with_kwargs=True)
    try:
        requests = [Request(prompt) for prompt in PROMPTS]
        with pytest.raises(EnvironmentProblem, match=r"^8 answers at once do not fit into memory$") as caught:
            complete(llama, requests, 8)
        assert caught.value.hint == "use --batch-size 4, or a shorter --max-new-tokens"
        (drawn,) = complete(llama, [Request(PROMPTS[0], count=9)], 4, temperature=9.0)
        assert len({one.ids for one in drawn}) == 9
        assert complete(llama, requests, 4)
    finally:
        hook.remove()


def test_a_model_in_training_and_its_own_generation_config_are_left_as_they_were() -> None:
    base = tiny.tiny_model("llama", initializer_range=0.3).to(torch.bfloat16)
    base.generation_config = publishers = ModelGenerationConfig(do_sample=True, repetition_penalty=1.5)
    attention.use(base, "documents")
    adapted = get_peft_model(base, LoraConfig(r=4, target_modules=["q_proj", "v_proj"], lora_dropout=0.5))
    adapted.train()
    assert write(adapted, PROMPTS) == write(adapted, PROMPTS)
    assert adapted.training
    assert base.generation_config is publishers
    assert base.config._attn_implementation == attention_backend("documents").registered
