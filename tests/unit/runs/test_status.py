"""How a run stands, by its status.json and the process that it names."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from expert_cli.errors import InputError
from expert_cli.runs.lock import birth
from expert_cli.runs.status import RunStatus, standing

GO_ON = "expert-cli train -m M --resume auto"


def written(folder: Path, **changes: Any) -> Path:
    """Write what a run of this process writes after its checkpoint-3, with changes."""
    file = folder / "status.json"
    status = RunStatus(file, "expert-cli train -m M")
    status.begin()
    status.reached(3, 10)
    told = json.loads(file.read_text(encoding="utf-8")) | {"updated": "2026-11-22T08:00:00+00:00"} | changes
    file.write_text(json.dumps(told), encoding="utf-8")
    return file


STANDINGS: dict[str, tuple[dict[str, Any], str, str, str]] = {
    "alive": ({}, "running", f"running as process {os.getpid()}; after step 3 of 10, at 2026-11-22 08:00 UTC", ""),
    "before the first step": (
        {"steps": None},
        "running",
        f"running as process {os.getpid()}; before the first step, at 2026-11-22 08:00 UTC",
        "",
    ),
    "its id used again": (
        {"birth": birth(os.getpid()) - 1},
        "killed",
        f"killed: process {os.getpid()} is gone without a word; last heard of after step 3 of 10, at 2026-11-22 08:00 UTC",
        GO_ON,
    ),
    "another machine": (
        {"host": "far", "pid": 1},
        "elsewhere",
        "running on far, after step 3 of 10, at 2026-11-22 08:00 UTC; whether it still does cannot be told from here",
        GO_ON,
    ),
    "failed": ({"state": "failed", "reason": "R"}, "failed", "failed after step 3 of 10: R", GO_ON),
    "complete": ({"state": "complete", "reason": "R"}, "complete", "finished: R", ""),
    "torn": ({"state": ["x"], "step": "y", "command": None}, "unknown", "not finished", "of run.json --resume auto"),
}


@pytest.mark.parametrize(("changes", "state", "words", "go_on"), STANDINGS.values(), ids=STANDINGS.keys())
def test_standing(tmp_path: Path, changes: dict[str, Any], state: str, words: str, go_on: str) -> None:
    found = standing(written(tmp_path, **changes), is_complete=False, command="of run.json")
    assert (found.state, found.words, found.go_on) == (state, words, go_on)


def test_a_run_without_a_status(tmp_path: Path) -> None:
    none = tmp_path / "status.json"
    assert standing(none, is_complete=True).words == "finished"
    found = standing(none, is_complete=False, command="expert-cli train -m M")
    assert (found.state, found.words, found.go_on) == ("unknown", "not finished", GO_ON)
    assert standing(none, is_complete=False).go_on == ""


def test_nothing_is_written_before_the_folder_is_the_runs_own(tmp_path: Path) -> None:
    file = tmp_path / "status.json"
    status = RunStatus(file, "expert-cli train")
    status.broken_off(InputError("no"))
    assert not file.exists()
