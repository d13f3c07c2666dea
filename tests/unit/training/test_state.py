"""How far a run has come, as checkpoints hold it."""

from __future__ import annotations

import json
from dataclasses import asdict

from expert_cli.training.state import TrainingState

FULL = TrainingState(7, [2.5, 0.1], 100, 40, 12, [(4, 0.75)], 0.75, 4, 3, 9.5, 2, {"sums": 1.5})


def test_checkpoints_have_these_keys() -> None:
    document = FULL.as_json()
    assert list(document) == [
        "step", "losses", "real", "trained", "padded", "evaluations", "best", "best_step", "stale", "seconds",
        "skipped", "set_losses",
    ]  # fmt: skip
    assert list(document.values()) == list(asdict(FULL).values())


def test_there_and_back() -> None:
    assert TrainingState.from_json(json.loads(json.dumps(FULL.as_json()))) == FULL
