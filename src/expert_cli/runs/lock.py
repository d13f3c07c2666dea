"""Prevents two runs from using the same output folder, and lists the active runs on this machine.

weights/
    .smollm2.lock          locked by the run in smollm2/; the operating system releases it when that run dies
    smollm2/               may be empty, renamed and rebuilt while it is locked

If nothing can be written beside the folder (a container's volume), the lock is inside, as .run.lock. The lock file is kept
when the run ends, because deleting it could delete the lock of the next owner.

<cache>/running/<host>-<pid>.json    {"pid", "birth", "host", "output", "started"}, one for each run: identifies the owner
                                     of a locked folder, and the run that `benchmark` watches

`birth` distinguishes a process from a later one with the same id; `started` is wall-clock time, which may be changed.
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
"""The only files of a run that ended before it had data, model and identity. Such a run may be started again."""
ORPHANS_END_S = 10.0
"""Data workers of a killed run hold its lock until they notice that it is gone; torch's workers check every 5 s."""


@dataclass(frozen=True)
class RunningRun:
    """An active run on this machine; `started` in seconds since 1970."""

    pid: int
    output: Path
    started: float


@contextmanager
def run_lock(output: Path) -> Iterator[None]:
    """Lock an output folder, which need not exist; parent folders are created. Raises RunLocked naming the owner."""
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
    entry = _registry() / f"{host}-{pid}.json"  # machines may share a home folder
    facts = {"pid": pid, "birth": birth(pid), "host": host, "output": str(output.resolve()), "started": time.time()}
    try:
        with suppress(OSError):  # without a writable cache folder the run works, but `running` does not list it
            write_json(entry, facts)
        yield
    finally:
        with suppress(OSError):
            entry.unlink(missing_ok=True)
        lock.release()


def contents(output: Path) -> list[Path]:
    """Return the paths in an output folder except the lock file; [] if the folder does not exist or no run began in it."""
    found = [path for path in output.iterdir() if path.name != INSIDE] if output.is_dir() else []
    return found if {path.name for path in found} - BEFORE_IT_BEGAN else []


def running() -> list[RunningRun]:
    """Return the active runs on this machine, oldest first; entries of ended runs are deleted."""
    found: list[RunningRun] = []
    for entry in _registry().glob(f"{platform.node()}-*.json"):
        with suppress(OSError, ValueError, KeyError, TypeError):
            facts = parse_json(entry.read_bytes())
            if facts["host"] != platform.node():  # a machine whose name starts with ours, with the same home folder
                continue
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
    """Return whether the process that wrote this entry still runs. Ids are reused, so its start time is compared, too."""
    try:
        return birth(facts["pid"]) == float(facts["birth"])
    except (psutil.Error, OSError, KeyError, TypeError, ValueError):
        return False


def birth(pid: int) -> float:
    """Return when a process started; on Linux in ticks since boot, which clock changes do not affect."""
    if platform.system() == "Linux":
        return float(Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[19])
    return float(psutil.Process(pid).create_time())
