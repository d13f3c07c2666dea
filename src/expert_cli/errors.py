"""The errors that users can get, and the exit code of each.

    ExpertError                1  internal: a bug in expert-cli
    ├── InputError             2  usage, manifest, data
    │   └── ManifestError      2  every fault of one manifest, with line and column
    ├── EnvironmentProblem     3  model, package, GPU, network, disk or another process of the job is missing
    ├── TrainingFailed         4  a loss or gradient is not finite, memory ran out
    ├── ThresholdNotMet        5  a threshold that the user set was missed
    ├── RunLocked              6  the output folder or URL belongs to another run
    ├── IntegrityError         6  a hash, a size, an identity or --locked does not match
    └── Interrupted      130, 143  stopped by a signal (128 + its number) or a STOP file

The message says what is wrong and where, with values; the hint what to do. The library raises them; only cli.py prints them.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


class ExpertError(Exception):
    """An error with its remedy and exit code."""

    exit_code = 1

    def __init__(self, message: str, hint: str = "") -> None:
        """Keep `message` (what, where, the values) and `hint` (what to do; may be empty)."""
        super().__init__(message)
        self.message, self.hint = message, hint

    def as_json(self) -> dict[str, str | int]:
        """Return the error as it is written in JSON documents."""
        return {"exit_code": self.exit_code, "message": self.message, "hint": self.hint}


class InputError(ExpertError):
    """The user's input cannot be used: a command line, a manifest, rows."""

    exit_code = 2


class EnvironmentProblem(ExpertError):
    """A model, package, GPU, disk, network or process that is needed is missing."""

    exit_code = 3


class TrainingFailed(ExpertError):
    """Training cannot continue."""

    exit_code = 4


class ThresholdNotMet(ExpertError):
    """A run finished below a threshold that the user set."""

    exit_code = 5


class RunLocked(ExpertError):
    """The folder belongs to another run, which is active or would be overwritten."""

    exit_code = 6


class IntegrityError(ExpertError):
    """Something differs from what was written or requested."""

    exit_code = 6


CTRL_C, TERMINATED = 130, 143
"""Exit codes: 128 + the number of SIGINT or SIGTERM."""


class Interrupted(ExpertError):
    """A run stopped on request. The message says what was saved or lost, the hint is the command to continue, if any."""

    def __init__(self, message: str, hint: str, exit_code: int, *, by_signal: bool = True) -> None:
        """Take the exit code: CTRL_C (also for a STOP file) or TERMINATED."""
        super().__init__(message, hint)
        self.exit_code, self.by_signal = exit_code, by_signal


@dataclass(frozen=True, order=True)
class ManifestIssue:
    """An error in a manifest, as in `validate --json`: its place (line and column from 1) and a suggested correction."""

    file: str
    line: int
    column: int
    key: str
    message: str
    suggestion: str = ""

    def __str__(self) -> str:
        """`file:line:column: key: message`, the form editors jump to; the place is left out if it is the whole file."""
        key = f"{self.key}: " if self.key else ""
        place = f":{self.line}:{self.column}" if key or (self.line, self.column) != (1, 1) else ""
        return f"{self.file}{place}: {key}{self.message}"


class ManifestError(InputError):
    """A manifest with errors; `faults` has all of them, the message is the first."""

    def __init__(self, path: Path, faults: list[ManifestIssue]) -> None:
        """Take at least one error; their order is kept."""
        first = faults[0]
        shown = f'"{path}"' if " " in str(path) else path
        more = f" (and {len(faults) - 1} more: expert-cli validate {shown})" if len(faults) > 1 else ""
        super().__init__(f"{first}{more}", first.suggestion)
        self.faults = faults
