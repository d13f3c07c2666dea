"""Work in a forked process that is killed at a chosen instant."""

from __future__ import annotations

import os
import signal
import sys
import warnings
from collections.abc import Callable
from typing import Any


def in_child(work: Callable[[], Any]) -> int:
    """Run `work` in a forked process; return how that ended: 0, 1 for an error, minus the number of a signal."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12 warns of forks beside threads
        pid = os.fork()
    if pid == 0:
        code = 1
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def killed_at(event: int, work: Callable[[], Any]) -> int:
    """Run `work` and kill it with SIGKILL just before its `event`-th look at the disk."""

    def killed() -> None:
        seen = 0

        def hook(name: str, _: tuple[Any, ...]) -> None:
            nonlocal seen
            seen += name.startswith(("os.", "open", "shutil."))
            if seen == event:
                os.kill(os.getpid(), signal.SIGKILL)

        sys.addaudithook(hook)
        work()

    return in_child(killed)
