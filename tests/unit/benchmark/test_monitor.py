"""Watching real processes that write metrics as a training does; only the GPU is a double."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest

from expert_cli.benchmark import monitor, sampler
from expert_cli.benchmark.evidence import collect_evidence
from expert_cli.benchmark.sampler import MonitorSample, Sampler, main_gpu
from expert_cli.errors import EnvironmentProblem, InputError
from expert_cli.hardware.nvml import GpuSample
from expert_cli.runs.lock import run_lock
from expert_cli.runs.run_paths import RunPaths
from expert_cli.utils.paths import cache_folder

WRITER = """
import json, sys, time
path, lines, pause = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
shares = {"data": 0.7, "forward": 0.1, "backward": 0.2}
with open(path, "a", encoding="utf-8") as file:
    for step in range(1, lines + 1):
        until = time.monotonic() + pause
        while time.monotonic() < until: pass
        row = {"step": step, "time": 1e9 - step, "seconds": pause * step, "loss": 2.0, "tokens_per_s": 1000.0}
        row["step_time_shares"] = shares
        file.write(json.dumps(row) + "\\n"); file.flush()
"""


CORES = 4_096
"""No machine has so many: what else runs beside a test is then no evidence."""


def gpu_sample(index: int = 0, utilization: float | None = 50.0, problem: str = "") -> GpuSample:
    return GpuSample(index, "Test", utilization, 1000.0, 8000.0, 60.0, 100.0, 200.0, 1500.0, ("power cap",), problem)


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    children = []

    def start(lines: int, pause: float) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-c", WRITER, str(tmp_path / "metrics.jsonl"), str(lines), str(pause)]
        children.append(subprocess.Popen(command))
        return children[-1]

    yield start
    for child in children:
        child.kill()
        child.wait()


def run_folder(folder: Path, *lines: dict[str, Any], device: str = "cpu") -> RunPaths:
    paths = RunPaths(folder)
    config = {"compute": {"device": device}, "loader": {"num_workers": 0}}
    paths.run_json.write_text(json.dumps({"config": config, "machine": {"cores": CORES}}), encoding="utf-8")
    paths.metrics.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return paths


def watch(
    target: monitor.MonitoredRun, duration: float = 0.4, gpus: Sequence[GpuSample] = (), **more: Any
) -> monitor.MonitorSession:
    show = more.pop("show", lambda _: None)
    return monitor.monitor_run(target, duration, 0.1, show, more.pop("ask", lambda: gpus))


def test_a_run_that_ends_while_it_is_watched(tmp_path: Path, writer: Callable[..., Any]) -> None:
    paths = run_folder(tmp_path)
    child = writer(12, 0.05)
    seen = watch(monitor.MonitoredRun(paths, child.pid), duration=30.0)
    document = seen.as_json()
    assert document["ended"]
    assert document["seconds"] < 20
    assert len(seen.earlier) + len(seen.lines) == 12
    assert document["tokens_per_s"] == pytest.approx({"mean": 1000.0, "min": 1000.0, "max": 1000.0}, rel=1e-12)
    assert document["step_time_shares"]["data"] == pytest.approx(0.7)
    assert document["verdict"] == "waiting for data"
    assert document["advice"][0]["changes"] == {"training.config.dataloader_num_workers": "2"}
    assert document["process"]["cpu_percent"]["max"] > 5
    assert document["process"]["rss_mb"]["max"] > 1
    assert any("the run ended after" in note for note in document["notes"])


def test_a_run_that_is_over_is_judged_by_its_metrics(tmp_path: Path) -> None:
    logged = {"utilization": 35.0, "memory_mb": 900.0, "power_w": None}
    rows = [
        {"step": n, "loss": 1.0, "seconds": n, "gpu": logged, "step_time_shares": {"data": 0.6, "other": 0.4}}
        for n in (1, 2)
    ]
    paths = run_folder(tmp_path, *rows, device="cuda")
    paths.complete.touch()
    document = watch(monitor.find_run(tmp_path), duration=60.0).as_json()
    assert (document["samples"], document["gpu"], document["machine"]) == (0, None, None)
    assert (document["verdict"], document["evidence"][1]) == ("waiting for data", "the GPU idles 65% of the time")
    assert document["notes"] == ["the run is over: judged by what it logged"]


def test_a_gpu_after_the_runs_end_is_no_evidence(tmp_path: Path, writer: Callable[..., Any]) -> None:
    rows = [{"step": n, "loss": 1.0, "seconds": n, "step_time_shares": {"forward": 1.0}} for n in (1, 2)]
    paths = run_folder(tmp_path, *rows, device="cuda")
    child = writer(0, 0.0)
    child.wait()
    document = watch(monitor.MonitoredRun(paths, child.pid), gpus=[gpu_sample(utilization=0.0)]).as_json()
    assert (document["samples"], document["ended"], document["verdict"]) == (1, True, "compute-bound")


@pytest.mark.parametrize("content", [b"", b"\x00\xff{"])
def test_metrics_that_say_nothing(tmp_path: Path, content: bytes) -> None:
    paths = run_folder(tmp_path)
    paths.metrics.write_bytes(content)
    document = watch(monitor.MonitoredRun(paths, None), duration=0.2).as_json()
    assert document["verdict"] == "not enough data"
    assert document["tokens_per_s"] is document["step_time_shares"] is None
    assert document["machine"]["ram_used_mb"]["mean"] > 0


def test_earlier_steps_are_judged_where_none_is_logged_now(tmp_path: Path) -> None:
    rows = [
        {"step": n, "loss": 1.0, "seconds": n, "step_time_shares": {"eval": 0.5, "forward": 0.5}} for n in range(1, 40)
    ]
    document = watch(monitor.MonitoredRun(run_folder(tmp_path, *rows), None), duration=0.2).as_json()
    assert document["verdict"] == "evaluation"
    assert "no step was logged while it was watched; 39 steps were logged before" in document["notes"]


def test_a_gpu_that_is_lost_is_told(tmp_path: Path) -> None:
    seen = watch(monitor.MonitoredRun(run_folder(tmp_path), None), 0.2, gpus=[gpu_sample(1, problem="GPU is lost")])
    assert "GPU 1: GPU is lost" in seen.as_json()["notes"]


def test_of_several_gpus_the_busiest_is_looked_at(tmp_path: Path) -> None:
    samples = [MonitorSample(1.0, (gpu_sample(0, 1.0), gpu_sample(1, 90.0)))]
    assert [main_gpu(samples), main_gpu(samples, 0), main_gpu(samples, 7), main_gpu([])] == [1, 0, 1, None]
    document = monitor.MonitorSession(monitor.MonitoredRun(run_folder(tmp_path), None), samples=samples).as_json()
    assert document["gpu"]["index"] == 1
    assert document["gpu"]["utilization"] == {"mean": 90.0, "min": 90.0, "max": 90.0}


def test_ctrl_c_keeps_what_was_seen(tmp_path: Path) -> None:
    def interrupt(seen: monitor.MonitorSession) -> None:
        if len(seen.samples) == 2:
            raise KeyboardInterrupt

    seen = watch(monitor.MonitoredRun(run_folder(tmp_path), None), duration=30.0, show=interrupt)
    assert (seen.interrupted, len(seen.samples)) == (True, 2)


LAUNCHER = """
import subprocess, sys
sleeper = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
print(sleeper.pid, flush=True)
subprocess.run([sys.executable, "-c", "while True: pass"])
"""


@pytest.mark.parametrize(
    ("processes", "counted"), [pytest.param("2", 2, id="of one run"), pytest.param("1", 1, id="of another run")]
)
def test_cpu_of_a_runs_other_processes_is_counted(
    monkeypatch: pytest.MonkeyPatch, processes: str, counted: int
) -> None:
    monkeypatch.setenv("WORLD_SIZE", processes)
    parent = subprocess.Popen([sys.executable, "-c", LAUNCHER], stdout=subprocess.PIPE, start_new_session=True)
    assert parent.stdout
    try:
        first = int(parent.stdout.readline())
        while len(psutil.Process(parent.pid).children()) < 2:
            time.sleep(0.05)
        assert len(sampler._family(first)) == counted
        whole = Sampler(parent.pid, lambda: ())
        time.sleep(0.5)
        assert (
            whole.take().cpu_percent or 0
        ) > 1  # parent and sleeper take none; a busy machine leaves the third little
    finally:
        for child in [*psutil.Process(parent.pid).children(recursive=True), psutil.Process(parent.pid)]:
            child.kill()
        parent.communicate()


def test_the_busiest_disk_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = iter([{"a": 10.0, "b": 50.0}, {"a": 1e9, "b": 50.0, "c": 99.0}, {}])
    monkeypatch.setattr(sampler, "_seconds_busy", lambda: next(looks))
    one = Sampler(None, lambda: ())
    assert [one.take().disk_busy_percent, one.take().disk_busy_percent] == [100.0, None]


def test_finding_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("LOCALAPPDATA", str(tmp_path / "cache"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    with pytest.raises(EnvironmentProblem, match="no training runs"):
        monitor.find_run(None)
    with pytest.raises(InputError, match="no such folder"):
        monitor.find_run(tmp_path / "none")
    folder = tmp_path / "run"
    folder.mkdir()
    run_folder(folder)
    assert (monitor.find_run(folder).pid, monitor.find_run(folder).is_over) == (None, True)
    with run_lock(folder):
        found = [monitor.find_run(None), monitor.find_run(folder)]
        (entry,) = (cache_folder() / "running").iterdir()
        entry.unlink()
        unknown = monitor.find_run(folder)
    assert all(target.pid is not None and target.paths.output == folder.resolve() for target in found)
    assert (unknown.pid, unknown.is_over) == (None, False)


def test_the_mean_speed_that_is_told_is_tokens_over_time(tmp_path: Path) -> None:
    rows = [
        {"step": n, "loss": 1.0, "seconds": at, "tokens_per_s": speed}
        for n, at, speed in ((1, 10.0, 150.0), (2, 40.0, 50.0))
    ]
    seen = watch(monitor.MonitoredRun(run_folder(tmp_path), None), duration=0.2)
    seen.lines = rows
    assert seen.as_json()["tokens_per_s"] == {"mean": 75.0, "min": 50.0, "max": 150.0}


def test_what_a_terminal_shows(tmp_path: Path) -> None:
    paths = run_folder(tmp_path, {"step": 3, "loss": 1.5, "tokens_per_s": 900.0, "seconds": 3.0})
    seen = watch(monitor.MonitoredRun(paths, None), duration=0.2, gpus=[gpu_sample()])
    assert monitor.progress_line(seen).endswith(" s  step 3  loss 1.500  900 tokens/s")
    assert monitor.figures(seen)[:2] == [["GPU", "50 %"], ["GPU memory", "1,000 MB"]]
    told = monitor.summary(seen.as_json())
    assert "verdict: not enough data" in told
    assert "GPU power" in told


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


def test_utilization_of_flops_is_that_of_all_the_time() -> None:
    """10 steps of 1 s and 148 tokens, then one that holds an evaluation: 1,628 tokens in 60 s."""
    rows = [(second, 148.0, 0.2) for second in range(1, 11)] + [(60, 148 / 50, 0.2 / 50)]
    lines = [
        {"loss": 1.0, "seconds": at, "tokens_per_s": speed, "mfu": mfu, "step_time_shares": {"forward": 1.0}}
        for at, speed, mfu in rows
    ]
    for earlier, tokens, seconds in ((0, 1628, 60), (4, 1036, 56)):
        found = collect_evidence([], lines[:earlier], lines[earlier:], {})
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
    samples = [MonitorSample(1.0, (), True, own, 1.0, busy) for busy in (70, 90)]
    found = collect_evidence(samples, [], [], {"machine": {"cores": cores}, "torch_threads": 3})
    assert found.others == (None if others is None else pytest.approx(others))
    assert found.threads == 3
