"""`report` as a user calls it."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema_rs

SCHEMA = Path(__file__).parents[2] / "docs" / "schemas" / "report.schema.json"


def run(folder: Path) -> Path:
    folder.mkdir()
    (folder / "metrics.jsonl").write_text('{"step": 1, "loss": 2.0}\n', encoding="utf-8")
    return folder


def test_one_run_and_several(cli: Callable[..., Any], tmp_path: Path) -> None:
    a, b = run(tmp_path / "a"), run(tmp_path / "b")
    done = cli("report", a)
    assert (done.code, done.out) == (0, f"{a / 'report.html'}\n")
    assert (a / "report.html").read_text(encoding="utf-8").startswith("<!doctype html>")
    assert done.err == f"{a}: not finished\n"
    document = json.loads(cli("report", a, b, "--output", "two.html", "--json").out)
    jsonschema_rs.validator_for(json.loads(SCHEMA.read_text(encoding="utf-8"))).validate(document)
    assert document["endings"] == [{"state": "unknown", "words": "not finished", "go_on": ""}] * 2
    assert document["runs"] == [str(a.resolve()), str(b.resolve())]
    assert Path(document["report"]) == (tmp_path / "two.html").resolve()


def test_what_is_no_run(cli: Callable[..., Any]) -> None:
    done = cli("report", "none")
    assert (done.code, done.err.splitlines()[0]) == (2, "error: none: no such folder")


def test_a_killed_run_and_how_to_go_on(cli: Callable[..., Any], tmp_path: Path) -> None:
    folder = run(tmp_path / "a")
    told = {"state": "running", "pid": os.getpid(), "birth": 0, "host": platform.node(), "step": 20, "steps": 40}
    told |= {"updated": "2026-11-22T08:00:00+00:00", "command": "expert-cli train -m M"}
    (folder / "status.json").write_text(json.dumps(told), encoding="utf-8")
    assert cli("report", folder).err.splitlines() == [
        f"{folder}: killed: process {os.getpid()} is gone without a word; "
        "last heard of after step 20 of 40, at 2026-11-22 08:00 UTC",
        "  go on: expert-cli train -m M --resume auto",
    ]
