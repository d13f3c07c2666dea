"""Experiments and sweeps: who runs when, what the document says, when a gate is missed, which is the fastest that fits."""

from __future__ import annotations

import json
import math
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from expert_cli.benchmark.experiment import as_text, mean_loss, measure_against, parity
from expert_cli.benchmark.measured_run import Curve, Run, RunCounts, RunMeasurement, Variant, measure_run
from expert_cli.benchmark.sweep import as_text as sweep_text
from expert_cli.benchmark.sweep import combinations, parse_sweep, sweep
from expert_cli.config.resolve import Overrides
from expert_cli.errors import EnvironmentProblem, InputError, Interrupted, ManifestError, TrainingFailed
from expert_cli.hardware.machine import Machine
from expert_cli.runs.metrics import SHARES
from expert_cli.utils.reporter import NullReporter
from tests import manifests
from tests.schemas import valid

MACHINE = Machine("Linux", 2, 24 * 2**30, (), cpu_bf16=True, torch_cuda="", versions=(("python", "3.11"),))


def checked(document: Any) -> Any:
    """Return the document as it is, once its schema accepts it."""
    whole = {"schema_version": 1, "command": "benchmark", **document}
    valid(json.loads(json.dumps(whole)), "benchmark")
    return document


def measured(seed: int, speed: float, loss: float = 2.0) -> RunMeasurement:
    shares = dict.fromkeys(SHARES, 0.1)
    return RunMeasurement(seed, speed, 0.5, shares, speed, ((10, loss), (10, loss)))


def runner(answer: Callable[[Variant, int], RunMeasurement], asked: list[tuple[str, int]]) -> Run:
    """Return what stands for `run_once`; `asked` gets (side, seed) of every call."""

    def run(side: Variant, overrides: Overrides, counts: RunCounts, seed: int) -> RunMeasurement:
        asked.append((side.name, seed))
        return answer(side, seed)

    return run


@pytest.fixture
def manifest(tmp_path: Path) -> Path:
    (tmp_path / "datasets").mkdir()
    (tmp_path / "datasets" / "train.jsonl").touch()
    return manifests.write(tmp_path, manifests.small(batch_size=4, gradient_accumulation_steps=2))


def against(manifest: Path, answer: Any, repeats: int = 2, gate: float | None = None, b: str = "unoptimized") -> Any:
    """Measure with runs that are what `answer` returns; give the document and who was run in turn."""
    asked: list[tuple[str, int]] = []
    counts = RunCounts(3, 1, repeats)
    run = runner(answer, asked)
    document = measure_against(manifest, b, Overrides(seed=42), counts, MACHINE, NullReporter(), gate, run)
    return checked(document), asked


def twice_as_fast(loss: float = 2.0) -> Any:
    return lambda side, seed: measured(seed, 10.0) if side.name == "unoptimized" else measured(seed, 20.0, loss)


def test_sides_take_turns_and_pairs_have_the_same_seed(manifest: Path) -> None:
    document, asked = against(manifest, twice_as_fast(), 3)
    a, b = str(manifest), "unoptimized"
    assert asked == [(a, 42), (b, 42), (b, 43), (a, 43), (a, 44), (b, 44)]
    assert document["ratio"] == {"mean": pytest.approx(2.0), "ci95": pytest.approx([2.0, 2.0])}
    assert document["loss_parity"]["holds"]
    assert [run["seed"] for run in document["a"]["runs"]] == [42, 43, 44]
    assert document["gate"] is None
    text = as_text(document)
    assert "A is 2.00x (95 %: 2.00 to 2.00) as fast as B (3 pairs of 3 steps after 1 of warm-up)" in text
    assert "\nthe loss is equal: 2.0000 against 2.0000, 0.0000 apart" in text


@pytest.mark.parametrize(
    ("gate", "loss", "reason"),
    [
        pytest.param(2.0, 2.0, "", id="reached"),
        pytest.param(2.1, 2.0, "the ratio 2.00 is below 2.1", id="too slow"),
        pytest.param(1.5, 2.5, "broken: the loss is higher: 2.5000 against 2.0000", id="broken"),
        pytest.param(1.5, float("nan"), "broken: the loss is not finite", id="not finite"),
    ],
)
def test_the_gate(manifest: Path, gate: float, loss: float, reason: str) -> None:
    document, _ = against(manifest, twice_as_fast(loss), gate=gate)
    assert document["gate"]["reason"].startswith(reason)
    assert document["gate"]["passed"] == (not document["gate"]["reason"]) == (not reason)
    assert ("BROKEN" in as_text(document)) == (loss != 2.0)


@pytest.mark.parametrize(
    ("end", "error"), [("SIGTERM", Interrupted), ("SIGINT", KeyboardInterrupt), ("", TrainingFailed)]
)
def test_what_ends_a_run_ends_the_experiment(manifest: Path, end: str, error: type[BaseException]) -> None:
    before = signal.getsignal(signal.SIGTERM), signal.signal(signal.SIGINT, signal.default_int_handler)

    def answer(side: Variant, seed: int) -> Any:
        if end:
            signal.raise_signal(signal.Signals[end])
        raise TrainingFailed("a: the loss is nan")

    with pytest.raises(error) as raised:
        against(manifest, answer)
    assert getattr(raised.value, "exit_code", 130) == {"SIGTERM": 143, "SIGINT": 130, "": 4}[end]
    assert signal.getsignal(signal.SIGTERM) is before[0]
    signal.signal(signal.SIGINT, before[1])


def test_both_manifests_are_read_before_anything_runs(manifest: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.json"
    other.write_text(json.dumps({**manifests.small(), "training": {}}), encoding="utf-8")
    for b, told in (("none.json", r"--against none\.json: no such manifest"), (str(other), r"other.json.*is missing")):
        with pytest.raises(InputError, match=told):
            against(manifest, None, b=b)


def test_a_run_is_measured_after_its_warm_up() -> None:
    lines = [
        {"loss": 1.0, "seconds": n**2, "tokens_real": 10 * n, "tokens_trained": 5 * n, "tokens_padded": 10 * n}
        for n in (1, 2, 3)
    ]
    found = measure_run(lines, 7.0, 42, 1)
    assert (found.tokens_per_s, found.padding_share, found.peak_memory_mb) == (20 / 8, 0.5, 7.0)
    assert found.curve == ((5, 1.0),) * 3
    assert measure_run(lines, 7.0, 42, 0).tokens_per_s == 30 / 9


@pytest.mark.parametrize(
    ("start", "stop", "loss"), [(0, 40, 2.5), (10, 40, 3.0), (0, 10, 1.0), (5, 15, 2.0), (30, 40, 3.0), (25, 35, 3.0)]
)
def test_the_loss_between_two_counts_of_tokens(start: int, stop: int, loss: float) -> None:
    assert mean_loss([(10, 1.0), (30, 3.0)], start, stop) == pytest.approx(loss)


def curve(loss: float) -> Curve:
    return [(100, 9.0), (100, loss)]


@pytest.mark.parametrize(
    ("a", "b", "verdict"),
    [
        pytest.param([2.0], [2.0], "equal", id="the same"),
        pytest.param([2.039], [2.0], "equal", id="within the tolerance"),
        pytest.param([2.041], [2.0], "higher", id="above it"),
        pytest.param([1.95], [2.0], "lower", id="below it: no better sign"),
        pytest.param([2.0, 2.2], [2.02, 2.22], "equal", id="every pair a little off"),
        pytest.param([2.1, 2.3], [2.0, 2.2], "higher", id="every pair too far off"),
        pytest.param([math.nan], [2.0], "not finite", id="A is lost"),
        pytest.param([2.0], [math.inf], "not finite", id="B is lost"),
    ],
)  # fmt: skip
def test_verdicts(a: list[float], b: list[float], verdict: str) -> None:
    found = parity([curve(loss) for loss in a], [curve(loss) for loss in b])
    assert found.verdict == verdict
    assert found.holds == (verdict == "equal")
    assert found.tokens == (100, 200)


def test_losses_are_compared_at_equal_tokens() -> None:
    # A takes twice the tokens a step, and both learn the same from each: the loss falls by 1 in 100 tokens.
    small = [(50, 4 - n / 2) for n in range(8)]
    large = [(100, 3.75 - n) for n in range(6)]
    found = parity([large], [small])
    assert found.tokens == (200, 400)
    assert (found.a, found.b) == (pytest.approx(1.25), pytest.approx(1.25))


def swept(manifest: Path, key: str, answer: Any, repeats: int = 1) -> Any:
    """Sweep with runs that measure what `answer` returns; give the document and who was run in turn."""
    asked: list[tuple[str, int]] = []
    runs = runner(answer, asked)
    found = sweep(manifest, [key], Overrides(), RunCounts(3, 1, repeats), MACHINE, NullReporter(), runs)
    return checked(found), asked


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        (["batch_size=2,4,8"], {"batch_size": [2, 4, 8]}),
        (["training.config.batch_size=2"], {"batch_size": [2]}),
        (["packing=true,false,concat"], {"packing": [True, False, "concat"]}),
        ([" rank = 8 , 16 ", "optim=adamw_torch"], {"rank": [8, 16], "optim": ["adamw_torch"]}),
    ],
)
def test_what_is_swept(asked: list[str], found: dict[str, list[Any]]) -> None:
    assert parse_sweep(asked) == found


SWEPT: dict[str, tuple[dict[str, Any], list[str]]] = {
    "accumulation follows": (
        {"batch_size": [2, 8]},
        ["batch_size=2 gradient_accumulation_steps=4", "batch_size=8 gradient_accumulation_steps=1"],
    ),
    "batch follows": ({"gradient_accumulation_steps": [2]}, ["gradient_accumulation_steps=2 batch_size=4"]),
    "both": ({"batch_size": [4], "gradient_accumulation_steps": [2]}, ["batch_size=4 gradient_accumulation_steps=2"]),
    "neither": ({"packing": [True, False]}, ["packing=true", "packing=false"]),
}


@pytest.mark.parametrize(("values", "found"), SWEPT.values(), ids=SWEPT.keys())
def test_combinations_keep_the_effective_batch(values: dict[str, list[Any]], found: list[str]) -> None:
    named = [[f"training.config.{flag}" for flag in flags.split()] for flags in found]
    assert [list(one) for one in combinations(values, 4, 2)] == named


@pytest.mark.parametrize(
    "values", [{"batch_size": [3]}, {"batch_size": [16]}, {"batch_size": [2], "gradient_accumulation_steps": [2]}]
)
def test_a_combination_that_cannot_is_refused(values: dict[str, list[Any]]) -> None:
    with pytest.raises(InputError, match="the effective batch 8"):
        combinations(values, 4, 2)


def test_the_fastest_that_fits(manifest: Path) -> None:
    def answer(side: Variant, seed: int) -> Any:
        batch = int(side.name.split()[0].partition("=")[2])
        if batch == 8:
            raise TrainingFailed("b: a full step of 8 packs does not fit the GPU's memory")
        return measured(seed, 10.0 * batch)

    document, asked = swept(manifest, "batch_size=2,4,8", answer, 2)
    # the second round runs backwards, without those that cannot be run
    assert [(name.split()[0], seed) for name, seed in asked] == [
        *(("batch_size=2", 42), ("batch_size=4", 42), ("batch_size=8", 42)),
        *(("batch_size=4", 43), ("batch_size=2", 43)),
    ]
    states = [(trial["set"][0][-1], trial["status"]) for trial in document["trials"]]
    assert states == [("4", "ran"), ("2", "ran"), ("8", "failed")]
    flags = ["training.config.batch_size=4", "training.config.gradient_accumulation_steps=2"]
    assert document["fastest"]["set"] == flags
    text = sweep_text(document)
    assert f"fastest that fits: --set {flags[0]} --set {flags[1]}" in text
    assert "failed: b: a full step of 8 packs does not fit" in text


@pytest.mark.parametrize("error", [EnvironmentProblem("the hub cannot be reached"), TrainingFailed("no memory")])
def test_where_nothing_runs_the_error_is_raised(manifest: Path, error: Exception) -> None:
    def answer(side: Variant, seed: int) -> Any:
        raise error

    with pytest.raises(type(error), match=str(error)):
        swept(manifest, "rank=4,8", answer)


@pytest.mark.parametrize("key", ["rank=0,8", "batch_sise=2", "batch_size=large", "batch_size=3"])
def test_every_value_is_checked_before_anything_runs(manifest: Path, key: str) -> None:
    with pytest.raises((ManifestError, InputError), match=r"rank|batch_si[sz]e"):
        swept(manifest, key, None)
