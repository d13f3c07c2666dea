"""Let a model answer requests: many at once, or one token by token."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any

import torch

from expert_cli.errors import EnvironmentProblem
from expert_cli.inference.answer import Answer, Ends
from expert_cli.inference.batch import Batch
from expert_cli.inference.generation_config import GenerationConfig
from expert_cli.inference.request import Completion, Request
from expert_cli.model.compiled_layers import uncompiled
from expert_cli.model.kernels.attention import plain_attention
from expert_cli.utils.out_of_memory import is_out_of_memory

REFILL = 8
"""Others take the places of answers that have ended as soon as one in so many is free: reading prompts costs a GPU a step."""


def generate(
    model: Any,
    requests: Sequence[Request],
    settings: GenerationConfig,
    ends: Ends,
    on_step: Callable[[int, int], None] = lambda _answers, _tokens: None,
) -> list[list[Completion]]:
    """Return what the model writes to each request, an answer a seed.

    Longest prompts first; a seed draws the same, whatever is written beside it. on_step: told after every step how many
    answers are done, and how many tokens are written. The model's mode (train or eval) is kept, and no random numbers are
    drawn from the global generators. Raises EnvironmentProblem when the GPU's memory is too small for a batch.
    """
    answers = [[Answer(request, seed, settings, ends) for seed in request.seeds] for request in requests]
    size = max(1, settings.batch_size // settings.num_beams)
    parts = [of_one[n : n + size] for of_one in answers for n in range(0, len(of_one), size)]
    waiting = deque(sorted(parts, key=lambda part: -len(part[0].prompt)))
    done = tokens = 0
    with generating(model):
        batch = Batch(model, settings)
        while waiting or batch.answers:
            admitted = _admitted(waiting, batch, size)
            try:
                step = batch.admit(admitted) if admitted else batch.step()
            except RuntimeError as error:
                if not is_out_of_memory(error):
                    raise
                count = batch.being_written + len(admitted)
                hint = f"--batch-size {max(1, count // 2)} would fit"
                raise EnvironmentProblem(f"{count} answers at once do not fit into the GPU's memory", hint) from error
            tokens += len(step)
            done += sum(answer.stop is not None for answer in step)
            on_step(done, tokens)
    return [[Completion(tuple(one.ending.ids), one.stop or "length") for one in of_one] for of_one in answers]


def stream(model: Any, request: Request, settings: GenerationConfig, ends: Ends) -> Iterator[int]:
    """Yield the tokens of one answer, that of the first seed, its end token left out: as they are written, but of one that is
    searched for (`num_beams`) all at its end.
    """
    if settings.num_beams > 1:
        yield from generate(model, [replace(request, seeds=request.seeds[:1])], settings, ends)[0][0].ids
        return
    answer = Answer(request, request.seeds[0], settings, ends)
    with generating(model):
        batch = Batch(model, settings)
        batch.admit([answer])
        while answer.stop is None:
            yield answer.ending.ids[-1]
            batch.step()
        if answer.stop != "end":
            yield answer.ending.ids[-1]


def _admitted(waiting: deque[list[Answer]], batch: Batch, size: int) -> list[Answer]:
    """Take what is written from now on: answers to one request together, so that its prompt is read once."""
    free = size - batch.being_written
    admitted: list[Answer] = []
    if batch.can_admit and free * REFILL >= size:
        while waiting and len(waiting[0]) <= free - len(admitted):
            admitted += waiting.popleft()
    return admitted


@contextmanager
def generating(model: Any) -> Iterator[None]:
    """Put the model into evaluation, not compiled, with an attention that has a cache; one in training is left as it was."""
    was_training = model.training
    base = model.get_base_model() if hasattr(model, "get_base_model") else model
    dtypes = {parameter.dtype for parameter in model.parameters() if parameter.is_floating_point()}
    low = next((dtype for dtype in (torch.bfloat16, torch.float16) if dtype in dtypes), None)
    model.eval()
    try:
        with ExitStack() as stack:
            stack.enter_context(plain_attention(base))
            stack.enter_context(uncompiled(base))
            stack.enter_context(torch.no_grad())
            if low is not None and torch.float32 in dtypes:  # an adapter in training is fp32
                stack.enter_context(torch.autocast(model.device.type, dtype=low))
            yield
    finally:
        model.train(was_training)
