"""A run goes on with fewer or more processes: the same rows in every step, the same losses but for their rounding."""

from __future__ import annotations

import json
import os
import random
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from benchmarks import elastic_test, kill_test
from benchmarks.elastic_test import CASE, CLOSE
from tests import tiny
from tests.forked_cli import Forked

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="forks and kills processes")


def test_killed_in_four_two_and_one_processes_and_ended_by_three(tmp_path: Path) -> None:
    def start(words: list[str], job: Mapping[str, str]) -> Forked:
        return Forked(words, tmp_path, env={**os.environ, "CUDA_VISIBLE_DEVICES": "", **job})

    manifest = kill_test.write_project(tmp_path / "project", tiny.tiny_model_folder(tmp_path / "model"), CASE)
    elastic_test.unbroken(manifest, tmp_path / "unbroken", start)
    steps = len(kill_test.traces(tmp_path / "unbroken")["losses"])
    told: list[str] = []
    assert elastic_test.trial(manifest, tmp_path / "broken", steps, random.Random(0), start, told.append) == 3, told
    other, largest = elastic_test.differences(tmp_path / "broken", tmp_path / "unbroken")
    assert (other, largest < CLOSE) == ([], True), told
    run: dict[str, Any] = json.loads((tmp_path / "broken" / "run.json").read_text(encoding="utf-8"))
    assert run["identity"]["processes"] == 4
    log = (tmp_path / "broken" / "log.txt").read_text(encoding="utf-8")
    assert "processes 4 -> 3: a step's 4 packs, in micro-batches of 1, are accumulated over 2 instead of 1" in log
    rows = {row["key"]: row for row in run["effects"]}
    adjusted = rows["training.config.gradient_accumulation_steps"]
    assert (adjusted["status"], adjusted["reason"]) == ("adjusted", "other processes went on with the run than began it")
