"""What no constant can say of a CPU, tried once a machine: up to which length batched products read documents faster.

Without bf16 in hardware they take twice the time of PyTorch's fused attention, with it a third; matrix units (AMX) change
both ways. Each length is tried with two ways in turn, forward and backward. What is known holds until the trials clearly
show otherwise, so that a busy machine does not decide. The result is kept in the user's cache.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch

from expert_cli.hardware.machine import Machine, ShortAttention, cpu_facts
from expert_cli.manifest.keys.compute import ComputeConfig
from expert_cli.model.kernels import attention, cpu_attention
from expert_cli.utils.files import read_sealed, write_sealed
from expert_cli.utils.paths import cache_folder

LENGTHS = (128, 256, cpu_attention.LONGEST)
"""Tokens of a document, one trial each, until one is lost."""
TOKENS, HEADS, KEY_HEADS, HEAD_DIM = 512, 4, 2, 64
"""The form of a trial: small, and what wins in it wins with 9 to 32 heads."""
ROUNDS, FEWEST, SECONDS = 11, 5, 0.4
"""Rounds of a trial; after so many seconds no more than the fewest."""
CLEAR = 1.25
"""Batched products have lost where their best round takes so many times the other's best: of a neighbor that takes a third
of the time a median knows too much (it decides one run in eight), the best of some rounds nothing."""


def with_trials(machine: Machine, compute: ComputeConfig, folder: Path | None = None) -> Machine:
    """Return the machine with what trials tell of it, where a run's settings can rest on them and it was not handed in.

    folder: where results are kept; None: the user's cache. One that cannot be read or written only means another trial.
    """
    rests = compute.device == "cpu" and compute.dtype == "bf16" and compute.attention != "eager"
    if not rests or machine.short_attention is not None:
        return machine
    key = _key()
    name = hashlib.sha256(json.dumps(key).encode()).hexdigest()[:16]
    path = (cache_folder() if folder is None else folder) / f"cpu-trials-{name}.json"
    found = _kept(path, key)
    if found is None:
        found = try_lengths()
        with suppress(OSError):
            write_sealed(path, {"machine": key, "short_attention": asdict(found)})
    return replace(machine, short_attention=found)


def try_lengths(seconds: Callable[[int], tuple[list[float], list[float]]] | None = None) -> ShortAttention:
    """Try every length. seconds: of the rounds of one, batched and a call a document; None: measured now."""
    longest, trials = 0, []
    for tokens in LENGTHS:
        batched, alone = (seconds or _measure)(tokens)
        ours, theirs = min(batched), min(alone)
        trials.append((tokens, round(1000 * ours, 3), round(1000 * theirs, 3)))
        if ours > CLEAR * theirs:
            break
        longest = tokens
    return ShortAttention(longest, tuple(trials))


def _measure(tokens: int) -> tuple[list[float], list[float]]:
    """Return the seconds of the rounds with documents of `tokens`, batched and a call a document, in turn."""
    lengths = [tokens] * (TOKENS // tokens)
    starts = torch.tensor([0, *lengths]).cumsum(0).int()
    random = torch.Generator().manual_seed(0)  # the run's own numbers stay as they are
    q, k, v, change = (
        torch.randn(1, TOKENS, heads, HEAD_DIM, generator=random).bfloat16()
        for heads in (HEADS, KEY_HEADS, KEY_HEADS, HEADS)
    )
    parts = [part.transpose(1, 2).requires_grad_() for part in (q, k, v)]
    ways: dict[int, list[float]] = {cpu_attention.LONGEST: [], 0: []}
    began = time.perf_counter()
    for turn in range(ROUNDS + 1):
        for limit in ways if turn % 2 else reversed(ways):
            module: Any = torch.nn.Module()
            module.longest_batched = limit
            start = time.perf_counter()
            out, _ = attention.per_document_sdpa(module, *parts, None, **attention.varlen_kwargs(starts, tokens))
            torch.autograd.grad(out, parts, change)
            ways[limit].append(time.perf_counter() - start)
        if turn >= FEWEST and time.perf_counter() - began > SECONDS:
            break
    return ways[cpu_attention.LONGEST][1:], ways[0][1:]  # the first round warms up


def _key() -> dict[str, Any]:
    """Return all that a result holds for."""
    model, flags = cpu_facts()
    return {
        "cpu": model,
        "flags": flags,
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "instructions": [torch.backends.cpu.get_cpu_capability(), os.environ.get("ONEDNN_MAX_CPU_ISA", "")],
        "trial": [*LENGTHS, TOKENS, HEADS, KEY_HEADS, HEAD_DIM, CLEAR],
    }


def _kept(path: Path, key: Mapping[str, Any]) -> ShortAttention | None:
    """Return the result that is kept for this machine; None where there is none, or a file that is damaged."""
    with suppress(OSError, ValueError, KeyError, TypeError):
        body = read_sealed(path)
        if body["machine"] == key:
            told = body["short_attention"]
            return ShortAttention(told["longest"], tuple((n, ours, theirs) for n, ours, theirs in told["trials"]))
    return None
