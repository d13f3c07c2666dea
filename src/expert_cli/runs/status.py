"""status.json of a run directory: what a run is doing, and why it ended.

running ──► complete      the schedule is done, or early stopping ended it
        ├─► stopped       the file STOP
        ├─► interrupted   a signal
        └─► failed        an error: its first line is the reason
A run that the system killed could not record its end: its state stays "running", but its process is gone.

`birth` distinguishes a process from a later one with the same id, as described in `lock`.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from expert_cli.errors import ExpertError, Interrupted
from expert_cli.runs.lock import birth, lives
from expert_cli.runs.metrics import number, read_json
from expert_cli.utils.files import write_json
from expert_cli.utils.text import moment

RUNNING, COMPLETE, STOPPED, FAILED, INTERRUPTED = "running", "complete", "stopped", "failed", "interrupted"
KILLED, ELSEWHERE, UNKNOWN = "killed", "elsewhere", "unknown"
"""States that only a reader can determine: the process is gone; it runs on another machine; there is no valid status.json."""


class RunStatus:
    """Writes a run's status.json. Without a file it writes nothing, as in a job's other processes or a run without status."""

    def __init__(
        self,
        file: Path | None = None,
        command: str = "",
        world_size: int = 1,
        written: Callable[[], object] = lambda: None,
    ) -> None:
        """command: starts the run, without --resume. written: called after each write; nothing is written before `begin`."""
        self.command, self.world_size = command, world_size
        self.step = 0
        self.steps: int | None = None
        self.stage, self._started = "", ""
        self._file, self._written = file, written

    @property
    def how_far(self) -> str:
        """The progress of the run, in words."""
        return _how_far(self.step, self.steps, self.stage)

    @property
    def go_on(self) -> str:
        """The command that continues the run."""
        return f"{self.command} --resume auto"

    def begin(self) -> None:
        """Record that the run has started. From now on the folder belongs to this run."""
        self._started = _now()
        self._write(RUNNING, "")

    def reached(self, step: int, steps: int) -> None:
        """Record the progress: at the start of training, and after each checkpoint."""
        self.step, self.steps = step, steps
        self._write(RUNNING, "")

    def at(self, stage: str) -> None:
        """Record the current stage of a run that has several, in words, such as "round 1, sampling"."""
        self.stage = stage
        self._write(RUNNING, "")

    def complete(self, reason: str, exit_code: int = 0) -> None:
        """Record that the run is complete. exit_code: not 0 if the run missed a threshold."""
        self._write(COMPLETE, reason, exit_code)

    def broken_off(self, error: ExpertError) -> None:
        """Record the error that ended the run early."""
        stopped = INTERRUPTED if isinstance(error, Interrupted) and error.by_signal else STOPPED
        state = stopped if isinstance(error, Interrupted) else FAILED
        self._write(state, error.message.strip().partition("\n")[0], error.exit_code)

    def _write(self, state: str, reason: str, exit_code: int | None = None) -> None:
        if self._file is None or not self._started:
            return
        document = {"schema_version": 1, "state": state, "reason": reason, "step": self.step, "steps": self.steps}
        document |= {"stage": self.stage} if self.stage else {}
        document |= {"exit_code": exit_code, "pid": os.getpid(), "birth": birth(os.getpid()), "host": platform.node()}
        document |= {"world_size": self.world_size, "started": self._started, "updated": _now()}
        write_json(self._file, {**document, "command": self.command})
        self._written()


@dataclass(frozen=True)
class Ending:
    """The state of a run, also in words. go_on: the command that continues it, "" if it is complete or still running."""

    state: str
    words: str
    go_on: str = ""


def standing(file: Path, *, is_complete: bool, command: str = "") -> Ending:
    """Return the state of a run. is_complete: whether its file COMPLETE exists. command: that of run.json, as a fallback."""
    told = read_json(file)
    state, reason = str(told.get("state")), str(told.get("reason") or "")
    if is_complete or state == COMPLETE:
        return Ending(COMPLETE, f"finished: {reason}" if state == COMPLETE else "finished")
    command = str(told.get("command") or command)
    go_on = f"{command} --resume auto" if command else ""
    how_far = _how_far(number(told, "step"), number(told, "steps"), str(told.get("stage") or ""))
    process, host = f"process {told.get('pid')}", told.get("host")
    far = f"{how_far}, at {moment(str(told.get('updated')))}"
    if state in (STOPPED, INTERRUPTED):
        return Ending(state, f"{state}: {reason}", go_on)
    if state == FAILED:
        return Ending(state, f"failed {how_far}: {reason}", go_on)
    if state != RUNNING:
        return Ending(UNKNOWN, "not finished", go_on)
    if host != platform.node():
        return Ending(ELSEWHERE, f"running on {host}, {far}; whether it is still running is not known here", go_on)
    if lives(told):
        return Ending(RUNNING, f"running as {process}; {far}")
    return Ending(KILLED, f"killed: {process} has ended without a message; its last status is {far}", go_on)


def _how_far(step: float | None, steps: float | None, stage: str) -> str:
    if stage:
        return f"in {stage}"
    return f"after step {step or 0:.0f} of {steps:.0f}" if steps is not None else "before the first step"


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
