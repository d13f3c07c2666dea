import os
import subprocess
import sys
from pathlib import Path

import pytest

from expert_cli.utils.process_setup import usable_cores

HERE = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
SHOWS = {"OMP_DISPLAY_ENV": "verbose"}
"""Lets libgomp print what it read when it was loaded."""
linux = pytest.mark.skipif(sys.platform != "linux", reason="libgomp is Linux's")
OPENMP = ("OMP_WAIT_POLICY", "OMP_NUM_THREADS", "GOMP_SPINCOUNT")


def printed(code: str, **environment: str) -> str:
    """Return what libgomp prints in a fresh process, without the settings of this one."""
    kept = {name: value for name, value in os.environ.items() if name not in OPENMP}
    command = [sys.executable, "-c", code]
    return subprocess.run(command, env=kept | SHOWS | environment, capture_output=True, text=True, check=True).stderr


SET_UP = "from expert_cli.utils.process_setup import prepare_process; prepare_process(); import torch"


@linux
def test_threads_that_wait_sleep_soon() -> None:
    assert "GOMP_SPINCOUNT = '1000'" in printed(SET_UP)
    assert "GOMP_SPINCOUNT = '1000'" not in printed("import torch")


@linux
@pytest.mark.parametrize(
    ("theirs", "line"),
    [
        ({"GOMP_SPINCOUNT": "77"}, "GOMP_SPINCOUNT = '77'"),
        ({"OMP_WAIT_POLICY": "PASSIVE"}, "GOMP_SPINCOUNT = '0'"),
    ],
)
def test_what_the_user_sets_stands(theirs: dict[str, str], line: str) -> None:
    assert line in printed(SET_UP, **theirs)


@pytest.mark.parametrize(
    ("quota", "cores"), [("max", HERE), ("20000", 1), ("100000", 1), ("150000", min(2, HERE)), ("1000000000", HERE)]
)
def test_a_container_gets_as_many_threads_as_its_share_of_time(tmp_path: Path, quota: str, cores: int) -> None:
    limit = tmp_path / "cpu.max"
    assert usable_cores(limit) == HERE
    limit.write_text(f"{quota} 100000\n")
    assert usable_cores(limit) == cores
