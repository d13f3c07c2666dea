"""Experiments: who runs when, what the document says, when a gate is missed."""

from __future__ import annotations

import json
import math
import signal
from pathlib import Path
from statistics import stdev
from typing import Any

import pytest

from expert_cli.benchmark.experiment import as_text, mean_loss, measure_against, parity
from expert_cli.benchmark.measured_run import Curve, RunCounts, Variant, measure_run
from expert_cli.config.resolve import Overrides
from expert_cli.errors import InputError, Interrupted, TrainingFailed
from expert_cli.utils.reporter import NullReporter
from tests import manifests
from tests.measurements import MACHINE, measured, runner, valid


@pytest.fixture
def manifest(tmp_path: Path) -> Path:
    (tmp_path / "datasets").mkdir()
    (tmp_path / "datasets" / "train.jsonl").touch()
    return manifests.write(tmp_path, manifests.small())


def against(manifest: Path, answer: Any, repeats: int = 2, gate: float | None = None, b: str = "unoptimized") -> Any:
    """Measure with runs that are what `answer` returns; give the document and who was run in turn."""
    asked: list[tuple[str, int]] = []
    counts = RunCounts(3, 1, repeats)
    run = runner(answer, asked)
    document = measure_against(manifest, b, Overrides(seed=42), counts, MACHINE, NullReporter(), gate, run)
    return valid(document), asked


def twice_as_fast(loss: float = 2.0) -> Any:
    return lambda side, seed: measured(seed, 10.0) if side.preset else measured(seed, 20.0, loss)


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
    ("start", "stop", "loss"),
    [(0, 40, 2.5), (10, 40, 3.0), (0, 10, 1.0), (5, 15, 2.0), (30, 40, 3.0), (25, 35, 3.0)],
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
        pytest.param([2.1, 2.3], [2.0, 2.2], "higher", id="the same in every pair, whatever the seed does"),
        pytest.param([2.2, 2.0, 2.2, 2.0], [2.0, 2.2, 2.0, 2.2], "equal", id="noise that cancels out"),
        pytest.param([2.4, 2.0, 2.0], [2.0, 2.2, 2.1], "equal", id="within the noise of the calmest"),
        pytest.param([4.0, 2.1], [2.0, 2.01], "higher", id="a wild side is not excused by its own spread"),
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


def test_the_band() -> None:
    found = parity([curve(2.1), curve(2.0)], [curve(2.0), curve(2.3)])
    assert found.noise == pytest.approx(2 * stdev([2.1, 2.0]) / math.sqrt(2))
    assert found.tolerance == pytest.approx(0.02 * 2.15)
    assert found.difference == pytest.approx(-0.1)
