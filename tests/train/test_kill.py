"""Real runs, killed at chosen instants, end as if nothing had happened, by fewer processes too."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from benchmarks import kill_test
from benchmarks.kill_test import WORKERS, Case, Moment
from expert_cli.utils.subprocesses import end_family
from tests import tiny
from tests.forked_cli import Forked
from tests.process_groups import ProcessGroup, free_port
from tests.train.projects import logged
from tests.train.test_stop import wait_for_steps

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="forks, stops and kills processes")

STEPS = 8
MOMENTS = (
    Moment("between two checkpoints", lambda now: 0 < max(now.saved, default=0) < now.logged and not now.writing),
    Moment("a later one half written", lambda now: now.writing and bool(now.saved)),
    Moment("after the last checkpoint", lambda now: STEPS in now.saved and not now.complete),
)
CASE = Case(
    {**WORKERS, "gradient_accumulation_steps": 2, "dropout": 0.1, "optim": "adamw_8bit", "rank": 64, "bf16": True}
    | {"batch_size": 2, "max_steps": STEPS, "save_steps": 2},
    "int4",
)


def test_a_killed_run_ends_like_an_unbroken_one(tmp_path: Path) -> None:
    manifest = kill_test.write_project(tmp_path / "project", tiny.tiny_model_folder(tmp_path / "model"), CASE)
    kill_test.finish(Forked(kill_test.command(manifest, tmp_path / "unbroken"), tmp_path))
    broken = kill_test.command(manifest, tmp_path / "broken")
    for moment in MOMENTS:
        left = kill_test.kill(Forked(broken, tmp_path), tmp_path / "broken", moment)
        assert left is not None, f"ended before: {moment.name}"
        assert moment.reached(left)
    kill_test.finish(Forked(broken, tmp_path))
    assert kill_test.traces(tmp_path / "broken") == kill_test.traces(tmp_path / "unbroken")
    assert len(kill_test.traces(tmp_path / "broken")["losses"]) == STEPS


def test_killed_in_two_processes_and_ended_by_one(tmp_path: Path) -> None:
    """Steps of two packs; the second process is killed while a checkpoint is half written."""
    case = Case({"batch_size": 1, "gradient_accumulation_steps": 1, "save_steps": 2, "max_steps": None, "epochs": 2})
    manifest = kill_test.write_project(tmp_path / "project", tiny.tiny_model_folder(tmp_path / "model"), case)
    words = kill_test.command(manifest, tmp_path / "broken")

    def start(words: list[str], job: Mapping[str, str]) -> Forked:
        return Forked(words, tmp_path, env={**os.environ, "CUDA_VISIBLE_DEVICES": "", **job})

    kill_test.finish(ProcessGroup(kill_test.command(manifest, tmp_path / "unbroken"), 2, start))
    moment = Moment("one half written", lambda now: now.writing and now.logged >= 8)
    assert kill_test.kill(ProcessGroup(words, 2, start, 1), tmp_path / "broken", moment)
    kill_test.finish(ProcessGroup(words, 1, start))
    mine, theirs = (kill_test.traces(tmp_path / name) for name in ("broken", "unbroken"))
    counts = ("step", "tokens_real", "tokens_trained")
    rows_of = [[[line[name] for name in counts] for line in one["metrics"]] for one in (mine, theirs)]
    assert rows_of[0] == rows_of[1]
    assert mine["losses"] == pytest.approx(theirs["losses"], rel=1e-4)


AGENT = [sys.executable, "-m", "torch.distributed.run", "--nnodes", "1:2", "--nproc-per-node", "1"]
LAST_CALL_S = 12
"""So long an agent waits for more nodes once there are enough; starting one takes less."""


def listening(port: int) -> bool:
    with socket.socket() as tried:
        return tried.connect_ex(("127.0.0.1", port)) == 0


@pytest.mark.slow
def test_where_a_node_is_gone_torchrun_goes_on_with_the_others(tmp_path: Path) -> None:
    """Two agents, as on two nodes: one is killed with all that it started, the other starts its process anew, which goes on."""
    case = Case({"batch_size": 1, "max_steps": 120, "save_steps": 10})
    manifest = kill_test.write_project(tmp_path / "project", tiny.tiny_model_folder(tmp_path / "model"), case)
    run = tmp_path / "run"
    port = free_port()
    meeting = ["--max-restarts", "3", "--rdzv-backend", "c10d", "--rdzv-endpoint", f"127.0.0.1:{port}"]
    meeting += ["--rdzv-conf", f"last_call_timeout={LAST_CALL_S}"]
    words = [*AGENT, *meeting, "-m", "expert_cli", *kill_test.command(manifest, run)]
    env = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
    with (tmp_path / "told").open("w") as told:
        stays = subprocess.Popen(words, env=env, stdout=told, stderr=told, text=True)
        while stays.poll() is None and not listening(port):
            time.sleep(0.1)
        goes = subprocess.Popen(words, env=env, stdout=told, stderr=told, text=True)
        try:
            wait_for_steps(stays, run, 12)
            end_family(goes)
            assert stays.wait(timeout=300) == 0, (tmp_path / "told").read_text(encoding="utf-8")[-3000:]
        finally:
            end_family(goes)
            end_family(stays)
    assert [*logged(run, "step")] == [*range(1, 121)]
    assert (run / "COMPLETE").is_file()
