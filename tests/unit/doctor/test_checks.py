"""The order of the checks; a check that breaks is a line, not the end."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from expert_cli.doctor.check import Check, CheckResult, attempt
from expert_cli.doctor.facts import look
from expert_cli.hardware.machine import inspect
from tests.fake_nvml import FakeNvml


def test_a_check_that_breaks_is_a_line() -> None:
    def broken() -> CheckResult:
        raise KeyError("x")

    (line,) = attempt(Check("disks", broken))
    assert (line.name, line.state) == ("disks", "warn")
    assert line.found == "this check broke: KeyError: 'x'"


def test_one_line_or_several() -> None:
    line = CheckResult("a", "ok", "b")
    assert attempt(Check("a", lambda: line)) == attempt(Check("a", lambda: [line])) == [line]


def test_a_gpu_that_torch_cannot_use_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml())
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if inspect().torch_cuda:
        pytest.skip("this torch can use a GPU")
    first, *others = [line for check in look(tmp_path)[:6] for line in attempt(check)]
    assert (first.name, first.state) == ("torch build", "fail")
    assert first.found.startswith("NVIDIA H200 is here")
    assert [line.name for line in others] == ["Python", "system", "driver", "GPU 0", "GPU 0 memory"]
