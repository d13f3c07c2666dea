"""Watching real processes that write metrics as a training does; only the GPU is a double."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from expert_cli.benchmark import monitor
from expert_cli.benchmark.evidence import collect_evidence
from expert_cli.benchmark.sampler import MonitorSample, main_gpu
from expert_cli.errors import EnvironmentProblem, InputError
from expert_cli.hardware.nvml import GpuSample
from expert_cli.runs.lock import run_lock
from expert_cli.runs.run_paths import RunPaths
from expert_cli.runs.status import RunStatus


def gpu_sample(index: int, utilization: float) -> GpuSample:
    return GpuSample(index, "Test", utilization, 1000.0, 8000.0, 60.0, 100.0)


def run_folder(folder: Path, *lines: dict[str, Any], device: str = "cpu") -> RunPaths:
    paths = RunPaths(folder)
    config = {"compute": {"device": device}, "loader": {"num_workers": 0}}
    paths.run_json.write_text(json.dumps({"config": config, "machine": {"cores": 16}}), encoding="utf-8")
    paths.metrics.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return paths


def watch(
    target: monitor.MonitoredRun, duration: float = 0.4, gpus: Sequence[GpuSample] = (), **more: Any
) -> monitor.MonitorSession:
    show = more.pop("show", lambda _: None)
    return monitor.monitor_run(target, duration, 0.1, show, more.pop("ask", lambda: gpus))


def test_a_run_that_ends_while_it_is_watched(tmp_path: Path) -> None:
    """It logs a step before it is watched and one meanwhile, and is ended at the second look."""
    rows = [
        {
            "step": n,
            "loss": 2.0,
            "seconds": n,
            "tokens_per_s": 1000.0,
            "step_time_shares": {"data": 0.7, "forward": 0.3},
        }
        for n in (1, 2)
    ]
    paths, child = (
        run_folder(tmp_path, rows[0]),
        subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE),
    )

    def end(seen: monitor.MonitorSession) -> None:
        if len(seen.samples) == 2:
            paths.metrics.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
            child.communicate(b"\n")

    seen = watch(monitor.MonitoredRun(paths, child.pid), duration=600.0, show=end)
    document = seen.as_json()
    assert (document["ended"], len(seen.earlier), len(seen.lines)) == (True, 1, 1)
    assert document["tokens_per_s"] == {"mean": 1000.0, "min": 1000.0, "max": 1000.0}
    assert document["step_time_shares"]["data"] == pytest.approx(0.7)
    assert document["verdict"] == "waiting for data"
    assert document["advice"][0]["changes"] == {"training.config.dataloader_num_workers": "2"}
    assert document["process"]["rss_mb"]["max"] > 1
    assert any("the run ended after" in note for note in document["notes"])


def test_a_run_that_is_over_is_judged_by_its_metrics(tmp_path: Path) -> None:
    rows = [{"step": n, "loss": 1.0, "seconds": n, "step_time_shares": {"data": 0.6, "other": 0.4}} for n in (1, 2)]
    paths = run_folder(tmp_path, *rows, device="cuda")
    paths.complete.touch()
    document = watch(monitor.find_run(tmp_path), duration=60.0).as_json()
    assert (document["samples"], document["gpu"]) == (0, None)
    assert document["verdict"] == "waiting for data"
    assert document["notes"] == ["the run is over: judged by what it logged"]


def test_of_several_gpus_the_busiest_is_looked_at(tmp_path: Path) -> None:
    samples = [MonitorSample(1.0, (gpu_sample(0, 1.0), gpu_sample(1, 90.0)))]
    assert [main_gpu(samples), main_gpu([])] == [1, None]
    document = monitor.MonitorSession(monitor.MonitoredRun(run_folder(tmp_path), None), samples=samples).as_json()
    assert not [text for text in document["evidence"] if "GPU" in text], "beside a run on a CPU it is another program's"
    assert document["gpu"]["index"] == 1
    assert document["gpu"]["utilization"] == {"mean": 90.0, "min": 90.0, "max": 90.0}


def test_finding_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("LOCALAPPDATA", str(tmp_path / "cache"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    with pytest.raises(EnvironmentProblem, match="no training run"):
        monitor.find_run(None)
    with pytest.raises(InputError, match="no such folder"):
        monitor.find_run(tmp_path / "none")
    folder = tmp_path / "run"
    folder.mkdir()
    run_folder(folder)
    assert (monitor.find_run(folder).pid, monitor.find_run(folder).is_over) == (None, True)
    with run_lock(folder):
        found = [monitor.find_run(None), monitor.find_run(folder)]
    RunStatus(folder / "status.json").begin()
    unknown = monitor.find_run(folder)
    assert all(target.pid is not None and target.paths.output == folder.resolve() for target in found)
    assert (unknown.pid, unknown.is_over) == (None, False)


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
        covered = 60 if step in (110, 210) else 10
        lines.append({"step": step, "loss": 1.0, "seconds": seconds, "interval_s": covered, "step_time_shares": shares})
        if step % 100 == 0:
            lines.append({"step": step, "eval_loss": 1.0, "seconds": seconds + 50})
    earlier = [line for line in lines if line["step"] <= seen]
    found = collect_evidence([], earlier, lines[len(earlier) :], {})
    assert found.shares["eval"] == pytest.approx(evaluating)
    assert found.run_shares["eval"] == pytest.approx(100 / 400)


def test_utilization_of_flops_is_that_of_all_the_time() -> None:
    """10 steps of 1 s and 148 tokens, then one that holds an evaluation: 1,628 tokens in 60 s."""
    rows = [(1, 148.0, 0.2)] * 10 + [(50, 148 / 50, 0.2 / 50)]
    lines = [
        {"loss": 1.0, "interval_s": covered, "tokens_per_s": speed, "mfu": mfu, "step_time_shares": {"forward": 1.0}}
        for covered, speed, mfu in rows
    ]
    for earlier, tokens, seconds in ((0, 1628, 60), (4, 1036, 56)):
        found = collect_evidence([], lines[:earlier], lines[earlier:], {})
        assert found.mfu == pytest.approx(0.2 * tokens / 148 / seconds)
