"""What a probe's process answers, and with what it is started."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from expert_cli.config.resolve import Overrides, resolve
from expert_cli.errors import EnvironmentProblem, ExpertError, InputError, TrainingFailed
from expert_cli.estimate.probe import answered, command, speed
from expert_cli.manifest.reader import load_manifest
from tests import manifests
from tests.machines import CPU

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


@pytest.mark.parametrize("chosen_by", ["execution_accuracy", "eval_loss"])
def test_a_run_that_chooses_its_best_step_can_be_probed(tmp_path: Path, chosen_by: str) -> None:
    best = {"load_best_model_at_end": True, "early_stopping_patience": 2, "metric_for_best_model": chosen_by}
    steps = {"eval_strategy": "steps", "save_strategy": "steps"} if chosen_by == "eval_loss" else {}
    written = {**manifests.small(**best, **steps), "evaluation": {"every_steps": 5}}
    path, machine = manifests.write(tmp_path, written), CPU
    words = command(resolve(load_manifest(path), machine), Overrides(), tmp_path / "out")
    settings = tuple(value for word, value in pairwise(words) if word == "--set")
    watch = resolve(load_manifest(path, settings), machine).watch
    assert (watch.execution_eval_steps, watch.load_best_model_at_end) == (0, False)
