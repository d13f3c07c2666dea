"""Two runs never share an output folder; and which runs are under way on this machine.

weights/
    .smollm2.lock          locked by the run in smollm2/; the operating system frees it when that run dies
    smollm2/               may be empty, renamed and made anew while it is locked

Where nothing can be written beside the folder (a volume of a container), it lies in it, as .run.lock. The lock file stays when
the run ends: whoever removed it could remove the lock of the next owner.

<cache>/running/<host>-<pid>.json    {"pid", "birth", "host", "output", "started"}, one a run, for those who are refused, and
                                     for those who want to watch one

`birth` tells a process from a later one of the same id; `started` is a time of day, which may be set.
"""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
from filelock import FileLock, Timeout

from expert_cli.errors import RunLocked
from expert_cli.runs.run_paths import RunPaths
from expert_cli.utils.files import parse_json, write_json
from expert_cli.utils.paths import cache_folder

INSIDE = ".run.lock"
BEFORE_IT_BEGAN = {RunPaths(Path()).log.name, RunPaths(Path()).status.name}
"""All that a run leaves that ended before it had its data, its model and its identity: it may be started again."""
ORPHANS_END_S = 10.0
"""Data workers of a killed run hold its lock until they notice; torch's look every 5 s."""


@dataclass(frozen=True)
class RunningRun:
    """A run under way on this machine; `started` in seconds since 1970."""

    pid: int
    output: Path
    started: float


@contextmanager
def run_lock(output: Path) -> Iterator[None]:
    """Own an output folder, which need not exist; what lies beside it is made. Raises RunLocked naming the owner."""
    file = _lock_file(output)
    file.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(file)
    try:
        lock.acquire(timeout=0 if _owner(output) else ORPHANS_END_S)
    except Timeout:
        owner, since = _owner(output), ""
        if owner:
            since = f" with process id {owner.pid}, started {time.strftime('%Y-%m-%d %H:%M:%S', time.localtime(owner.started))}"
        hint = "wait for that run, end it, or give another folder with --output"
        raise RunLocked(f"{output} belongs to another run{since}", hint) from None
    host, pid = platform.node(), os.getpid()
    entry = _registry() / f"{host}-{pid}.json"  # machines may share a home
    facts = {"pid": pid, "birth": birth(pid), "host": host, "output": str(output.resolve()), "started": time.time()}
    try:
        with suppress(OSError):  # without a cache folder that can be written, the run is only harder to find
            write_json(entry, facts)
        yield
    finally:
        with suppress(OSError):
            entry.unlink(missing_ok=True)
        lock.release()


def contents(output: Path) -> list[Path]:
    """Return what lies in an output folder beside the lock's own file; nothing where there is no folder, or no run began."""
    found = [path for path in output.iterdir() if path.name != INSIDE] if output.is_dir() else []
    return found if {path.name for path in found} - BEFORE_IT_BEGAN else []


def running() -> list[RunningRun]:
    """Return the runs under way on this machine, oldest first; what dead ones left in the registry is removed."""
    found: list[RunningRun] = []
    for entry in _registry().glob(f"{platform.node()}-*.json"):
        with suppress(OSError, ValueError, KeyError, TypeError):
            facts = parse_json(entry.read_bytes())
            if lives(facts):
                found.append(RunningRun(facts["pid"], Path(facts["output"]), float(facts["started"])))
                continue
        with suppress(OSError):
            entry.unlink(missing_ok=True)
    return sorted(found, key=lambda run: run.started)


def _owner(output: Path) -> RunningRun | None:
    return next((run for run in running() if run.output == output.resolve()), None)


def _registry() -> Path:
    return cache_folder() / "running"


def _lock_file(output: Path) -> Path:
    place = output.resolve()
    above = next((folder for folder in place.parents if folder.exists()), place)
    if place.is_dir() and (os.path.ismount(place) or not os.access(above, os.W_OK)):
        return place / INSIDE
    return place.with_name(f".{place.name}.lock")


def lives(facts: Mapping[str, Any]) -> bool:
    """Whether the process that wrote these facts still runs: process ids are used again, so its start counts too."""
    try:
        return birth(facts["pid"]) == float(facts["birth"])
    except (psutil.Error, OSError, KeyError, TypeError, ValueError):
        return False


def birth(pid: int) -> float:
    """Return when a process began, on Linux in ticks since boot, which no change of the clock moves."""
    if platform.system() == "Linux":
        return float(Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[19])
    return float(psutil.Process(pid).create_time())
