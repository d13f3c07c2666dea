"""What a probe's process answers, and with what it is started."""

from __future__ import annotations

from pathlib import Path

import pytest

from expert_cli.errors import EnvironmentProblem, ExpertError, InputError, TrainingFailed
from expert_cli.forecast.probe import answered, speed

FAILED = '{"schema_version": 1, "command": "train", "error": {"exit_code": %d, "message": "m", "hint": "h"}}'


@pytest.mark.parametrize(
    ("code", "kind"), [(2, InputError), (3, EnvironmentProblem), (4, TrainingFailed), (1, ExpertError)]
)
def test_a_probe_ends_as_training_would(tmp_path: Path, code: int, kind: type[ExpertError]) -> None:
    with pytest.raises(kind, match="the probe failed: m") as raised:
        answered(FAILED % code, code, tmp_path / "log")
    assert (raised.value.exit_code, raised.value.hint) == (code, "h")


def test_a_probe_that_dies_is_named_with_its_last_words(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("first\nKilled\n", encoding="utf-8")
    with pytest.raises(EnvironmentProblem, match="exit code -9: Killed"):
        answered("", -9, log)


def test_the_first_step_does_not_count_and_the_spread_is_told() -> None:
    rate, spread = speed([(100, 9.0), (200, 10.0), (300, 12.0), (400, 13.0)])
    assert rate == 75.0
    assert spread == 50.0  # 50 to 100 tokens a second
