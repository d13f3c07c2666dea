"""What TypeScript answers try: none is right that is not, nothing is reached, and each gets its verdict."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.processes import TYPESCRIPT_SERVERS, none_left
from tests.unit.evaluation.hostile import runner

CASE = {"tests": 'import { deepStrictEqual } from "node:assert";\ndeepStrictEqual(f(2), 4);\ndeepStrictEqual(f(3), 6);'}


@pytest.mark.usefixtures("typescript_package")
@runner.few_and_rest
def test_no_answer_escapes_and_no_verdict_is_forged(tmp_path: Path, few: bool) -> None:
    with none_left(*TYPESCRIPT_SERVERS), runner.untouched(tmp_path) as places:
        assert runner.misjudged("typescript", CASE, few=few, timeout_s=2, **places) == []
