"""A run that trains rows of an earlier training again says how many, and trains on from an adapter or not."""

from __future__ import annotations

import json
from pathlib import Path

from expert_cli.runs.paths import RunPaths
from tests.train.projects import ROWS, project, train, write_rows


def test_the_run_says_how_many_rows_were_trained_again(tmp_path: Path) -> None:
    manifest = project(tmp_path / "new", rows=ROWS[:24], max_steps=1)
    first = train(manifest, output=tmp_path / "first").output
    write_rows(tmp_path / "new" / "old.jsonl", ROWS[24:])
    project(tmp_path / "new", rows=ROWS[:24], max_steps=1, dataset={"replay": {"path": "old.jsonl", "share": 0.25}})
    run = train(manifest, output=tmp_path / "on", init_adapter=first).output
    data = json.loads(RunPaths(run).run_json.read_text(encoding="utf-8"))["data"]
    assert (data["train"]["rows"], data["train"]["replayed"]) == (32, 8)
    assert "8 rows are trained again (replay)" in RunPaths(run).report_html.read_text(encoding="utf-8")
    before = json.loads(RunPaths(first).run_json.read_text(encoding="utf-8"))["data"]
    assert (before["train"]["rows"], "replayed" in before["train"]) == (24, False)
