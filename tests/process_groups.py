"""Processes that train together, as torchrun starts them."""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping

from benchmarks.kill_test import Process

Start = Callable[[list[str], Mapping[str, str]], Process]
"""Starts `expert-cli` with these words and these variables."""


def free_port() -> int:
    """Return a port that nothing listens on."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        return int(bound.getsockname()[1])


def variables_of(count: int) -> list[dict[str, str]]:
    """Return the variables that torchrun sets for each of `count` processes; a single one is no group and gets none."""
    if count == 1:
        return [{}]
    group = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    group |= {"WORLD_SIZE": str(count), "LOCAL_WORLD_SIZE": str(count)}
    return [{**group, "RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(count)]


class ProcessGroup:
    """Processes that train together, one of which will be killed: `pid`, that of the process `victim`."""

    def __init__(self, words: list[str], count: int, start: Start, victim: int = 0) -> None:
        self._processes = [start(words, variables) for variables in variables_of(count)]
        self.pid = self._processes[victim % count].pid

    def poll(self) -> int | None:
        """Return the largest of the exit codes, None while one of them runs; a signal's is the largest."""
        codes = [process.poll() for process in self._processes]
        return None if None in codes else max((abs(code or 0) for code in codes), default=0)
