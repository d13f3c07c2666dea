"""Work in several threads gives what one thread gives, and ends when it is interrupted."""

from __future__ import annotations

import _thread
import sys
import threading
import time
from pathlib import Path

import psutil
import pytest

from expert_cli.evaluation.parallel import fitting_threads, in_order
from expert_cli.utils.subprocesses import LineProcess


@pytest.mark.parametrize("threads", [1, 2, 8])
def test_results_stand_in_the_order_of_the_items(threads: int) -> None:
    seen: list[float] = []
    found = in_order(lambda n: 2 * n, list(range(50)), threads, seen.append)
    assert found == [2 * n for n in range(50)]
    assert seen[-1] == 50
    assert in_order(lambda n: n, [], threads, seen.append) == []


@pytest.mark.parametrize("threads", [1, 2, 8])
def test_the_first_fault_in_order_is_raised_whichever_comes_first(threads: int) -> None:
    done: list[int] = []

    def work(n: int) -> int:
        if n in (20, 40):
            time.sleep(0.5 if n == 20 else 0)
            raise ValueError(n)
        time.sleep(0.05 if n == 19 else 0)
        done.append(n)
        return n

    with pytest.raises(ValueError, match=r"^20$"):
        in_order(work, list(range(60)), threads, lambda _: None)
    assert sorted(done)[:20] == list(range(20))


def test_there_are_no_more_threads_than_memory_for_them() -> None:
    assert fitting_threads(1) >= 1
    assert fitting_threads(psutil.virtual_memory().total * 2) == 1


def test_ctrl_c_ends_what_the_threads_wait_for(tmp_path: Path) -> None:
    started: list[LineProcess] = []

    def work(_: int) -> bytes:
        process = LineProcess([sys.executable, "-c", "import time; time.sleep(600)"], cwd=tmp_path)
        started.append(process)
        try:
            return process.receive(600)
        finally:
            process.kill()

    def interrupt() -> None:
        while len(started) < 2:
            time.sleep(0.01)
        _thread.interrupt_main()

    threading.Thread(target=interrupt, daemon=True).start()
    begun, before = time.monotonic(), {child.pid for child in psutil.Process().children()}
    with pytest.raises(KeyboardInterrupt):
        in_order(work, list(range(9)), 2, lambda _: None)
    assert time.monotonic() - begun < 30
    assert len(started) == 2
    assert {child.pid for child in psutil.Process().children()} <= before
