"""Experiments: who runs when, what the document says, when a gate is missed."""

from __future__ import annotations

import json
import math
import os
import signal
from dataclasses import replace
from pathlib import Path
from statistics import stdev
from typing import Any

import pytest

from expert_cli.benchmark.experiment import Experiment, conditions, data_facts, make_job, parity, run_experiment
from expert_cli.benchmark.measured_run import Curve, StepCounts, StepSamples, Variant, measure_run
from expert_cli.benchmark.sampler import MonitorSample
from expert_cli.benchmark.tables import as_text
from expert_cli.config.resolve import Overrides
from expert_cli.errors import InputError, Interrupted
from expert_cli.hardware import nvml
from expert_cli.runs.metrics import MetricsTail
from expert_cli.runs.run_paths import RunPaths
from expert_cli.utils.reporter import NullReporter
from tests import manifests
from tests.fake_nvml import FakeNvml, told
from tests.measurements import MACHINE, measured, runner, speeds, valid

A, B = Variant("a.json", Path("a.json")), Variant("b", Path("a.json"), "unoptimized")


def job(repeats: int = 2, gate: float | None = None, **more: Any) -> Experiment:
    return Experiment(A, B, Overrides(), StepCounts(3, 1), repeats, 42, more.pop("machine", MACHINE), gate, **more)


def test_sides_take_turns_and_pairs_have_the_same_seed() -> None:
    asked: list[tuple[str, int]] = []
    found = run_experiment(job(3), NullReporter(), runner(speeds({"a.json": 20.0, "b": 10.0}), asked))
    assert asked == [("a.json", 42), ("b", 42), ("b", 43), ("a.json", 43), ("a.json", 44), ("b", 44)]
    document = valid(found.as_json())
    assert document["ratio"] == {"mean": pytest.approx(2.0), "ci95": pytest.approx([2.0, 2.0])}
    assert document["median_ratio"] == pytest.approx(2.0)
    assert document["loss_parity"]["holds"]
    assert [run["seed"] for run in document["a"]["runs"]] == [42, 43, 44]
    assert document["a"]["seconds_per_epoch"] == pytest.approx(50.0)
    assert document["gate"] is None
    text = as_text(document)
    assert "A is 2.00x (95 %: 2.00 to 2.00) as fast as B (3 pairs of 3 steps after 1 of warm-up)" in text
    assert "\nmedian of the pairs: 2.00x\nloss: equal, 2.0000 and 2.0000, 0.0000 apart" in text


def test_the_median_stands_where_one_pair_was_disturbed() -> None:
    a, b = ([measured(n, speed) for n, speed in enumerate(speeds)] for speeds in ((20.0, 2.0, 21.0), (10.0,) * 3))
    found = job(3, runs=(a, b))
    assert found.median_ratio == 2.0
    assert found.ratio is not None
    assert found.ratio.mean < 1.0


@pytest.mark.parametrize(
    ("gate", "loss", "reason"),
    [
        pytest.param(None, 3.0, "", id="no gate"),
        pytest.param(2.0, 2.0, "", id="reached"),
        pytest.param(2.1, 2.0, "the ratio 2.00 is below 2.1", id="too slow"),
        pytest.param(1.5, 2.5, "broken: at equal trained tokens the loss is higher: 2.5000 against 2.0000", id="broken"),
        pytest.param(1.5, float("nan"), "broken: at equal trained tokens the loss is not finite", id="not finite"),
    ],
)  # fmt: skip
def test_the_gate(gate: float | None, loss: float, reason: str) -> None:
    found = job(2, gate, runs=([measured(n, 20.0, loss) for n in range(2)], [measured(n, 10.0) for n in range(2)]))
    assert found.missed().startswith(reason)
    assert bool(found.missed()) == bool(reason)
    document = valid(found.as_json())
    assert document["gate"] is None or document["gate"]["passed"] == (not reason)
    assert ("BROKEN" in as_text(document)) == (loss != 2.0)


def test_interrupted_with_what_there_is() -> None:
    def answer(side: Variant, seed: int) -> Any:
        if seed == 43:
            raise KeyboardInterrupt
        return measured(seed, 10.0)

    found = run_experiment(job(2, 1.5), NullReporter(), runner(answer, []))
    document = valid(found.as_json())
    assert (document["interrupted"], found.exit_code) == (True, 130)
    assert "interrupted: 1 and 1 of 2 runs each are done" in as_text(document)
    assert document["ratio"]["ci95"] is None


def test_interrupted_before_a_pair_was_done() -> None:
    def answer(side: Variant, seed: int) -> Any:
        if side is B:
            raise KeyboardInterrupt
        return measured(seed, 10.0)

    document = valid(run_experiment(job(2, 1.5), NullReporter(), runner(answer, [])).as_json())
    assert (document["b"], document["ratio"], document["loss_parity"]) == (None, None, None)
    assert document["gate"] == {"ratio": 1.5, "passed": False, "reason": "no pair of runs was finished"}
    assert "seconds per epoch       100  -" in as_text(document)

    def at_once(side: Variant, seed: int) -> Any:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_experiment(job(2), NullReporter(), runner(at_once, []))


def test_a_request_to_end_is_taken_as_ctrl_c_but_for_the_exit_code() -> None:
    before = signal.getsignal(signal.SIGTERM)

    def answer(side: Variant, seed: int) -> Any:
        if side is B:
            signal.raise_signal(signal.SIGTERM)
        return measured(seed, 10.0)

    assert run_experiment(job(2), NullReporter(), runner(answer, [])).exit_code == 143
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_request_to_end_before_the_first_run_is_done() -> None:
    def answer(side: Variant, seed: int) -> Any:
        signal.raise_signal(signal.SIGTERM)
        return measured(seed, 10.0)

    with pytest.raises(Interrupted, match="ended by SIGTERM") as raised:
        run_experiment(job(2), NullReporter(), runner(answer, []))
    assert raised.value.exit_code == 143


def test_what_a_reader_must_know() -> None:
    busy = {"gpu": None, "cpu": 50.0, "others": 40.0}
    facts = {**measured(1, 1.0).facts, "adjusted": ["micro-batch 4 x 1 -> 2 x 2"]}
    other = {**measured(1, 1.0).config, "optim": {"batch_size": 4}}
    a, b = measured(1, 1.0, utilization=busy, facts=facts), measured(1, 1.0, utilization=busy, config=other)
    document = valid(job(runs=([a], [b])).as_json())
    assert document["differences"] == {"optim.batch_size": [2, 4]}
    assert document["notes"][0] == "adjusted to fit the memory: micro-batch 4 x 1 -> 2 x 2"
    assert document["notes"][1].startswith("other programs took 40 % of the machine's CPU")


def test_both_manifests_are_read_before_anything_runs(tmp_path: Path) -> None:
    (tmp_path / "datasets").mkdir()
    (tmp_path / "datasets" / "train.jsonl").touch()
    manifest = manifests.write(tmp_path, manifests.small())
    made = make_job(manifest, "unoptimized", Overrides(seed=7), StepCounts(3, 1), 2, MACHINE)
    assert (made.seed, bool(made.b.preset), made.b.name) == (7, True, "unoptimized")
    with pytest.raises(InputError, match=r"--against none\.json: no such manifest"):
        make_job(manifest, "none.json", Overrides(), StepCounts(3, 1), 2, MACHINE)
    other = tmp_path / "other.json"
    other.write_text(json.dumps({**manifests.small(), "training": {}}), encoding="utf-8")
    with pytest.raises(InputError, match=r"other.json.*is missing"):
        make_job(manifest, str(other), Overrides(), StepCounts(3, 1), 2, MACHINE)


def test_what_comes_before_the_first_step_is_not_sampled(tmp_path: Path) -> None:
    shown: list[tuple[int, float]] = []
    look = StepSamples(RunPaths(tmp_path), 0, lambda step, speed: shown.append((step, speed)))
    look(os.getpid(), [])
    look(os.getpid(), [{"step": 1, "tokens_per_s": 5.0}])
    assert (look.samples, shown) == ([], [(1, 5.0)])
    look(os.getpid(), [])
    assert len(look.samples) == 1
    RunPaths(tmp_path).report_json.touch()
    look(os.getpid(), [])
    assert len(look.samples) == 1, "nor what comes after the last"


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ({"kind": "file", "path": "/p/experts/a/rows.jsonl", "split": "train"}, "experts/a/rows.jsonl::train"),
        ({"kind": "file", "path": "/elsewhere/rows.jsonl", "weight": 0.4}, "/elsewhere/rows.jsonl x 0.4"),
        ({"kind": "hub", "path": "who/what", "split": "train[:9]", "config": "en"}, "who/what::train[:9]::en"),
    ],
    ids=["in the project", "elsewhere", "hub"],
)
@pytest.mark.skipif(os.name != "posix", reason="the paths are")
def test_rows_are_named_alike_wherever_the_project_lies(source: dict[str, Any], name: str) -> None:
    assert data_facts({"root": "/p", "data": {"train": [source]}}, "1")["train"] == [name]


@pytest.mark.skipif(not Path("/proc/cpuinfo").is_file(), reason="another system")
def test_the_cpu_is_named() -> None:
    told = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    name = conditions(MACHINE, StepCounts(1, 0))["machine"]["cpu"]
    assert (name and f": {name}\n" in told) or "model name" not in told


@pytest.mark.parametrize(
    ("start", "stop", "loss"),
    [(0, 40, 2.5), (10, 40, 3.0), (0, 10, 1.0), (5, 15, 2.0), (30, 40, 3.0), (25, 35, 3.0)],
)
def test_the_loss_between_two_counts_of_tokens(start: int, stop: int, loss: float) -> None:
    assert Curve((10, 30), (1.0, 3.0)).mean_loss(start, stop) == pytest.approx(loss)


def curve(loss: float) -> Curve:
    return Curve((100, 100), (9.0, loss))


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
    assert found.as_json()["tokens"] == [100, 200]


def test_losses_are_compared_at_equal_tokens() -> None:
    # A takes twice the tokens a step, and both learn the same from each: the loss falls by 1 in 100 tokens.
    small = Curve((50,) * 8, tuple(4 - n / 2 for n in range(8)))
    large = Curve((100,) * 6, tuple(3.75 - n for n in range(6)))
    found = parity([large], [small])
    assert found.tokens == (200, 400)
    assert (found.a, found.b) == (pytest.approx(1.25), pytest.approx(1.25))
    assert found.difference == pytest.approx(0.0)


def test_the_band() -> None:
    found = parity([curve(2.1), curve(2.0)], [curve(2.0), curve(2.3)])
    calmest = stdev([2.1, 2.0])
    assert found.noise == pytest.approx(2 * calmest / math.sqrt(2))
    assert found.tolerance == pytest.approx(0.02 * 2.15)
    assert found.as_json()["band"] == pytest.approx(found.noise + found.tolerance)
    assert found.difference == pytest.approx(-0.1)


LINE = (
    '{"step": %d, "seconds": %d, "loss": 1.0, "tokens_real": %d, "tokens_trained": %d, "tokens_padded": 0,'
    ' "tokens_per_s": 10.0, "memory_mb": 1.0, "step_time_shares": {"forward": 1.0}}\n'
)


@pytest.mark.parametrize(("index", "utilization"), [(0, 20.0), (1, 95.0), (None, 95.0)], ids=["0", "1", "not known"])
def test_the_gpu_is_the_one_that_the_run_had_and_not_the_busiest(
    tmp_path: Path, index: int | None, utilization: float
) -> None:
    paths = RunPaths(tmp_path)
    paths.metrics.write_text("".join(LINE % (n, n, 10 * n, 5 * n) for n in (1, 2, 3)), encoding="utf-8")
    (one,) = told(FakeNvml(), nvml.sample)
    cards = (replace(one, utilization=20.0), replace(one, index=1, utilization=95.0))
    samples = [MonitorSample(1.0, cards)]
    found = measure_run(paths, MetricsTail(paths.metrics).read(), 42, 1, samples, index)
    assert (found.seconds, found.tokens_per_s, found.utilization["gpu"]) == (2, 10.0, utilization)
