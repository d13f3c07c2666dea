"""The speed of earlier runs: what is damaged tells nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from expert_cli.config.plan import make_plan
from expert_cli.config.resolve import Overrides
from expert_cli.estimate.throughput import earlier_runs
from expert_cli.hardware.machine import inspect
from tests import manifests

DAMAGED: dict[str, tuple[Any, Any]] = {
    "lists": ([], []),
    "no speed": ({"identity": {"base model": "b"}}, {"tokens_per_s": None}),
    "speed in words": ({"identity": {"base model": "b"}}, {"tokens_per_s": "fast"}),
    "other forms": ({"identity": [], "config": [1], "machine": "x"}, {"tokens_per_s": 10, "step_time_shares": 3}),
    "nothing of a model": ({"identity": {"base model": "b"}, "config": {"model": 3}}, {"tokens_per_s": 10}),
}


@pytest.mark.parametrize(("record", "document"), DAMAGED.values(), ids=DAMAGED.keys())
def test_a_damaged_run_tells_no_speed(tmp_path: Path, record: Any, document: Any) -> None:
    machine = inspect()
    run = make_plan(manifests.write(tmp_path, manifests.small()), machine, Overrides()).run
    (tmp_path / "COMPLETE").touch()
    (tmp_path / "run.json").write_text(json.dumps(record), encoding="utf-8")
    (tmp_path / "report.json").write_text(json.dumps(document), encoding="utf-8")
    assert earlier_runs([tmp_path], run, "b", machine) is None
    (tmp_path / "report.json").write_text("[" * 100_000, encoding="utf-8")
    assert earlier_runs([tmp_path], run, "b", machine) is None
