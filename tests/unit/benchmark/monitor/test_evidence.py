"""What was watched, as evidence and as bars."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from typing import Any

import pytest

from expert_cli.benchmark.monitor.evidence import collect_evidence
from expert_cli.benchmark.monitor.gauges import sparkline, spread
from expert_cli.benchmark.monitor.sampler import MonitorSample


@pytest.mark.parametrize(
    ("seen", "evaluating"),
    [
        pytest.param(100, 100 / 300, id="while it is watched"),
        pytest.param(300, 50 / 230, id="before it is watched: the last 20 lines"),
    ],
)
def test_evaluations_count_in_full(seen: int, evaluating: float) -> None:
    """Steps of 1 s, a line every 10, and 50 s of evaluation every 100 steps, which the line after it covers."""
    lines: list[dict[str, Any]] = []
    for step in range(10, 301, 10):
        seconds = step + 50 * ((step - 1) // 100)
        share = 50 / 60 if step in (110, 210) else 0.0
        shares = {"eval": share, "forward": 1 - share}
        lines.append({"step": step, "loss": 1.0, "seconds": seconds, "step_time_shares": shares})
        if step % 100 == 0:
            lines.append({"step": step, "eval_loss": 1.0, "seconds": seconds + 50})
    earlier = [line for line in lines if line["step"] <= seen]
    found = collect_evidence([], earlier, lines[len(earlier) :], {})
    assert found.shares["eval"] == pytest.approx(evaluating)
    assert found.run_shares["eval"] == pytest.approx(100 / 400)


def test_the_mean_speed_is_tokens_over_time() -> None:
    """10 steps of 1 s and 148 tokens, then one that holds an evaluation: 1,628 tokens in 60 s."""
    rows = [(second, 148.0, 0.2) for second in range(1, 11)] + [(60, 148 / 50, 0.2 / 50)]
    lines = [
        {"loss": 1.0, "seconds": at, "tokens_per_s": speed, "mfu": mfu, "step_time_shares": {"forward": 1.0}}
        for at, speed, mfu in rows
    ]
    for earlier, tokens, seconds in ((0, 1628, 60), (4, 1036, 56)):
        found = collect_evidence([], lines[:earlier], lines[earlier:], {})
        assert spread(found.tokens_per_s, found.held_s) == pytest.approx(
            {"mean": tokens / seconds, "min": 148 / 50, "max": 148.0}
        )
        assert found.mfu == pytest.approx(0.2 * tokens / 148 / seconds)


@pytest.mark.parametrize(
    ("cores", "others"),
    [
        pytest.param(os.cpu_count(), 0.5, id="all cores are the run's"),
        pytest.param(4_096, None, id="nobody counts who uses the cores that are the run's"),
    ],
)
def test_what_other_programs_take(cores: int, others: float | None) -> None:
    own = 30 * (os.cpu_count() or 1)
    samples = [
        MonitorSample(1.0, (), True, own, 1.0, busy, stolen_percent=stolen) for busy, stolen in ((70, 8), (90, 2))
    ]
    found = collect_evidence(samples, [], [], {"machine": {"cores": cores}, "torch_threads": 3})
    assert found.others == (None if others is None else pytest.approx(others))
    assert (found.stolen_percent, found.threads) == (5.0, 3)


def resumed_at(time: Any) -> dict[str, Any]:
    return {"resumes": [{"time": "2026-01-01T00:00:00+00:00"}, {"time": time}]}


@pytest.mark.parametrize(
    ("run", "evaluating"),
    [
        pytest.param({}, 0.5 * 3 / 4, id="never"),
        pytest.param(resumed_at("2026-01-02T03:04:05+00:00"), 0.0, id="after the third line"),
        pytest.param(resumed_at("2026-01-02T03:04:07+00:00"), None, id="no step since then"),
        pytest.param(resumed_at("yesterday"), 0.5 * 3 / 4, id="nothing tells when"),
        pytest.param(resumed_at(None), 0.5 * 3 / 4, id="torn"),
    ],
)
def test_the_runs_shares_begin_where_it_went_on(run: dict[str, Any], evaluating: float | None) -> None:
    """Seconds go on after a resume, as those of a run that never stopped."""
    ends = datetime(2026, 1, 2, 3, 4, 6, tzinfo=UTC).timestamp()
    lines = [
        {
            "seconds": 10.0 * step,
            "time": ends - 10 * (4 - step),
            "step_time_shares": {"eval": 0.5, "forward": 0.5} if step < 4 else {"forward": 1.0},
        }
        for step in range(1, 5)
    ]
    assert collect_evidence([], [], lines, run).run_shares.get("eval") == evaluating


@pytest.mark.parametrize(
    ("values", "drawn"),
    [
        pytest.param([], "", id="nothing"),
        pytest.param([0.0, 0.0], "▁▁", id="zeros"),
        pytest.param([0.0, 50.0, 100.0], "▁▅█", id="from zero"),
        pytest.param([1.0] * 30, "█" * 20, id="the newest"),
    ],
)
def test_sparkline(values: list[float], drawn: str) -> None:
    assert sparkline(values) == drawn
