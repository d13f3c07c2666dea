"""What memory a process takes at most (Linux)."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path
from typing import Any, NamedTuple


class Peaks(NamedTuple):
    """In MB. anonymous: of its own. resident: with the pages of files that it maps, which the system takes back."""

    anonymous: float
    resident: float


def watch(process: subprocess.Popen[Any]) -> Peaks:
    """Return the peaks of a process once it ends; looks every 20 ms."""
    anonymous = resident = 0.0
    status = Path(f"/proc/{process.pid}/status")
    while process.poll() is None:
        lines = dict(line.split(":", 1) for line in status.read_text(encoding="utf-8").splitlines() if ":" in line)
        anonymous = max(anonymous, float(lines.get("RssAnon", "0").split()[0]) / 1024)
        resident = max(resident, float(lines.get("VmHWM", "0").split()[0]) / 1024)
        time.sleep(0.02)
    return Peaks(anonymous, resident)
