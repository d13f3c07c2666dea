"""Let a model answer prompts: many at once, or one token by token.

ids        pad pad  p p p p p | a          prompts of a batch end together (padding on the left), so that every step
attention   0   0   1 1 1 1 1 | 1          adds one column; a row that has ended leaves batch and cache
positions   0   0   0 1 2 3 4 | 5
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from inspect import signature
from typing import Any

import torch
from transformers import DynamicCache
from transformers.generation import (
    LogitsProcessorList,
    MinPLogitsWarper,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from expert_cli.errors import EnvironmentProblem
from expert_cli.inference.generation_config import GenerationConfig
from expert_cli.model.kernels.attention import plain_attention
from expert_cli.model.kernels.compiled_layers import uncompiled
from expert_cli.utils.out_of_memory import is_out_of_memory


def answers(
    model: Any,
    prompts: Sequence[Sequence[int]],
    settings: GenerationConfig,
    stop_token_ids: Collection[int],
    on_step: Callable[[int, int], None] = lambda _answers, _tokens: None,
) -> list[list[int]]:
    """Return what the model writes after each prompt, its end token left out; a full-length one was cut off.

    Longest prompts first, in batches of like length; a seed draws the same, whatever the batch. on_step: told after every
    step and batch how many answers are done, and how many tokens are written. The model's mode (train or eval) is kept, and
    no random numbers are drawn from the global generators. Raises EnvironmentProblem when the GPU's memory is too small for a
    batch.
    """
    order = sorted(range(len(prompts)), key=lambda n: -len(prompts[n]))
    written: list[list[int]] = [[] for _ in prompts]
    done = tokens = 0
    with _generating(model):
        for start in range(0, len(order), settings.batch_size):
            batch = order[start : start + settings.batch_size]
            try:
                for step in _steps(model, prompts, batch, settings, stop_token_ids):
                    for row, token in step.items():
                        if token in stop_token_ids:
                            done += 1
                        else:
                            written[row].append(token)
                    tokens += len(step)
                    on_step(done, tokens)
            except RuntimeError as error:
                if not is_out_of_memory(error):
                    raise
                hint = f"--batch-size {max(1, len(batch) // 2)} would fit"
                raise EnvironmentProblem(
                    f"{len(batch)} answers at once do not fit into the GPU's memory", hint
                ) from error
            done = start + len(batch)
            on_step(done, tokens)
    return written


def stream(
    model: Any, prompt: Sequence[int], settings: GenerationConfig, stop_token_ids: Collection[int]
) -> Iterator[int]:
    """Yield the tokens of one answer as they are written, its end token left out."""
    with _generating(model):
        for step in _steps(model, [prompt], [0], settings, stop_token_ids):
            if step[0] not in stop_token_ids:
                yield step[0]


def _steps(
    model: Any,
    prompts: Sequence[Sequence[int]],
    rows: Sequence[int],
    settings: GenerationConfig,
    stop_token_ids: Collection[int],
) -> Iterator[dict[int, int]]:
    """Yield at each step the next token of every row (an index of `prompts`) that has not ended."""
    device, longest = model.device, max(len(prompts[row]) for row in rows)
    ids = torch.tensor([[0] * (longest - len(prompts[row])) + list(prompts[row]) for row in rows], device=device)
    lengths = torch.tensor([len(prompts[row]) for row in rows], device=device)
    mask = (torch.arange(longest, device=device) >= longest - lengths[:, None]).long()
    positions = (mask.cumsum(1) - 1).clamp(min=0)
    cache, taken_as = DynamicCache(config=model.config), _cache_argument(model)
    choose = _chooser(settings, rows)
    for _ in range(settings.max_new_tokens):
        out = model(
            input_ids=ids,
            # without padding no mask: transformers then uses the kernel's own causal one
            attention_mask=None if bool(mask.all()) else mask,
            position_ids=positions,
            use_cache=True,
            logits_to_keep=1,
            **{taken_as: cache},
        )
        tokens = choose(out.logits[:, -1].float(), rows)
        values = tokens.tolist()
        yield dict(zip(rows, values, strict=True))
        kept = [n for n, token in enumerate(values) if token not in stop_token_ids]
        if not kept:
            return
        if len(kept) < len(rows):
            index: Any = torch.tensor(kept, device=device)  # transformers declares LongTensor
            cache.reorder_cache(index)  # batch_select_indices leaves states of recurrent layers out
            rows = [rows[n] for n in kept]
            tokens, mask, positions = tokens[index], mask[index], positions[index]
        ids = tokens[:, None]
        mask = torch.cat([mask, mask.new_ones(len(rows), 1)], 1)
        positions = positions[:, -1:] + 1


def _cache_argument(model: Any) -> str:
    """Return under which name a model takes its cache; those of Mamba layers alone leave any other unread."""
    base = model.get_base_model() if hasattr(model, "get_base_model") else model
    return "cache_params" if "cache_params" in signature(base.forward).parameters else "past_key_values"


def _chooser(settings: GenerationConfig, rows: Sequence[int]) -> Callable[[torch.Tensor, Sequence[int]], torch.Tensor]:
    """Return what takes scores [rows, vocabulary] to one token a row."""
    if not settings.temperature:
        return lambda scores, _: scores.argmax(-1)
    warpers = LogitsProcessorList([TemperatureLogitsWarper(settings.temperature)])
    warpers += [TopKLogitsWarper(settings.top_k)] if settings.top_k else []
    warpers += [TopPLogitsWarper(settings.top_p)] if settings.top_p < 1 else []
    warpers += [MinPLogitsWarper(settings.min_p)] if settings.min_p else []
    unread: Any = torch.empty(0, dtype=torch.int64)  # the ids so far, which no warper reads
    # one generator a row: what is drawn for a prompt does not depend on its neighbors
    generators = {row: torch.Generator().manual_seed(settings.seed * 1_000_003 + row) for row in rows}

    def draw(scores: torch.Tensor, alive: Sequence[int]) -> torch.Tensor:
        shares = warpers(unread, scores).softmax(-1).cpu()
        drawn = [torch.multinomial(shares[n], 1, generator=generators[row]) for n, row in enumerate(alive)]
        return torch.cat(drawn).to(scores.device)

    return draw


@contextmanager
def _generating(model: Any) -> Iterator[None]:
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
