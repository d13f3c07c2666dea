"""Generates answers with transformers' `generate`, in batches of similar length, and decides where an answer ends."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import chain, islice, takewhile
from threading import Event
from typing import Any, NamedTuple

import torch
from transformers import GenerationConfig as ModelGenerationConfig
from transformers import TextIteratorStreamer

from expert_cli.errors import EnvironmentProblem
from expert_cli.hardware.devices import is_out_of_memory
from expert_cli.inference.expert import generating
from expert_cli.inference.expert_config import GenerationConfig, Stop
from expert_cli.inference.grammar import GrammarLogitsProcessor, Held, Way
from expert_cli.inference.prompts import PromptRenderer
from expert_cli.inference.sql_correction import corrected

TRIES = 4
"""The most corrections of a query that names a missing table or column."""
BLOCK, TIMES = 8, 4
"""The shortest block of tokens that counts as a loop, and how often it must repeat in a row."""


@dataclass(frozen=True)
class Request:
    """A prompt's ids, the last `begun` of which begin the answer; constraints (None: free text); seed; number of answers."""

    prompt: Sequence[int]
    held: Held | None = None
    seed: int = 0
    count: int = 1
    begun: int = 0


class Completion(NamedTuple):
    """An answer's ids without the end token, and why it ends."""

    ids: tuple[int, ...]
    stop: Stop


def generate(
    model: Any, requests: Sequence[Request], settings: GenerationConfig, renderer: PromptRenderer
) -> list[list[Completion]]:
    """Return the answers to each request, as from `batches`."""
    found = {n: some for made in batches(model, requests, settings, renderer) for n, some in made.items()}
    return [found[n] for n in range(len(requests))]


def batches(
    model: Any, requests: Sequence[Request], settings: GenerationConfig, renderer: PromptRenderer
) -> Iterator[dict[int, list[Completion]]]:
    """Yield the answers of each batch by request number, `count` for each request; the longest prompts come first.

    Without sampling, a query that names a missing table or column is generated again from that place, up to TRIES times.
    Raises EnvironmentProblem if there is too little memory.
    """
    order = sorted(range(len(requests)), key=lambda n: -len(requests[n].prompt))
    rows = settings.num_beams * max((one.count for one in requests), default=1)
    size, most = max(1, settings.batch_size // rows), max(1, settings.batch_size // settings.num_beams)
    with generating(model):
        for start in range(0, len(order), size):
            numbers = order[start : start + size]
            asked = [requests[n] for n in numbers]
            parts = [  # several if one request asks for more answers than a batch has
                [replace(one, seed=one.seed + at, count=min(most, one.count - at)) for one in asked]
                for at in range(0, asked[0].count, most)
            ]
            written = zip(*(_batch(model, some, settings, renderer) for some in parts), strict=True)
            made = {n: [*chain(*some)] for n, some in zip(numbers, written, strict=True)}
            tried = made
            for _ in range(0 if settings.temperature else TRIES):
                again = {n: one for n, (given,) in tried.items() if (one := _corrected(requests[n], given, renderer))}
                if not again:
                    break
                tried = dict(zip(again, _batch(model, [*again.values()], settings, renderer), strict=True))
                made |= {n: some for n, some in tried.items() if not _is_refused(requests[n], some[0], renderer)}
            yield made


def _corrected(request: Request, written: Completion, renderer: PromptRenderer) -> Request | None:
    """Return the request for the rest of a query that names a missing table or column; None if it cannot be corrected."""
    held, answer = request.held, renderer.decode(written.ids)
    if held is None or not held.tables or not (rest := corrected(answer, held.fault, held.tables)):
        return None
    begun = next(n for n in range(len(written.ids), -1, -1) if len(renderer.decode(written.ids[:n])) <= len(rest.kept))
    return replace(request, prompt=[*request.prompt, *written.ids[:begun]], held=replace(held, rest=rest), begun=begun)


def _is_refused(request: Request, written: Completion, renderer: PromptRenderer) -> bool:
    held = request.held
    return held is not None and (written.stop == "length" or bool(held.fault(renderer.decode(written.ids))))


def _batch(
    model: Any,
    requests: Sequence[Request],
    settings: GenerationConfig,
    renderer: PromptRenderer,
    *,
    streamer: TextIteratorStreamer | None = None,
    left: Event | None = None,
) -> list[list[Completion]]:
    device, width, beams = model.device, max(len(one.prompt) for one in requests), settings.num_beams
    ends, held = sorted(renderer.stop_token_ids), [one.held for one in requests]
    empty, begins = [width - len(one.prompt) for one in requests], [width - one.begun for one in requests]
    ids = [[renderer.pad_id] * left + [*one.prompt] for left, one in zip(empty, requests, strict=True)]
    mask = [[0] * left + [1] * (width - left) for left in empty]
    # all beams are returned: the most likely one may not compile
    returned = beams if beams > 1 else requests[0].count
    shape = {"max_new_tokens": settings.max_new_tokens, "num_beams": beams, "num_return_sequences": returned}
    drawn: dict[str, Any] = {"top_k": 0, **settings.sampling()} if settings.temperature else {}
    tokens = {"eos_token_id": ends, "pad_token_id": renderer.pad_id}
    how = ModelGenerationConfig(**tokens, **shape, **drawn, disable_compile=True, do_sample=bool(drawn))
    tail = 16 + max((len(stop.encode()) for stop in settings.stops), default=0)

    def ended(input_ids: torch.Tensor, _: Any, **__: Any) -> torch.Tensor:
        """End an answer at a stop sequence, at its maximum length, if it loops (without beams), or if reading has stopped."""
        found = []
        for number, ids in enumerate(input_ids.tolist()):
            row, answer = ids[width:], ids[begins[number * len(begins) // len(input_ids)] :]
            text = renderer.decode(row[-tail:]) if settings.stops else ""  # some decoders drop a leading space
            is_over = len(answer) >= settings.max_new_tokens or (left is not None and left.is_set())
            found.append(is_over or any(stop in text for stop in settings.stops) or (beams == 1 and is_looping(row)))
        return torch.tensor(found, device=device)

    def without_loops(input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """Exclude looping beams, which a stopping criterion would turn into answers."""
        rows = input_ids[:, width:].tolist()
        looping = [renderer.stop_token_ids.isdisjoint(row) and is_looping(row) for row in rows]
        return scores.masked_fill(torch.tensor(looping, device=device)[:, None], -torch.inf)

    way: Way = "beams" if beams > 1 else "drawn" if drawn else "greedy"
    processors: list[Any] = [GrammarLogitsProcessor(renderer.hf, ends, held, begins, way)] if any(held) else []
    processors += [without_loops] if beams > 1 else []
    given: dict[str, Any] = {"generation_config": how, "logits_processor": processors, "streamer": streamer}
    given |= {name: torch.tensor(rows, device=device) for name, rows in (("input_ids", ids), ("attention_mask", mask))}
    try:
        with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):  # keeps the global random state
            torch.manual_seed(sum(one.seed for one in requests) % (1 << 63))
            written = model.generate(**given, stopping_criteria=[ended])
    except RuntimeError as error:
        if not is_out_of_memory(error):
            raise
        count = len(requests) * returned
        hint = f"use --batch-size {max(1, count // 2)}, or a shorter --max-new-tokens"
        raise EnvironmentProblem(f"{count} answers at once do not fit into memory", hint) from error
    rows = iter(written.tolist())
    answers = [[_completion(row[begin:], settings, renderer) for row in islice(rows, returned)] for begin in begins]
    for n, some in enumerate(answers if beams > 1 else ()):  # skip unused beams
        filled = (one for one in some if one.ids or one is some[0])
        answers[n] = [next((one for one in filled if not _is_refused(requests[n], one, renderer)), some[0])]
    return answers


def _completion(row: Sequence[int], settings: GenerationConfig, renderer: PromptRenderer) -> Completion:
    """Return an answer without padding, and why it ends."""
    ends = renderer.stop_token_ids | {renderer.pad_id}  # a row that ends before the others of its batch is padded
    ids = tuple(takewhile(lambda token: token not in ends, row))
    if any(stop in renderer.decode(ids) for stop in settings.stops):
        return Completion(ids, "sequence")
    is_cut = len(ids) >= settings.max_new_tokens
    return Completion(ids, "looping" if is_looping(ids) else "length" if is_cut else "end")


def is_looping(ids: Sequence[int]) -> bool:
    """Return whether the ids end with a block of at least BLOCK tokens that repeats TIMES times."""
    for size in range(BLOCK, len(ids) // TIMES + 1):
        # the blocks are equal if each token equals the one a block earlier
        if ids[-1] == ids[-1 - size] and ids[-size * (TIMES - 1) :] == ids[-size * TIMES : -size]:
            return True
    return False


def stream(model: Any, request: Request, settings: GenerationConfig, renderer: PromptRenderer) -> Iterator[str]:
    """Yield the text of one answer as it is generated, without beams or corrections; special tokens are spelled out."""
    spelled: dict[str, Any] = {"skip_special_tokens": False, "clean_up_tokenization_spaces": False}
    pieces: Any = TextIteratorStreamer(renderer.hf, skip_prompt=True, **spelled)
    left = Event()

    def write() -> None:
        try:
            with generating(model):
                _batch(model, [request], replace(settings, num_beams=1), renderer, streamer=pieces, left=left)
        finally:
            pieces.end()

    with ThreadPoolExecutor(1) as thread:
        written = thread.submit(write)
        try:
            yield from pieces
        finally:
            left.set()
        written.result()
