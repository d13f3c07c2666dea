"""What Python answers try: none is right that is not, nothing is reached, and each gets its verdict."""

from __future__ import annotations

from pathlib import Path

import pytest

from expert_cli.evaluation.verifiers.sandbox.isolation import standing_walls
from tests.processes import none_left
from tests.unit.evaluation.hostile import runner

CASE = {"tests": "assert f(2) == 4\nassert f(3) == 6"}

pytestmark = pytest.mark.skipif(not {"files", "syscalls"} <= {*standing_walls()}, reason="this system lacks walls")


@runner.few_and_rest
def test_no_answer_escapes_and_no_verdict_is_forged(tmp_path: Path, few: bool) -> None:
    with none_left(), runner.untouched(tmp_path) as places:
        assert runner.misjudged("python", CASE, few=few, threads=4, **places) == []
