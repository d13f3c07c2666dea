"""Two runs never share an output folder; and which runs are under way on this machine.

weights/
    .smollm2.lock          locked by the run in smollm2/; the operating system frees it when that run dies
    .smollm2.owner.json    {"pid", "birth", "host", "started"} of that run, for those who are refused
    smollm2/               may be empty, renamed and made anew while it is locked

Where nothing can be written beside the folder (a volume of a container), both lie in it, as .run.lock and .run.owner.json.
The lock file stays when the run ends: whoever removed it could remove the lock of the next owner.

<cache>/running/<host>-<pid>.json    {"pid", "birth", "host", "output", "started"}, one a run, for those who want to watch one

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
from expert_cli.utils.files import parse_json, write_json
from expert_cli.utils.paths import cache_folder
from expert_cli.utils.text import utc_time

INSIDE = ".run"
ORPHANS_END_S = 10.0
"""Data workers of a killed run hold its lock until they notice; torch's look every 5 s."""
_ASKED_S = 2.0
"""Longer than any process that only asks whether a folder is held has its lock, be the machine ever so busy."""


@dataclass(frozen=True)
class RunningRun:
    """A run under way on this machine; `started` in seconds since 1970."""

    pid: int
    output: Path
    started: float


@contextmanager
def run_lock(output: Path) -> Iterator[None]:
    """Own an output folder, which need not exist; what lies beside it is made. Raises RunLocked naming the owner."""
    base = _base(output)
    base.parent.mkdir(parents=True, exist_ok=True)
    owner_file = base.with_name(f"{base.name}.owner.json")
    lock = FileLock(base.with_name(f"{base.name}.lock"))
    _acquire(lock, owner_file, output)
    me = {"pid": os.getpid(), "birth": birth(os.getpid()), "started": time.time(), "host": platform.node()}
    entry = _registry() / f"{platform.node()}-{os.getpid()}.json"  # machines may share a home
    try:
        write_json(owner_file, me)
        with suppress(OSError):  # without a cache folder that can be written, the run is only harder to find
            write_json(entry, {**me, "output": str(output.resolve())})
        yield
    finally:
        for note in (entry, owner_file):
            with suppress(OSError):
                note.unlink(missing_ok=True)
        lock.release()


def contents(output: Path) -> list[Path]:
    """Return what lies in an output folder, the lock's own files left out; nothing where there is no folder."""
    own = (f"{INSIDE}.lock", f"{INSIDE}.owner.json")
    return [path for path in output.iterdir() if path.name not in own] if output.is_dir() else []


def is_held(output: Path) -> bool:
    """Whether a run owns the folder, be it one that is not in the registry: of another container, or without a cache."""
    base = _base(output)
    file = base.with_name(f"{base.name}.lock")
    with suppress(Timeout, OSError):  # a lock file of another user cannot be asked
        if file.exists():
            FileLock(file).acquire(timeout=0).lock.release()
        return False
    return True


def running() -> list[RunningRun]:
    """Return the runs under way on this machine, oldest first; what dead ones left in the registry is removed."""
    found: list[RunningRun] = []
    for entry in _registry().glob("*.json"):
        facts = _read(entry)
        if facts.get("host", platform.node()) != platform.node():
            continue
        if lives(facts) and "output" in facts:
            found.append(RunningRun(facts["pid"], Path(str(facts["output"])), facts["started"]))
        else:
            with suppress(OSError):
                entry.unlink(missing_ok=True)
    return sorted(found, key=lambda run: run.started)


def _registry() -> Path:
    return cache_folder() / "running"


def _base(output: Path) -> Path:
    """Return the path that the lock's files are named after."""
    place = output.resolve()
    above = next((folder for folder in place.parents if folder.exists()), place)
    if place.is_dir() and (os.path.ismount(place) or not os.access(above, os.W_OK)):
        return place / INSIDE
    return place.with_name(f".{place.name}")


def _acquire(lock: FileLock, owner_file: Path, output: Path) -> None:
    """Take the lock; wait only while its owner is dead and its last children are about to be, or for one who asks."""
    owner = _read(owner_file)
    patience = ORPHANS_END_S if owner.get("host") in (None, platform.node()) else _ASKED_S
    try:
        lock.acquire(timeout=0 if lives(owner) else patience)
    except Timeout:
        hint = "wait for that run, end it, or give another folder with --output"
        raise RunLocked(f"{output} belongs to {_words(_read(owner_file))}", hint) from None


def _words(owner: dict[str, Any]) -> str:
    if not owner:
        return "another run"
    started = utc_time(owner["started"])
    since = f", started {started.astimezone():%Y-%m-%d %H:%M:%S}" if started else ""
    return f"the run with process id {owner['pid']} on {owner.get('host', 'this machine')}{since}"


def _read(note: Path) -> dict[str, Any]:
    """Return the facts of a note, or nothing where there are none or not of their form."""
    try:
        facts = parse_json(note.read_bytes())
        return {**facts, "pid": int(facts["pid"]), "started": float(facts["started"])}
    except (OSError, ValueError, KeyError, TypeError, OverflowError):
        return {}


def lives(facts: Mapping[str, Any]) -> bool:
    """Whether the process that wrote these facts still runs: process ids are used again, so its start counts too."""
    try:
        return birth(facts["pid"]) == float(facts["birth"])
    except (psutil.Error, OSError, KeyError, TypeError, ValueError):
        return False


def birth(pid: int) -> float:
    """Return when a process began, as a figure that stays the same when the clock is set: on Linux ticks since boot.

    psutil counts there from a boot time that moves with the clock. Raises OSError, psutil.Error: no such process.
    """
    if platform.system() == "Linux":
        return float(Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[19])
    return float(psutil.Process(pid).create_time())
