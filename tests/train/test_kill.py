"""Real runs, killed at chosen instants, end as if nothing had happened. benchmarks/kill_test.py draws the instants instead."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from benchmarks import kill_test
from benchmarks.kill_test import WORKERS, Case, Moment
from tests import tiny
from tests.forked_cli import Forked

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="forks, stops and kills processes")

STEPS = 8
BETWEEN_TWO = Moment(
    "between two checkpoints", lambda now: 0 < max(now.saved, default=0) < now.logged and not now.writing
)
A_LATER_HALF_WRITTEN = Moment("a later one half written", lambda now: now.writing and bool(now.saved))
AFTER_THE_LAST = Moment("after the last checkpoint", lambda now: STEPS in now.saved and not now.complete)
CASE = Case(
    {**WORKERS, "gradient_accumulation_steps": 2, "dropout": 0.1, "optim": "adamw_8bit", "rank": 64, "bf16": True}
    | {"batch_size": 2, "max_steps": STEPS, "save_steps": 2},
    "int4",
)
MOMENTS = (BETWEEN_TWO, A_LATER_HALF_WRITTEN, AFTER_THE_LAST)


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
