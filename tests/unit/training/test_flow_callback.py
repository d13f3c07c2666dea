"""When a checkpoint is due."""

from __future__ import annotations

import pytest
from expert_cli.training.flow_callback import SaveSchedule


def test_saving_by_the_clock_costs_at_most_one_percent(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("expert_cli.training.flow_callback.time.monotonic", lambda: now[0])
    saves = SaveSchedule(10.0)
    now[0] = 9.9
    assert not saves.due()
    now[0] = 10.0
    assert saves.due()
    with saves.measured():
        now[0] += 0.5
    now[0] += 49.9
    assert not saves.due()
    now[0] += 0.1
    assert saves.due()
    assert not SaveSchedule(0.0).due()
