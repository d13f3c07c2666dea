"""Prepares a process that trains or answers, before torch is imported, by setting environment variables of libraries."""

from __future__ import annotations

import math
import os
import platform
import sys
from contextlib import suppress
from pathlib import Path

from expert_cli._compat import quiet_imports


def prepare_process() -> None:
    """Silence libraries and set thread counts; to be called before torch and bitsandbytes are imported.

    By default torch's threads spin for milliseconds at every barrier, so that beside another program a step takes three to
    five times as long. A spin count of 1,000 is libgomp's default if there are more threads than cores; KMP_BLOCKTIME, in
    ms, is the counterpart on Windows and macOS. The user's own settings take precedence.
    """
    quiet_imports()
    if not sys.stderr.isatty():
        os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")  # of the hub client and for model shards
    waiting = {"GOMP_SPINCOUNT": "1000"} if sys.platform == "linux" else {"KMP_BLOCKTIME": "1"}
    if not {"OMP_WAIT_POLICY", *waiting} & os.environ.keys():
        os.environ.update(waiting)
    # expandable segments do not fragment when batches differ in length; in WSL 2 they fail (pytorch issue 192330)
    if sys.platform == "linux" and "microsoft" not in platform.release().lower():
        os.environ.setdefault("PYTORCH_ALLOC_CONF", "expandable_segments:True")
    cores = usable_cores()
    if cores < _cores():  # OpenMP sees the cores, but not a container's CPU limit
        os.environ.setdefault("OMP_NUM_THREADS", str(cores))


def usable_cores(cpu_max: Path = Path("/sys/fs/cgroup/cpu.max")) -> int:
    """Return the number of cores that this process may use: those it may run on, or fewer if a container limits CPU time."""
    with suppress(OSError, ValueError):  # no container, or "max": no limit
        quota, period = map(int, cpu_max.read_text(encoding="ascii").split())
        return max(1, min(_cores(), math.ceil(quota / period)))
    return _cores()


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
