"""Every moment is in one phase."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from expert_cli.hardware.devices import DEVICES
from expert_cli.hardware.step_timer import PHASES, StepTimer


def test_every_moment_is_counted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 5.0
    for module in ("hardware.step_timer", "hardware.devices"):
        monkeypatch.setattr(f"expert_cli.{module}.time", SimpleNamespace(perf_counter=lambda: now))
    timer = StepTimer(DEVICES["cpu"])
    timer.lap()
    with timer.phase("forward"):
        now += 0.03
    now += 0.02
    timer.begin("data")
    now += 0.01
    timer.end()
    wall, shares = timer.lap()
    assert tuple(shares) == PHASES
    assert wall == pytest.approx(0.06)
    assert {name: share * wall for name, share in shares.items() if share} == pytest.approx(
        {"forward": 0.03, "data": 0.01, "other": 0.02}
    )
    now += 0.06
    assert timer.lap()[1] == pytest.approx(dict.fromkeys(PHASES, 0.0) | {"other": 1.0})
    assert timer.shares()["other"] == pytest.approx(8 / 12)
