"""Rounds that are killed in their phases end as others do, and those of two processes as those of one."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from benchmarks.kill_test import command, finish
from expert_cli.pipeline.rft.work import RoundPaths
from expert_cli.runs.metrics import read_json
from expert_cli.runs.paths import RunPaths
from tests.forked_cli import Forked
from tests.process_groups import variables_of
from tests.train.projects import train
from tests.train.rft_project import sharp_model, unsure_expert

pytestmark = [pytest.mark.slow, pytest.mark.skipif(sys.platform != "linux", reason="forks and kills processes")]

TWO_ROUNDS = {"rounds": 2, "stop_without_gain": False, "gold": "failed", "replay": 0.5, "from": "last"}
ROUND = {number: RoundPaths(Path(), number) for number in (0, 1, 2)}
PHASES: dict[str, Callable[[Path], bool]] = {
    "between two blocks": lambda out: (out / ROUND[1].block(1)).exists(),
    "in the training of a round": lambda out: (out / ROUND[1].run / "metrics.jsonl").exists(),
    "in the second round": lambda out: (out / ROUND[2].block(1)).exists(),
    "while the best adapter is copied": lambda out: (out / ".adapter.tmp").exists() or (out / "adapter").exists(),
}


def kill_when(process: Forked, reached: Callable[[], bool]) -> None:
    while process.poll() is None and not reached():
        time.sleep(0.001)
    assert process.poll() is None, "ended before"
    os.kill(process.pid, signal.SIGKILL)
    while process.poll() is None:
        time.sleep(0.001)


def left(output: Path) -> dict[str, Any]:
    """What must be equal: adapters by their bytes, rows, every verdict; times alone may differ."""
    report = read_json(RunPaths(output).report_json)
    told = report["rft"]
    for one in told["rounds"]:
        one["training"].pop("seconds")
        one.pop("sampling_seconds")
    rows = [(output / ROUND[number].rows).read_text(encoding="utf-8") for number in (1, 2)]
    return {"rft": told, "adapter": report["adapter_sha256"], "rows": rows, "loss": report["loss"]}


def test_a_run_killed_in_its_phases_ends_like_an_unbroken_one(tmp_path: Path) -> None:
    manifest = unsure_expert(tmp_path / "project", sharp_model(tmp_path / "model"), **TWO_ROUNDS)
    finish(Forked(command(manifest, tmp_path / "unbroken"), tmp_path))
    broken = tmp_path / "broken"
    for phase, reached in PHASES.items():
        kill_when(Forked(command(manifest, broken), tmp_path), lambda: reached(broken))  # noqa: B023  asked at once
        assert not RunPaths(broken).complete.exists(), phase
    finish(Forked(command(manifest, broken), tmp_path))
    assert left(broken) == left(tmp_path / "unbroken")
    assert len(read_json(RunPaths(broken).run_json)["resumes"]) == len(PHASES)


def test_two_processes_draw_what_one_does_and_end_together_where_they_are_asked_to(tmp_path: Path) -> None:
    manifest = unsure_expert(tmp_path / "project", sharp_model(tmp_path / "model"))
    first = train(manifest, output=tmp_path / "first", settings=("training.config.method=sft",)).output
    alone = train(manifest, output=tmp_path / "alone", init_adapter=first).output
    together = tmp_path / "together"
    words = [*command(manifest, together), "--from", str(first)]

    def job() -> list[Forked]:
        env = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
        return [Forked(words, tmp_path, env=env | one) for one in variables_of(2)]

    together.mkdir()
    (together / "STOP").touch()
    stopped = job()
    told = [one.communicate()[1] for one in stopped]
    assert [one.returncode for one in stopped] == [130, 130], told
    assert all("STOP in judging the first adapter" in text for text in told)
    done = job()
    told = [one.communicate()[1] for one in done]
    assert [one.returncode for one in done] == [0, 0], told
    for number in (1, 2):
        blocks = [RoundPaths(output, 1).block(number) for output in (alone, together)]
        assert len({block.read_bytes().partition(b"\n")[2] for block in blocks}) == 1
