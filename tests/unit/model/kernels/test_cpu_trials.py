"""What trials on a machine decide, that a busy machine does not, and that the result lies in the cache until it is deleted."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from expert_cli.config.run_config import ModelConfig
from expert_cli.hardware.machine import Machine, ShortAttention
from expert_cli.manifest.keys.compute import ComputeConfig
from expert_cli.model import isolation
from expert_cli.model.kernels import attention, cpu_attention, cpu_trials
from expert_cli.model.kernels.cpu_trials import ROUNDS, try_lengths, with_trials
from expert_cli.model.kernels.select import apply_kernels, kernel_plan
from tests import run_blocks, tiny
from tests.machines import CPU, H200

BF16 = replace(run_blocks.COMPUTE, dtype="bf16")
NO_COPIES = ModelConfig("m", "", "none", "", None, ())
Seconds = Callable[[int], tuple[list[float], list[float]]]


def steady(*factors: float) -> Seconds:
    """Return the times of rounds that nothing disturbs: of batched products, so many times a call a document."""
    known = dict(zip(cpu_trials.LENGTHS, factors, strict=True))
    return lambda tokens: ([known[tokens]] * ROUNDS, [1.0] * ROUNDS)


@pytest.mark.parametrize(
    ("factors", "longest", "tried"),
    [
        ((0.3, 0.6, 0.8), 512, 3),
        ((0.3, 1.1, 1.1), 512, 3),  # no clear loss: what is known holds
        ((0.3, 0.6, 1.3), 256, 3),
        ((0.3, 1.3, 0.8), 128, 2),
        ((2.4, 0.3, 0.3), 0, 1),
    ],
)
def test_the_longest_documents_before_a_clear_loss(factors: tuple[float, ...], longest: int, tried: int) -> None:
    found = try_lengths(steady(*factors))
    assert found.longest == longest
    assert [tokens for tokens, _, _ in found.trials] == list(cpu_trials.LENGTHS[:tried])
    assert found.trials[0] == (128, 1000 * factors[0], 1000.0)


@pytest.mark.parametrize(("factor", "longest"), [(0.4, 512), (1.0, 512), (2.0, 0)])
def test_a_neighbor_that_takes_a_third_of_the_time_does_not_decide(factor: float, longest: int) -> None:
    for seed in range(200):
        draw = random.Random(seed)

        def disturbed(tokens: int, draw: random.Random = draw) -> tuple[list[float], list[float]]:
            times = [[way * draw.choice((1.0, 1.0, 3.0)) for _ in range(ROUNDS)] for way in (factor, 1.0)]
            return times[0], times[1]

        assert try_lengths(disturbed).longest == longest


def test_the_words_name_the_figures_that_decided() -> None:
    trials = ((128, 7.0, 21.0), (256, 30.0, 20.0))
    assert ShortAttention(128, trials).words == (
        "those of up to 128 tokens by batched matrix products (measured on this machine: 7.00 ms against 21.00 ms at 128 "
        "tokens, 30.00 ms against 20.00 ms at 256 tokens)"
    )
    assert ShortAttention(0, ((128, 100.0, 42.0),)).words == (
        "short ones too: batched matrix products take longer here (measured on this machine: 100.00 ms against 42.00 ms at "
        "128 tokens)"
    )
    assert ShortAttention(512, ()).words == "those of up to 512 tokens by batched matrix products"


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a trial be real and take milliseconds."""
    for name, value in {"LENGTHS": (8, 16), "TOKENS": 16, "ROUNDS": 2, "FEWEST": 1}.items():
        monkeypatch.setattr(cpu_trials, name, value)


def tried(folder: Path, compute: ComputeConfig = BF16, machine: Machine = CPU) -> ShortAttention:
    found = with_trials(machine, compute, folder).short_attention
    assert found is not None
    return found


@pytest.mark.usefixtures("quick")
def test_the_same_result_until_the_cache_is_deleted(tmp_path: Path) -> None:
    state = torch.get_rng_state()
    first = tried(tmp_path)
    (kept,) = tmp_path.iterdir()
    assert torch.equal(torch.get_rng_state(), state)
    assert all(ours > 0 < alone for _, ours, alone in first.trials)
    lines = kept.read_bytes()
    assert tried(tmp_path) == first
    assert kept.read_bytes() == lines
    kept.unlink()
    assert tried(tmp_path) != first  # times to a microsecond
    assert kept.is_file()


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-40])


def forged(path: Path) -> None:
    path.write_text(path.read_text("utf-8").replace('"longest": ', '"longest": 9'), "utf-8")


def of_another_machine(path: Path) -> None:
    body = cpu_trials.read_sealed(path)
    cpu_trials.write_sealed(path, {**body, "machine": {**body["machine"], "threads": 99}})


def of_another_form(path: Path) -> None:
    body = cpu_trials.read_sealed(path)
    cpu_trials.write_sealed(path, {"machine": body["machine"], "short_attention": {"longest": 3, "trials": [1]}})


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("damage", [cut, forged, of_another_machine, of_another_form])
def test_a_damaged_result_is_measured_anew(tmp_path: Path, damage: Callable[[Path], None]) -> None:
    first = tried(tmp_path)
    (kept,) = tmp_path.iterdir()
    damage(kept)
    again = tried(tmp_path)
    assert again != first
    assert tried(tmp_path) == again


@pytest.mark.usefixtures("quick")
def test_a_cache_that_cannot_be_written_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert tried(tmp_path / "file").trials


@pytest.mark.usefixtures("quick")
def test_other_threads_are_another_machine(tmp_path: Path) -> None:
    threads = torch.get_num_threads()
    tried(tmp_path)
    torch.set_num_threads(threads + 1)
    try:
        tried(tmp_path)
    finally:
        torch.set_num_threads(threads)
    assert len(list(tmp_path.iterdir())) == 2


HANDED = replace(CPU, short_attention=ShortAttention(128, ()))


@pytest.mark.parametrize(
    ("compute", "machine"),
    [
        (replace(BF16, dtype="fp32"), CPU),
        (replace(BF16, attention="eager"), CPU),
        (replace(BF16, device="cuda"), H200),
        (BF16, HANDED),
    ],
    ids=["fp32", "eager", "GPU", "handed in"],
)
def test_nothing_is_tried_that_decides_nothing(tmp_path: Path, compute: ComputeConfig, machine: Machine) -> None:
    assert with_trials(machine, compute, tmp_path) is machine
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("limit", "lengths", "batched"), [(8, (8, 3), True), (8, (9, 3), False), (0, (2, 1), False)])
def test_a_model_attends_as_the_trials_say(limit: int, lengths: tuple[int, ...], *, batched: bool) -> None:
    here = replace(CPU, short_attention=ShortAttention(limit, ((128, 1.5, 1.0),)))
    model: Any = tiny.tiny_model().to(torch.bfloat16)
    plan = apply_kernels(kernel_plan(BF16, NO_COPIES, here), model, BF16, here)
    assert plan.longest_batched == attention.longest_batched(model) == limit
    assert here.short_attention is not None
    assert here.short_attention.words in plan.lines["attention"].reason
    ways = set()

    def look(function: Any) -> None:
        if function is not None and function not in ways:
            ways.add(function)
            for further, _ in function.next_functions:
                look(further)

    starts = torch.tensor([0, *lengths]).cumsum(0).int()
    ids = torch.arange(sum(lengths))[None]
    look(model(input_ids=ids, use_cache=False, **attention.varlen_kwargs(starts, max(lengths))).logits.grad_fn)
    names = {type(function).__name__ for function in ways}
    assert ("_AttentionBackward" in names, "ScaledDotProductFlashAttentionForCpuBackward0" in names) == (
        batched,
        not batched,
    )


def test_both_ways_are_proved_to_keep_documents_apart() -> None:
    assert isolation.packs(300, None, longest_batched=128) == [(23, 61, 57, 9), (23, 136, 57)]
    assert isolation.packs(300, None, longest_batched=0) == isolation.packs(300, None) == [(23, 61, 57, 9)]


def test_what_is_kept_can_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file says what it holds for, and the same in run.json's words."""
    monkeypatch.setattr(cpu_trials, "try_lengths", lambda: try_lengths(steady(0.3, 0.5, 2.0)))
    found = tried(tmp_path)
    (kept,) = tmp_path.iterdir()
    told = json.loads(kept.read_text("utf-8"))
    assert told["short_attention"] == {
        "longest": 256,
        "trials": [[128, 300.0, 1000.0], [256, 500.0, 1000.0], [512, 2000.0, 1000.0]],
    }
    assert (told["machine"]["torch"], told["machine"]["threads"]) == (torch.__version__, torch.get_num_threads())
    assert found == try_lengths(steady(0.3, 0.5, 2.0))
    assert max(cpu_trials.LENGTHS) == cpu_attention.LONGEST
