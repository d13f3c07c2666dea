"""Whether a file's lock is held can only be asked by taking it for a moment: who wants it for long waits that moment out."""

from __future__ import annotations

from filelock import BaseFileLock, Timeout

ASKED_S = 2.0
"""Longer than any process that only asks has a lock, be the machine ever so busy."""


def is_held(lock: BaseFileLock) -> bool:
    """Whether a process holds a lock. Raises OSError: the lock's file is not ours to take."""
    try:
        with lock.acquire(timeout=0):
            return False
    except Timeout:
        return True
