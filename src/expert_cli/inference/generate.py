"""Let a model answer: transformers' `generate`, in batches of prompts of like lengths. Where an answer ends is said here."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any, Protocol

import torch
from transformers import GenerationConfig as ModelGenerationConfig
from transformers import LogitsProcessor, PreTrainedTokenizerFast, StoppingCriteria, TextIteratorStreamer

from expert_cli.errors import EnvironmentProblem
from expert_cli.hardware.devices import is_out_of_memory
from expert_cli.inference.expert_config import GenerationConfig, Stop
from expert_cli.inference.grammar import GrammarLogitsProcessor, Held, Way
from expert_cli.model.kernels.attention import plain_attention
from expert_cli.model.layers import uncompiled

BEAMS = 4
"""Beams by which a query is asked again that does not compile, where the expert does not say how many."""
COMPILED_FROM = 512
"""Answers from which on a GPU compiles the model for them: it takes as long as some hundred answers."""
BLOCK, TIMES = 8, 4
"""Tokens that a repeated block has at least: shorter ones, which tables of numbers hold, count in multiples; and how often it
stands one after another in an answer that loops.
"""


class Ends(Protocol):
    """What tells where answers end: a `PromptRenderer`, for one."""

    hf: PreTrainedTokenizerFast
    stop_token_ids: frozenset[int]
    pad_id: int

    def decode(self, ids: Sequence[int]) -> str:
        """Return an answer's text."""
        ...


@dataclass(frozen=True)
class Request:
    """A prompt as ids, what holds the answer to it, None for free text, and how many answers are drawn by which seed."""

    prompt: Sequence[int]
    held: Held | None = None
    seed: int = 0
    count: int = 1


@dataclass(frozen=True)
class Completion:
    """An answer's ids, its end token left out, and why it ends."""

    ids: tuple[int, ...]
    stop: Stop


def generate(
    model: Any,
    requests: Sequence[Request],
    settings: GenerationConfig,
    ends: Ends,
    on_step: Callable[[int, int], None] = lambda _answers, _tokens: None,
    on_batch: Callable[[Mapping[int, list[Completion]]], None] = lambda _: None,
) -> list[list[Completion]]:
    """Return what the model writes to each request, `count` answers each, the longest prompts first.

    Of a query that its tables refuse, the beams' first that they do not is taken. Drawn answers depend on the seeds of their
    batch. on_step: told how many answers are whole, and how many tokens are written. on_batch: given the answers of each batch,
    by the numbers of their requests. Raises EnvironmentProblem when the GPU's memory is too small for a batch.
    """
    order = sorted(range(len(requests)), key=lambda n: -len(requests[n].prompt))
    rows = settings.num_beams * max((one.count for one in requests), default=1)
    size, compiled = max(1, settings.batch_size // rows), len(requests) * rows >= COMPILED_FROM
    found: dict[int, list[Completion]] = {}
    answers = tokens = 0

    def told(more: int) -> None:
        on_step(answers, tokens + more)

    with generating(model):
        for start in range(0, len(order), size):
            numbers = order[start : start + size]
            batch = [requests[n] for n in numbers]
            written = _batch(model, batch, settings, ends, told, compiled=compiled)
            answers += sum(map(len, written))
            tokens += sum(len(one.ids) for some in written for one in some)
            told(0)
            if not settings.temperature and settings.num_beams == 1:
                written = _asked_again(model, batch, written, settings, ends)
            found |= (made := dict(zip(numbers, written, strict=True)))
            on_batch(made)
    return [found[n] for n in range(len(requests))]


def _asked_again(
    model: Any, requests: Sequence[Request], written: list[list[Completion]], settings: GenerationConfig, ends: Ends
) -> list[list[Completion]]:
    """Return greedy answers, and of a query that its tables refuse what beams find, where they find one that is not."""
    refused = [n for n, one in enumerate(requests) if _fault(one, written[n][0], ends)]
    # a beam that cannot end is not followed further than right answers go
    sound = (2 * len(one[0].ids) for n, one in enumerate(written) if n not in refused)
    longest = min(settings.max_new_tokens, max(sound, default=settings.max_new_tokens))
    beams, size = replace(settings, num_beams=BEAMS, max_new_tokens=longest), max(1, settings.batch_size // BEAMS)
    for start in range(0, len(refused), size):
        numbers = refused[start : start + size]
        others = _batch(model, [requests[n] for n in numbers], beams, ends)
        for n, other in zip(numbers, others, strict=True):
            if not _fault(requests[n], other[0], ends):
                written[n] = other
    return written


def _fault(request: Request, written: Completion, ends: Ends) -> str:
    return request.held.fault(ends.decode(written.ids)) if request.held and request.held.fault else ""


def _batch(
    model: Any,
    requests: Sequence[Request],
    settings: GenerationConfig,
    ends: Ends,
    on_step: Callable[[int], None] = lambda _: None,
    *,
    compiled: bool = False,
    streamer: TextIteratorStreamer | None = None,
) -> list[list[Completion]]:
    """Return the answers to one batch. on_step: told after every step how many tokens are written."""
    device, width = model.device, max(len(one.prompt) for one in requests)
    empty = [width - len(one.prompt) for one in requests]
    ids = [[ends.pad_id] * left + [*one.prompt] for left, one in zip(empty, requests, strict=True)]
    mask = [[0] * left + [1] * (width - left) for left in empty]
    beams, stop_ids = settings.num_beams, sorted(ends.stop_token_ids)
    # of beams all are returned: the likeliest may be a query that its tables refuse
    returned, on_gpu = beams if beams > 1 else requests[0].count, device.type == "cuda"
    how = ModelGenerationConfig(
        max_new_tokens=settings.max_new_tokens,
        eos_token_id=stop_ids,
        pad_token_id=ends.pad_id,
        num_beams=beams,
        num_return_sequences=returned,
        cache_implementation="static" if on_gpu else None,
        disable_compile=not (on_gpu and compiled),
        **settings.sampling(),
    )
    held = [one.held for one in requests]
    way: Way = "beams" if beams > 1 else "drawn" if settings.temperature else "greedy"
    processors: list[Any] = [GrammarLogitsProcessor(ends.hf, stop_ids, held, width, way)] if any(held) else []
    processors += [_NoLoops(ends.stop_token_ids, width)] if beams > 1 else []
    given: dict[str, Any] = {"generation_config": how, "logits_processor": processors}
    given |= {name: torch.tensor(rows, device=device) for name, rows in (("input_ids", ids), ("attention_mask", mask))}
    given |= {"streamer": streamer} if streamer else {}
    try:
        with torch.random.fork_rng(devices=[device] if on_gpu else []):  # the global random numbers stay
            torch.manual_seed(sum(one.seed for one in requests) % (1 << 63))
            written = model.generate(**given, stopping_criteria=[_Ended(settings, ends, width, on_step)])
    except RuntimeError as error:
        if not is_out_of_memory(error):
            raise
        count = len(requests) * returned
        told = f"{count} answers at once do not fit into the GPU's memory"
        raise EnvironmentProblem(told, f"--batch-size {max(1, count // 2)} would fit") from error
    rows = [_completion(row, settings, ends) for row in written[:, width:].tolist()]
    of_each = [rows[n * returned : (n + 1) * returned] for n in range(len(requests))]

    def first(request: Request, some: list[Completion]) -> list[Completion]:
        """Return the first beam that its tables do not refuse, the likeliest where all are; places left empty are none."""
        sound = (one for one in some if (one.ids or one is some[0]) and not _fault(request, one, ends))
        return [next(sound, some[0])]

    return of_each if beams == 1 else [*map(first, requests, of_each)]


def _completion(row: Sequence[int], settings: GenerationConfig, ends: Ends) -> Completion:
    """Return an answer without what fills its row, and why it ends."""
    end = next((n for n, token in enumerate(row) if token in ends.stop_token_ids), len(row))
    ids = tuple(row[:end])
    text = ends.decode(ids) if settings.stops else ""
    if any(stop in text for stop in settings.stops):
        return Completion(ids, "sequence")
    if is_looping(ids):
        return Completion(ids, "looping")
    return Completion(ids, "end" if end < len(row) or len(row) < settings.max_new_tokens else "length")


def is_looping(ids: Sequence[int]) -> bool:
    """Return whether an answer ends with a block of at least BLOCK tokens, TIMES times."""
    count = len(ids)
    for size in range(BLOCK, count // TIMES + 1):
        if ids[-1] == ids[-1 - size] and all(
            ids[count - size :] == ids[count - (n + 1) * size : count - n * size] for n in range(1, TIMES)
        ):
            return True
    return False


class _NoLoops(LogitsProcessor):
    """Ends beams that say one thing over and over: a stopping criterion would make an answer of them."""

    def __init__(self, end_ids: frozenset[int], prompt: int) -> None:
        self._end_ids, self._prompt = end_ids, prompt

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """Return the scores [rows, vocabulary] with -inf where a beam may not go on."""
        rows = input_ids[:, self._prompt :].tolist()
        looping = [self._end_ids.isdisjoint(row) and is_looping(row) for row in rows]
        return scores.masked_fill(torch.tensor(looping, device=scores.device)[:, None], -torch.inf)


class _Ended(StoppingCriteria):
    """Ends an answer at a stop sequence, and, of one beam, where it says one thing over and over."""

    def __init__(self, settings: GenerationConfig, ends: Ends, prompt: int, on_step: Callable[[int], None]) -> None:
        self._stops, self._ends, self._prompt, self._on_step = settings.stops, ends, prompt, on_step
        self._may_loop = settings.num_beams > 1
        # some decoders leave out a space at the start
        self._tail = 16 + max((len(stop.encode()) for stop in settings.stops), default=0)

    def __call__(self, input_ids: torch.Tensor, scores: Any, **_: Any) -> torch.Tensor:  # noqa: ARG002
        """Return for each row whether its answer has ended."""
        written = input_ids[:, self._prompt :]
        self._on_step(written.numel())
        ended = []
        for ids in written.tolist():
            tail = self._ends.decode(ids[-self._tail :]) if self._stops else ""
            ended.append(any(stop in tail for stop in self._stops) or (not self._may_loop and is_looping(ids)))
        return torch.tensor(ended, device=input_ids.device)


def stream(model: Any, request: Request, settings: GenerationConfig, ends: Ends) -> Iterator[str]:
    """Yield the text of one answer as it is written, by one beam; control tokens spelled out, its end token left out."""
    pieces = _Pieces(ends)

    def write() -> None:
        try:
            with suppress(_GoneError), generating(model):
                _batch(model, [request], replace(settings, num_beams=1), ends, streamer=pieces)
        finally:
            pieces.end()  # type: ignore[no-untyped-call]

    with ThreadPoolExecutor(1) as thread:
        written = thread.submit(write)
        try:
            yield from pieces
        finally:
            pieces.is_read = False
        written.result()


class _GoneError(Exception):
    """Nobody reads the answer any more."""


class _Pieces(TextIteratorStreamer):
    """The text of an answer, as it is written in another thread."""

    def __init__(self, ends: Ends) -> None:
        super().__init__(ends.hf, skip_prompt=True, skip_special_tokens=False, clean_up_tokenization_spaces=False)
        self._stop_token_ids, self.is_read = ends.stop_token_ids, True

    def put(self, value: torch.Tensor) -> None:
        """Take the next token."""
        if not self.is_read:
            raise _GoneError
        if self.next_tokens_are_prompt or not self._stop_token_ids & set(value.tolist()):
            super().put(value)  # type: ignore[no-untyped-call]


@contextmanager
def generating(model: Any) -> Iterator[None]:
    """Put the model into evaluation, not compiled, with an attention that has a cache; one in training is left as it was."""
    was_training = model.training
    base = model.get_base_model() if hasattr(model, "get_base_model") else model
    dtypes = {parameter.dtype for parameter in model.parameters() if parameter.is_floating_point()}
    low = next((dtype for dtype in (torch.bfloat16, torch.float16) if dtype in dtypes), None)
    # what a publisher writes there fills in what a run leaves open: sampling, penalties of repeated tokens
    publishers, base.generation_config = base.generation_config, ModelGenerationConfig()
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
        base.generation_config = publishers
        model.train(was_training)
