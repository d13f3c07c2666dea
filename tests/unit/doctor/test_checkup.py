"""A check that breaks is a line, not the end."""

from __future__ import annotations

from expert_cli.doctor.checkup import guarded
from expert_cli.doctor.lines import Line


def test_a_check_that_breaks_is_a_line() -> None:
    def broken() -> Line:
        raise KeyError("x")

    (line,) = guarded("disks", broken)
    assert (line.name, line.state) == ("disks", "warn")
    assert "KeyError" in line.found


def test_one_line_or_several() -> None:
    line = Line("a", "ok", "b")
    assert guarded("a", lambda: line) == guarded("a", lambda: [line]) == [line]
