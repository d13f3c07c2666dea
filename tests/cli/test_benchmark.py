"""`benchmark` as a user calls it: what it prints, writes and exits with."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from expert_cli.runs.lock import run_lock
from expert_cli.runs.metrics import read_json
from tests.schemas import valid

ROOT = Path(__file__).parents[2]
SHARES = {"data": 0.6, "forward": 0.2, "backward": 0.2}


@pytest.fixture
def run(tmp_path: Path) -> Path:
    folder = tmp_path / "run"
    folder.mkdir()
    config = {"compute": {"device": "cpu"}, "loader": {"num_workers": 0}}
    (folder / "run.json").write_text(json.dumps({"config": config, "machine": {"cores": 16}}), encoding="utf-8")
    rows = [
        {"step": n, "loss": 2.0, "seconds": n, "tokens_per_s": 10.0, "step_time_shares": SHARES} for n in range(1, 9)
    ]
    text = "".join(json.dumps(row) + "\n" for row in rows)
    (folder / "metrics.jsonl").write_text(text + '{"step": 9, "lo', encoding="utf-8")
    return folder


def test_a_run_is_watched(cli: Callable[..., Any], tmp_path: Path, run: Path) -> None:
    asked = ["--duration", "0.4", "--interval", "0.2", "--json", "--output", "seen.json"]
    with run_lock(run):
        done = cli("benchmark", "--run", run, *asked)
    assert done.code == 0
    document = json.loads(done.out)
    valid(document, "benchmark")
    assert document["samples"] in (1, 2)
    assert document["verdict"] == "waiting for data"
    assert read_json(tmp_path / "seen.json") == document
    assert "step 8  loss 2.000  10 tokens/s  run's CPU" in done.err


def test_a_run_that_is_over_is_judged_at_once(cli: Callable[..., Any], run: Path) -> None:
    done = cli("benchmark", "--run", run, "--quiet")
    assert (done.code, done.err) == (0, "")
    assert "verdict: waiting for data\n  60% of the time is spent waiting for data" in done.out
    assert "--set training.config.dataloader_num_workers=2  at most 2.50x: 2 instead of 0 workers" in done.out
    assert "note: the run is over: judged by what it logged" in done.out
    valid(json.loads(cli("benchmark", "--run", run, "--json").out), "benchmark")


@pytest.mark.parametrize(
    ("args", "code", "message"),
    [
        pytest.param([], 3, "error: no training run is active on this machine", id="nothing runs"),
        pytest.param(["--run", "none"], 2, "error: none: no such folder", id="no such folder"),
        pytest.param(["-m", "m.json"], 2, "error: --manifest needs one: --against", id="manifest alone"),
        pytest.param(["--gate", "2"], 2, "error: --gate needs --against", id="a gate for nothing"),
        pytest.param(["--run", "x", "--dataset", "y"], 2, "error: --dataset needs --manifest", id="rows for nothing"),
        pytest.param(
            ["-m", "m.json", "--against", "x", "--sweep", "rank=4,8"],
            2,
            "error: --manifest needs one: --against",
            id="two at once",
        ),
        pytest.param(["-m", "m.json", "--against", "x"], 2, "error: m.json: No such file", id="no such manifest"),
    ],
)
def test_what_cannot_be_watched_or_measured(
    cli: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, args: list[str], code: int, message: str
) -> None:
    for name in ("HOME", "XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.setenv(name, str(tmp_path))
    done = cli("benchmark", *args)
    assert done.code == code
    assert done.out == ""
    assert done.err.startswith(message)


@pytest.mark.skipif(os.name != "posix", reason="a process is interrupted by a signal")
def test_ctrl_c_shows_what_it_has(tmp_path: Path, run: Path) -> None:
    command = [sys.executable, "-m", "expert_cli", "benchmark", "--run", str(run), "--interval", "0.2", "--json"]
    env = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "PYTHONIOENCODING": "utf-8"}
    with run_lock(run):
        child = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8")
        assert child.stderr is not None
        while "run's CPU" not in child.stderr.readline():
            pass
        child.send_signal(signal.SIGINT)
        out, err = child.communicate(timeout=30)
    assert child.returncode == 130
    valid(json.loads(out), "benchmark")
    assert json.loads(out)["samples"] >= 1
    assert "Traceback" not in err
