"""Processes of our own that do a piece of work: how one ended, what it said last, and ending it with all it started."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

import psutil


def how_it_ended(code: int) -> str:
    """Return the words for the exit code of a process: a signal where there was one."""
    if code < 0:
        try:
            return f"ended with signal {-code} ({signal.Signals(-code).name})"
        except ValueError:
            return f"ended with signal {-code}"
    return f"ended with code {code:#010x}" if code > 255 else f"ended with exit code {code}"


def last_words(log: Path) -> str:
    """Return the line of the child's stderr that says most: the fatal error that faulthandler named, else the last."""
    lines = [line.strip() for line in log.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
    return next((line for line in lines if line.startswith("Fatal Python error")), lines[-1] if lines else "")[:300]


def end_family(child: subprocess.Popen[str]) -> None:
    """End our own child and what it started."""
    try:
        family = [*psutil.Process(child.pid).children(recursive=True), child]
    except psutil.Error:
        family = [child]
    for process in family:
        try:
            process.kill()
        except (psutil.Error, OSError):
            continue
    child.wait()
    if child.stdout is not None:
        child.stdout.close()
