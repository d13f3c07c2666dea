"""Work on many items at once, in threads: what comes of it is the same for any number of them."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from itertools import zip_longest
from operator import itemgetter
from typing import TypeVar

import psutil

from expert_cli.utils.process_setup import usable_cores
from expert_cli.utils.subprocesses import cancel_with

T = TypeVar("T")
R = TypeVar("R")

_LOOK_S = 0.1
_PARTS = 4
"""So many parts of the work a thread gets if all of it shares one thing: few enough to keep it, enough to end together."""


def fitting_threads(bytes_each: int) -> int:
    """Return how many threads have a core and so much free memory each; at least one."""
    available: int = psutil.virtual_memory().available
    return max(1, min(usable_cores(), available // bytes_each))


def in_order(
    work: Callable[[T], R],
    items: Sequence[T],
    shared: Callable[[T], Hashable | None],
    threads: int,
    show: Callable[[float], None],
) -> list[R]:
    """Return what `work` returns of every item, in the order of the items.

    shared: what several items need, such as an opened file: a thread takes such items one after the other; None for nothing.
    show: is told how many are done. Raises what the first item in order raised that raised anything. Where this is
    interrupted, what the threads wait for ends, and they with it.
    """
    done: dict[int, R] = {}
    faults: list[tuple[int, Exception]] = []
    waiting, stop = deque(_parts(list(map(shared, items)), threads)), threading.Event()

    def run() -> None:
        cancel_with(stop)
        while waiting and not stop.is_set():
            for index in _popped(waiting):
                if stop.is_set() or any(earlier < index for earlier, _ in tuple(faults)):
                    break
                try:
                    done[index] = work(items[index])
                except Exception as error:  # noqa: BLE001  raised below
                    faults.append((index, error))

    with ThreadPoolExecutor(threads) as pool:
        running = [pool.submit(run) for _ in range(threads)]
        try:
            while wait(running, _LOOK_S).not_done:
                show(len(done))
        except BaseException:
            stop.set()
            raise
    for one in running:
        one.result()
    if faults:
        raise min(faults, key=itemgetter(0))[1]
    show(len(done))
    return [done[index] for index in range(len(items))]


def _popped(waiting: deque[list[int]]) -> list[int]:
    try:
        return waiting.popleft()
    except IndexError:  # another thread took the last one meanwhile
        return []


def _parts(shared: Sequence[Hashable | None], threads: int) -> list[list[int]]:
    """Return the indices of items that one thread takes one after the other, those that share nothing one by one.

    Parts that share the same thing do not follow each other, so that seldom two threads need it at once.
    """
    groups: dict[Hashable, list[int]] = {}
    for index, name in enumerate(shared):
        groups.setdefault(("alone", index) if name is None else ("shared", name), []).append(index)
    size = -(-len(shared) // (_PARTS * threads)) or 1
    pieces = [[group[start : start + size] for start in range(0, len(group), size)] for group in groups.values()]
    return [piece for turn in zip_longest(*pieces) for piece in turn if piece]
