"""What a check answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

State = Literal["ok", "warn", "fail"]


@dataclass(frozen=True)
class CheckResult:
    """One row of the table. warn: training works, but worse than it could; fail: it will not work. `fix` may be empty."""

    name: str
    state: State
    found: str
    fix: str = ""


def judged(name: str, found: str, *problems: tuple[object, State, str]) -> CheckResult:
    """Return a check's line: the first of `problems` (whether it is there, how bad it is, the remedy) decides, none is ok."""
    for is_there, state, fix in problems:
        if is_there:
            return CheckResult(name, state, found, fix)
    return CheckResult(name, "ok", found)


def worst(lines: Sequence[CheckResult]) -> State:
    """Return the state of all lines together."""
    states = {line.state for line in lines}
    return "fail" if "fail" in states else "warn" if "warn" in states else "ok"
