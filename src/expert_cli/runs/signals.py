"""Stops a run on request: Ctrl-C, SIGTERM, or a file named STOP in its folder.

The first request is remembered. At the end of a step the training loop checks for it, saves, and ends. A second signal ends
the run at once.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from types import FrameType

from expert_cli.errors import CTRL_C, TERMINATED
from expert_cli.utils.distributed import all_gather
from expert_cli.utils.reporter import NullReporter, Reporter

STOP_FILE = "STOP"


class StopRequest:
    """A context in which signals request that the run stops, instead of ending it.

    Only the main thread can handle signals; in another thread only the file is checked. Forked processes ignore Ctrl-C, which
    a terminal also sends to them; data workers also ignore the first SIGTERM (`leave_signals`).
    """

    def __init__(self, run_folder: Path, report: Reporter = NullReporter()) -> None:
        """Take the folder in which a file STOP may appear, and the reporter that is informed about signals."""
        self._report = report
        self.exit_code, self.reason, self.by_signal = 0, "", False
        self._file, self._pid, self._handlers = run_folder / STOP_FILE, os.getpid(), ExitStack()

    def asked(self) -> bool:
        """Return whether to stop. If so, `reason` is the signal or the file, and `exit_code` is 130 or 143."""
        if not self.exit_code and self._file.exists():
            self.exit_code, self.reason = CTRL_C, f"the file {self._file}"
            with suppress(OSError):  # if it cannot be removed, it also stops the continued run; `reason` names it
                self._file.unlink()
        return bool(self.exit_code)

    def agree(self) -> None:
        """Adopt the request of the first process that has one, because all have stopped. All processes must call this."""
        asked = all_gather((self.exit_code, self.reason, self.by_signal))
        self.exit_code, self.reason, self.by_signal = next((one for one in asked if one[0]), asked[0])

    def __enter__(self) -> StopRequest:
        self._handlers.enter_context(_handling(self._handle, signal.SIGINT, signal.SIGTERM))
        return self

    def __exit__(self, *_: object) -> None:
        self._handlers.close()

    def _handle(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002
        if os.getpid() != self._pid:
            if number == signal.SIGTERM:
                _end(number)
        elif self.exit_code:
            _end(number)
        else:
            self.reason, self.by_signal = signal.Signals(number).name, True
            self.exit_code = TERMINATED if number == signal.SIGTERM else CTRL_C
            told = f"{self.reason}: stopping after this step and saving; a second signal stops at once"
            # in another thread, because a stream that this signal interrupted refuses a second write by the same thread
            threading.Thread(target=self._report.info, args=(told,)).start()


class Terminated(KeyboardInterrupt):
    """SIGTERM outside a training loop: handled like Ctrl-C, except for the exit code."""


@contextmanager
def raising_sigterm() -> Iterator[None]:
    """Let SIGTERM raise Terminated, so that resources are closed; forked processes end. Works only in the main thread."""
    mine = os.getpid()

    def handle(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
        if os.getpid() != mine:
            _end(number)
        raise Terminated

    with _handling(handle, signal.SIGTERM):
        yield


@contextmanager
def _handling(handle: Callable[[int, FrameType | None], None], *numbers: int) -> Iterator[None]:
    """Install signal handlers temporarily; outside the main thread nothing changes."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, handle) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _end(number: int) -> None:
    if number != signal.SIGTERM:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        raise KeyboardInterrupt
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)


def leave_signals(worker: int) -> None:  # noqa: ARG001  torch's signature
    """Ignore Ctrl-C and the first SIGTERM, which reach all processes of a run: the main process still needs its workers."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda number, _: signal.signal(number, signal.SIG_DFL))
