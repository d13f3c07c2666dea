"""Work on many items at once, in threads: what comes of it is the same for any number of them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from typing import TypeVar

import psutil

from expert_cli.utils.process_setup import usable_cores
from expert_cli.utils.subprocesses import cancel_with

T = TypeVar("T")
R = TypeVar("R")

_LOOK_S = 0.1


def fitting_threads(bytes_each: int) -> int:
    """Return how many threads have a core and so much free memory each; at least one."""
    available: int = psutil.virtual_memory().available
    return max(1, min(usable_cores(), available // bytes_each))


def in_order(work: Callable[[T], R], items: Sequence[T], threads: int, show: Callable[[float], None]) -> list[R]:
    """Return what `work` returns of every item, in the order of the items.

    show: is told how many are done. Raises what the first item in order raised that raised anything. Where this is
    interrupted, what the threads wait for ends, and they with it.
    """
    stop, done = threading.Event(), list[R]()
    with ThreadPoolExecutor(threads, initializer=cancel_with, initargs=(stop,)) as pool:
        try:
            for one in [pool.submit(work, item) for item in items]:
                while wait([one], _LOOK_S).not_done:
                    show(len(done))
                done.append(one.result())
        except BaseException:
            stop.set()
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    show(len(done))
    return done
