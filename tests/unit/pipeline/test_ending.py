"""What ends a run comes out, whatever becomes of writing it down."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from expert_cli.errors import InputError, RunLocked
from expert_cli.pipeline.run_directory import recorded
from expert_cli.runs.log import RunLog
from expert_cli.runs.status import RunStatus


@pytest.mark.parametrize("then", [RunLocked("another machine has it", ""), OSError(28, "No space left on device")])
def test_what_ended_a_run_is_not_hidden_by_what_goes_wrong_behind_it(tmp_path: Path, then: Exception) -> None:
    begun = False

    def put() -> None:
        if begun:
            raise then

    status = RunStatus(tmp_path / "status.json", written=put)
    status.begin()
    begun = True
    with pytest.raises(InputError, match="what ended it"), recorded(status, RunLog()):
        raise InputError("what ended it")
    assert json.loads((tmp_path / "status.json").read_text(encoding="utf-8"))["reason"] == "what ended it"
