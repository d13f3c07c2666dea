"""Many answers at once are those of one prompt at a time, and of transformers' own generation."""

from __future__ import annotations

import random
from collections.abc import Callable
from copy import copy
from functools import partial
from typing import Any, NamedTuple

import pytest
import torch
from peft import LoraConfig, get_peft_model
from transformers import GPT2Config, GPT2LMHeadModel

from expert_cli.errors import EnvironmentProblem
from expert_cli.inference.generate import generate, stream
from expert_cli.inference.generation_config import GenerationConfig
from expert_cli.inference.request import Completion, Request
from expert_cli.model.kernels import attention
from expert_cli.model.kernels.attention_backends import attention_backend
from tests import tiny
from tests.tiny_hybrids import HYBRIDS, hybrid

END = frozenset(range(7, 384, 20))
ENDS = tiny.IdsAsText(END)
LENGTH = 24
PROMPTS = [[random.Random(n).randrange(3, 384) for _ in range(4 + 7 * n % 23)] for n in range(9)]


# large random weights: answers differ, and some end early; larger still, and rounding tells in layers with a state
MODELS: dict[str, Callable[[], Any]] = {
    "llama": lambda: tiny.tiny_model("llama", initializer_range=0.3),
    "qwen3": lambda: tiny.tiny_model("qwen3", initializer_range=0.3),
    "window": lambda: tiny.tiny_model(
        "qwen3", initializer_range=0.3, use_sliding_window=True, sliding_window=8, max_window_layers=1
    ),
    "gpt2": lambda: GPT2LMHeadModel(GPT2Config(vocab_size=384, n_embd=64, n_layer=2, n_head=4, initializer_range=0.3)),
    "falcon_h1": lambda: hybrid("falcon_h1", initializer_range=0.1),
    "qwen3_5": lambda: hybrid("qwen3_5", initializer_range=0.1),
    "mamba2": lambda: hybrid("mamba2", initializer_range=0.1),
}


@pytest.fixture(scope="module", params=MODELS)
def model(request: pytest.FixtureRequest) -> Any:
    torch.manual_seed(0)  # GPT-2 is made here, of the numbers that come next
    name = request.param
    return (MODELS[name]() if name in MODELS else hybrid(name, initializer_range=0.1)).eval()


@pytest.fixture(scope="module")
def llama() -> Any:
    return MODELS["llama"]().eval()


def complete(model: Any, requests: list[Request], batch_size: int = 16, **settings: Any) -> list[list[Completion]]:
    return generate(model, requests, GenerationConfig(LENGTH, batch_size, **settings), ENDS)


def write(model: Any, prompts: list[list[int]], batch_size: int = 16, **settings: Any) -> list[list[int]]:
    requests = [Request(prompt, (number,)) for number, prompt in enumerate(prompts)]
    return [list(one.ids) for (one,) in complete(model, requests, batch_size, **settings)]


@pytest.mark.parametrize("model", [*MODELS, *sorted({*HYBRIDS} - {*MODELS})], indirect=True)
def test_answers_are_those_of_transformers_one_by_one(model: Any) -> None:
    expected = []
    for prompt in PROMPTS:
        ids = torch.tensor([prompt])
        out = model.generate(ids, max_new_tokens=LENGTH, do_sample=False, eos_token_id=sorted(END), pad_token_id=0)
        expected.append([token for token in out[0, len(prompt) :].tolist() if token not in END])
    assert len({len(one) for one in expected}) > 2, "the prompts should end at different steps"
    for size in (1, 2, 4, 16):
        found = [one for (one,) in complete(model, [Request(prompt) for prompt in PROMPTS], size)]
        assert [list(one.ids) for one in found] == expected
        assert {one.stop for one in found} >= {"end", "length"}


def test_what_beams_find_is_what_those_of_transformers_find(model: Any) -> None:
    expected, num_beams = [], 3
    for prompt in PROMPTS:
        asked = {"max_new_tokens": LENGTH, "do_sample": False, "eos_token_id": sorted(END), "pad_token_id": 0}
        out = model.generate(torch.tensor([prompt]), num_beams=num_beams, **asked)
        expected.append([token for token in out[0, len(prompt) :].tolist() if token not in END])
    assert expected != write(model, PROMPTS), "beams should find what is not greedy"
    for size in (1, 64):
        assert write(model, PROMPTS, size, num_beams=num_beams) == expected
    assert (
        list(stream(model, Request(PROMPTS[0]), GenerationConfig(LENGTH, 1, num_beams=num_beams), ENDS)) == expected[0]
    )


def test_a_stream_is_the_same_answer(llama: Any) -> None:
    together = write(llama, PROMPTS)
    assert [list(stream(llama, Request(p), GenerationConfig(LENGTH, 1), ENDS)) for p in PROMPTS] == together


def test_steps_are_told(llama: Any) -> None:
    told: list[tuple[int, int]] = []
    requests = [Request(prompt) for prompt in PROMPTS]
    written = generate(llama, requests, GenerationConfig(LENGTH, 4), ENDS, lambda *step: told.append(step))
    found = [one.ids for (one,) in written]
    ended = sum(one.stop == "end" for (one,) in written)
    assert told[0][1] == 4
    assert [done for done, _ in told] == sorted(done for done, _ in told)
    assert 0 < ended < len(PROMPTS), "some answers should be cut off"
    assert told[-1] == (len(PROMPTS), sum(map(len, found)) + ended)


@pytest.mark.parametrize("warm", [{}, {"temperature": 1.5, "top_k": 50, "top_p": 0.95, "min_p": 0.001}], ids=str)
def test_an_answer_is_the_same_whatever_is_written_beside_it(model: Any, warm: dict[str, float]) -> None:
    before = torch.get_rng_state()
    requests = [Request(prompt, tuple(range(n, n + 1 + n % 3))) for n, prompt in enumerate(PROMPTS)]
    alone = [[complete(model, [Request(one.prompt, (seed,))], **warm)[0][0] for seed in one.seeds] for one in requests]
    assert {one.stop for of_one in alone for one in of_one} >= {"end", "length"}
    assert any(len(set(of_one)) > 1 for of_one in alone) == bool(warm)
    for size in (3, 32):
        order = random.Random(size).sample(range(len(requests)), len(requests))
        found = complete(model, [requests[n] for n in order], size, **warm)
        assert found == [alone[n] for n in order]
    assert torch.equal(before, torch.get_rng_state())


class Call(NamedTuple):
    """What a model was given: a prompt's columns, or one; `cached` columns before them; the last position of any row."""

    rows: int
    columns: int
    cached: int
    last: int


def calls(model: Any, requests: list[Request], batch_size: int) -> list[Call]:
    """Return what the model is given while it answers."""
    given: list[Call] = []

    def look(_: Any, __: Any, to: dict[str, Any]) -> None:
        cache = to.get("past_key_values")
        given.append(
            Call(*to["input_ids"].shape, cache.get_seq_length() if cache else 0, int(to["position_ids"].max()))
        )

    hook = model.register_forward_pre_hook(look, with_kwargs=True)
    complete(model, requests, batch_size, temperature=1.5)
    hook.remove()
    return given


def test_a_prompt_is_read_once_and_places_are_filled(llama: Any) -> None:
    heads: list[torch.Tensor] = []
    hook = llama.lm_head.register_forward_pre_hook(lambda _, read: heads.append(read[0]))
    given = calls(llama, [Request(prompt, range(4)) for prompt in PROMPTS], 8)
    hook.remove()
    read = [n for n, call in enumerate(given) if call.columns > 1]
    assert (given[0].rows, given[0].columns) == (2, max(map(len, PROMPTS)))
    assert sum(given[n].rows for n in read) == len(PROMPTS)
    assert given[read[-1]].columns == min(map(len, PROMPTS)), "the shortest prompts come last"
    steps = [call for call in given if call.columns == 1]
    assert max(step.rows for step in steps) == 8
    assert min(call.rows for call in given[: read[-1]] if call.columns == 1) > 4, "four more would have had a place"
    assert {step.last - step.cached for step in steps} == {0}, "no column that only ended answers read is kept"
    assert {head.shape[1] for head in heads} == {1}
    assert all(head.is_contiguous() for head in heads), "or torch copies the head's weight for every row"


def test_places_are_filled_when_an_eighth_is_free(llama: Any) -> None:
    given = calls(llama, [Request([3 + n, *prompt], (n,)) for n, prompt in enumerate(PROMPTS * 6)], 24)
    rows = [call.rows for call in given if call.columns > 1]
    assert rows[0] == 24
    assert sum(rows) == 6 * len(PROMPTS)
    assert all(3 <= some < 24 for some in rows[1:-1]), rows
    assert len(rows) > 4


def test_more_seeds_than_places_are_written_too(llama: Any) -> None:
    given = calls(llama, [Request(PROMPTS[0], range(7))], 3)
    assert max(call.rows for call in given) == 3
    assert [call.rows for call in given if call.columns > 1] == [1, 1, 1]


class Rising:
    """Every token is above the one before it; then the answer may end."""

    last = 0

    def accepts(self, token: int) -> bool:
        return token in END or token > self.last

    def advance(self, token: int) -> None:
        self.last = token

    def fork(self) -> Rising:
        return copy(self)


class OneOf:
    """The answer is one of these."""

    def __init__(self, *allowed: tuple[int, ...], so_far: tuple[int, ...] = ()) -> None:
        self.allowed, self.so_far = allowed, so_far

    def accepts(self, token: int) -> bool:
        if token in END:
            return self.so_far in self.allowed
        longer = (*self.so_far, token)
        return any(one[: len(longer)] == longer for one in self.allowed)

    def advance(self, token: int) -> None:
        self.so_far = (*self.so_far, token)

    def fork(self) -> OneOf:
        return copy(self)


ALLOWED = [(3,), (3, 4), (3, 4, 5), (6, 8), (9, 10, 11, 12), (13, 3, 3), (15, 200, 18, 1, 2)]


def likeliest(model: Any, prompt: list[int]) -> tuple[int, ...]:
    """Return which of ALLOWED has the largest mean log-probability, its end token among them."""
    ended = [(one, end) for one in ALLOWED for end in END]

    def mean(one: tuple[int, ...]) -> float:
        scores = model(input_ids=torch.tensor([[*prompt, *one]])).logits[0, len(prompt) - 1 : -1].log_softmax(-1)
        return float(scores.gather(1, torch.tensor(one)[:, None]).mean())

    return max(ended, key=lambda pair: mean((*pair[0], pair[1])))[0]


@torch.no_grad()
def test_enough_beams_find_the_likeliest_answer_that_a_constraint_takes(llama: Any) -> None:
    expected = [likeliest(llama, prompt) for prompt in PROMPTS]
    requests = [Request(prompt, (0,), partial(OneOf, *ALLOWED)) for prompt in PROMPTS]
    assert [one.ids for (one,) in complete(llama, requests, 256, num_beams=128)] == expected
    assert [one.ids for (one,) in complete(llama, requests)] != expected, "greedily the first token decides"


def test_beams_that_a_constraint_leaves_nothing_end(llama: Any) -> None:
    assert [one for (one,) in complete(llama, [Request(PROMPTS[0], (0,), OneOf)], num_beams=2)] == [
        Completion((), "end")
    ]


def test_a_constraint_holds_each_answer_of_a_batch(llama: Any) -> None:
    expected = []
    for prompt in PROMPTS:
        ids = list(prompt)
        while ids[-1] not in END or len(ids) == len(prompt):
            scores = llama(input_ids=torch.tensor([ids])).logits[0, -1]
            allowed = [token for token in range(384) if token in END or len(ids) == len(prompt) or token > ids[-1]]
            ids.append(allowed[int(scores[allowed].argmax())])
        expected.append(ids[len(prompt) : -1])
    assert max(map(len, expected)) > 3
    for size in (1, 4, 16):
        requests = [Request(prompt, (0, 1), Rising) for prompt in PROMPTS]
        found = complete(llama, [*requests, *(Request(prompt) for prompt in PROMPTS)], size)
        assert [[list(one.ids) for one in of_one] for of_one in found[: len(PROMPTS)]] == [
            [ids, ids] for ids in expected
        ]
        free = [Completion(tuple(ids), one.stop) for ids, (one,) in zip(write(llama, PROMPTS), found[9:], strict=True)]
        assert [one for (one,) in found[len(PROMPTS) :]] == free, "beside them, answers are free"


def test_too_little_memory_is_told_with_a_batch_that_fits(llama: Any) -> None:
    def small(_: Any, __: Any, given: dict[str, Any]) -> None:
        if len(given["input_ids"]) > 4:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB")

    hook = llama.register_forward_pre_hook(small, with_kwargs=True)
    try:
        requests = [Request(prompt) for prompt in PROMPTS]
        with pytest.raises(EnvironmentProblem, match=r"^8 answers at once do not fit into the GPU's memory$") as caught:
            complete(llama, requests, 8)
        assert caught.value.hint == "--batch-size 4 would fit"
        assert complete(llama, requests, 4)
    finally:
        hook.remove()


def test_a_model_in_training_is_left_as_it_was() -> None:
    base = tiny.tiny_model("llama", initializer_range=0.3).to(torch.bfloat16)
    attention.use(base, "documents")
    adapted = get_peft_model(base, LoraConfig(r=4, target_modules=["q_proj", "v_proj"], lora_dropout=0.5))
    adapted.train()
    first, second = write(adapted, PROMPTS), write(adapted, PROMPTS)
    assert first == second
    assert adapted.training
    assert base.config._attn_implementation == attention_backend("documents").registered
