"""Let a model answer: transformers' `generate`, in batches of prompts of like lengths."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any, Protocol

import torch
from transformers import GenerationConfig as ModelGenerationConfig
from transformers import PreTrainedTokenizerFast, StoppingCriteria, TextIteratorStreamer

from expert_cli.errors import EnvironmentProblem
from expert_cli.inference.generation_config import GenerationConfig, Stop
from expert_cli.inference.grammar import GrammarLogitsProcessor, Held, Way
from expert_cli.inference.loops import is_looping
from expert_cli.model.compiled_layers import uncompiled
from expert_cli.model.kernels.attention import plain_attention
from expert_cli.utils.out_of_memory import is_out_of_memory

BEAMS = 4
"""Beams by which a query is asked again that does not compile, where the expert does not say how many."""
COMPILED_FROM = 512
"""Answers from which on a GPU compiles the model for them: it takes as long as some hundred answers."""


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
    batch; the global random numbers are left as they are. on_step: told after every step how many answers are whole, and how
    many tokens are written. on_batch: given the answers of each batch, by the numbers of their requests. Raises
    EnvironmentProblem when the GPU's memory is too small for a batch.
    """
    order = sorted(range(len(requests)), key=lambda n: -len(requests[n].prompt))
    rows = settings.num_beams * max((one.count for one in requests), default=1)
    size = max(1, settings.batch_size // rows)
    found: dict[int, list[Completion]] = {}
    steps = _Steps(on_step)
    with generating(model):
        for start in range(0, len(order), size):
            numbers = order[start : start + size]
            batch = [requests[n] for n in numbers]
            written = _batch(model, batch, settings, ends, steps, compiled=len(requests) * rows >= COMPILED_FROM)
            steps.end(sum(map(len, written)))
            if not settings.temperature and settings.num_beams == 1:
                written = _asked_again(model, batch, written, settings, ends)
            found |= (made := dict(zip(numbers, written, strict=True)))
            on_batch(made)
    return [found[n] for n in range(len(requests))]


def _asked_again(
    model: Any,
    requests: Sequence[Request],
    written: list[list[Completion]],
    settings: GenerationConfig,
    ends: Ends,
) -> list[list[Completion]]:
    """Return greedy answers, and of a query that its tables refuse what beams find, where they find one that is not."""
    refused = [n for n, one in enumerate(requests) if _fault(one, written[n][0], ends)]
    # a beam that cannot end is not followed further than right answers go
    sound = (2 * len(one[0].ids) for n, one in enumerate(written) if n not in refused)
    longest = min(settings.max_new_tokens, max(sound, default=settings.max_new_tokens))
    beams = replace(settings, num_beams=BEAMS, max_new_tokens=longest)
    size = max(1, settings.batch_size // BEAMS)
    for start in range(0, len(refused), size):
        numbers = refused[start : start + size]
        others = _batch(model, [requests[n] for n in numbers], beams, ends, _Steps())
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
    steps: _Steps,
    *,
    compiled: bool = False,
    streamer: TextIteratorStreamer | None = None,
) -> list[list[Completion]]:
    """Return the answers to one batch."""
    device, width, count = model.device, max(len(one.prompt) for one in requests), requests[0].count
    ids = torch.tensor([[ends.pad_id] * (width - len(one.prompt)) + [*one.prompt] for one in requests], device=device)
    mask = torch.tensor([[0] * (width - len(one.prompt)) + [1] * len(one.prompt) for one in requests], device=device)
    beams, stop_ids = settings.num_beams, sorted(ends.stop_token_ids)
    # of beams all are returned: the likeliest may be a query that its tables refuse
    returned = beams if beams > 1 else count
    on_gpu = device.type == "cuda"
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
    processors = [GrammarLogitsProcessor(ends.hf, stop_ids, held, width, way)] if any(held) or beams > 1 else []
    criteria = [_Ended(settings.stops, ends, width, loops=beams == 1), steps]
    steps.prompt = width
    try:
        with _seeded(model.device, [one.seed for one in requests]):
            written = model.generate(
                input_ids=ids,
                attention_mask=mask,
                generation_config=how,
                logits_processor=processors,
                stopping_criteria=criteria,
                **({"streamer": streamer} if streamer else {}),
            )
    except RuntimeError as error:
        if not is_out_of_memory(error):
            raise
        hint = f"--batch-size {max(1, len(requests) * returned // 2)} would fit"
        raise EnvironmentProblem(
            f"{len(requests) * returned} answers at once do not fit into the GPU's memory", hint
        ) from error
    rows = [_completion(row, settings, ends) for row in written[:, width:].tolist()]
    of_each = [rows[n * returned : (n + 1) * returned] for n in range(len(requests))]
    return (
        [_first_sound(one, some, ends) for one, some in zip(requests, of_each, strict=True)] if beams > 1 else of_each
    )


def _first_sound(request: Request, beams: Sequence[Completion], ends: Ends) -> list[Completion]:
    """Return the first of the beams that is not refused, the likeliest where all are; places left empty are none."""
    said = [beams[0], *(one for one in beams[1:] if one.ids)]
    return [next((one for one in said if not _fault(request, one, ends)), beams[0])]


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


def stream(model: Any, request: Request, settings: GenerationConfig, ends: Ends) -> Iterator[str]:
    """Yield the text of one answer as it is written, by one beam; control tokens spelled out, its end token left out."""
    pieces = _Pieces(ends)

    def write() -> None:
        try:
            with generating(model):
                _batch(model, [request], replace(settings, num_beams=1), ends, _Steps(), streamer=pieces)
        except _GoneError:
            pass
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


class _Ended(StoppingCriteria):
    """Ends an answer at a stop sequence, and where it says one thing over and over."""

    def __init__(self, stops: Sequence[str], ends: Ends, prompt: int, *, loops: bool) -> None:
        self._stops, self._ends, self._prompt, self._loops = stops, ends, prompt, loops
        # some decoders leave out a space at the start
        self._tail = 16 + max((len(stop.encode()) for stop in stops), default=0)

    def __call__(self, input_ids: torch.Tensor, scores: Any, **_: Any) -> torch.Tensor:  # noqa: ARG002
        """Return for each row whether its answer has ended."""
        return torch.tensor(
            [self._has_ended(row) for row in input_ids[:, self._prompt :].tolist()], device=input_ids.device
        )

    def _has_ended(self, ids: list[int]) -> bool:
        if self._stops:
            tail = self._ends.decode(ids[-self._tail :])
            if any(stop in tail for stop in self._stops):
                return True
        return self._loops and is_looping(ids)


class _Steps(StoppingCriteria):
    """Tells after every step how far the answers are; ends none."""

    def __init__(self, on_step: Callable[[int, int], None] = lambda _answers, _tokens: None) -> None:
        self._on_step, self._answers, self._tokens, self._columns, self.prompt = on_step, 0, 0, 0, 0

    def __call__(self, input_ids: torch.Tensor, scores: Any, **_: Any) -> torch.Tensor:  # noqa: ARG002
        """Count the tokens of a step."""
        rows, columns = input_ids.shape
        self._on_step(self._answers, self._tokens + rows * (columns - self.prompt))
        self._columns = rows * (columns - self.prompt)
        return torch.zeros(rows, dtype=torch.bool, device=input_ids.device)

    def end(self, answers: int) -> None:
        """Take the batch as written."""
        self._answers, self._tokens = self._answers + answers, self._tokens + self._columns
        self._on_step(self._answers, self._tokens)


@contextmanager
def _seeded(device: torch.device, seeds: Sequence[int]) -> Iterator[None]:
    """Draw by the seeds of a batch, and leave the global random numbers as they were."""
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed(sum(seeds) % (1 << 63))
        yield


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
