"""The machine but for its GPUs: Python, the system, the disks that a run reads and writes, and where base models come from."""

from __future__ import annotations

import os
import platform
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from packaging.specifiers import SpecifierSet

from expert_cli.doctor.check import CheckResult, judged
from expert_cli.errors import EnvironmentProblem
from expert_cli.hardware.disk import SLOW_MB_PER_S, measure_read
from expert_cli.hardware.machine import Machine
from expert_cli.inventory.tree import scan_tree
from expert_cli.utils.text import size_text

SMALL_MEMORY_BYTES = 6_000_000_000
"""The smallest base models train within 3 GB of main memory on a CPU; the libraries and the system need as much again."""
TRIAL_BYTES = 64_000_000
_BLOCK = os.urandom(1 << 20)  # random, so that a compressing file system writes it all
Place = tuple[str, Path, int]
"""A name, a folder that is written to, and the free bytes below which that is a warning; below a tenth nothing works."""
Speed = tuple[float, float]
"""MB/s at which a trial file was written, and read."""


def python(version: str, needs: str, bits: int) -> CheckResult:
    """Judge the interpreter; `needs` is the distribution's own Requires-Python."""
    is_other = bits < 64 or version not in SpecifierSet(needs, prereleases=True)
    fix = f"install a 64-bit Python {needs} and make a new virtual environment with it"
    return judged("Python", f"{version}, {bits} bit, {sys.executable}", (is_other, "fail", fix))


def system(machine: Machine) -> CheckResult:
    """Name the system, its cores and memory."""
    bf16 = ", bf16 in hardware" if machine.cpu_bf16 else ""
    found = f"{platform.platform()}, {machine.cores} CPU cores{bf16}, {size_text(machine.memory_bytes)} memory"
    fix = "little memory: choose a small base model, close other programs"
    return judged("system", found, (machine.memory_bytes < SMALL_MEMORY_BYTES, "warn", fix))


def disks(places: Sequence[Place]) -> list[CheckResult]:
    """Judge each place; places on the same disk are measured once."""
    known: dict[int, Speed] = {}
    lines = []
    for name, path, little in places:
        folder = next((folder for folder in (path, *path.parents) if folder.is_dir()), path)
        try:
            device, free = folder.stat().st_dev, shutil.disk_usage(folder).free
            if device not in known and free > 4 * TRIAL_BYTES:
                known[device] = measure_speed(folder)
            lines.append(check_disk((name, path, little), free, known.get(device)))
        except (OSError, EnvironmentProblem) as error:
            words = f"{folder}: {getattr(error, 'strerror', None) or error}"
            fix = "name a folder that can be written (--output, HF_HOME, TMPDIR)"
            lines.append(CheckResult(name, "fail", words, fix))
    return lines


def check_disk(place: Place, free: int, speed: Speed | None) -> CheckResult:
    """Judge the room and the speed of one place."""
    name, path, little = place
    speeds = ", reads {1:,.0f} MB/s, writes {0:,.0f} MB/s".format(*speed) if speed else ""
    room = f"make room: {size_text(little)} is little enough, or use a folder on another disk"
    slow = "a slow disk: keep data and token stores on a faster one (train --stage DIR)"
    return judged(
        name,
        f"{path}: {size_text(free)} free{speeds}",
        (free < little / 10, "fail", room),
        (free < little, "warn", room),
        (speed and min(speed) < SLOW_MB_PER_S, "warn", slow),
    )


def measure_speed(folder: Path) -> Speed:
    """Write a trial file, synced, read it back past the page cache, delete it. Raises OSError where it cannot be written."""
    handle, name = tempfile.mkstemp(prefix=".expert-cli-doctor-", dir=folder)
    try:
        started = time.monotonic()
        with os.fdopen(handle, "wb") as file:
            while file.tell() < TRIAL_BYTES and time.monotonic() - started < 3:
                file.write(_BLOCK)
            file.flush()
            os.fsync(file.fileno())
            written = file.tell()
        write = written / 1e6 / max(time.monotonic() - started, 1e-9)
        return write, measure_read(Path(name)).mb_per_s
    finally:
        Path(name).unlink(missing_ok=True)


def hf_cache(hub: Path) -> CheckResult:
    """Say where the hub's cache is and how much it holds."""
    if not hub.is_dir():
        return CheckResult("HF cache", "ok", f"{hub}: nothing yet")
    tree = scan_tree([hub], lambda: None, max_s=10.0)
    models = sum(path.name.startswith("models--") for path in hub.iterdir())
    unfinished = f", unfinished downloads: {tree.unfinished}" if tree.unfinished else ""
    found = f"{hub}: {'at least ' if tree.cut_short else ''}{size_text(tree.bytes)}, models: {models}{unfinished}"
    return judged("HF cache", found, (unfinished, "warn", "go on with the download, or delete *.incomplete"))


def hub_state(forbidden: str, endpoint: str) -> str:
    """Say whether the hub may be asked; nothing is asked here. forbidden: what forbids it, "" if nothing does."""
    if forbidden:
        return f"offline, {forbidden}: base models, those of the package index too, and data must be on this machine already"
    return f"{endpoint} may be asked (not tried now); --offline or HF_HUB_OFFLINE=1 forbids it"
