"""Room and speed of the disks that a run reads and writes, the Hugging Face cache, and whether the hub may be asked."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from expert_cli.doctor.check_result import CheckResult, judged
from expert_cli.errors import EnvironmentProblem
from expert_cli.hardware.disk import SLOW_MB_PER_S, measure_read
from expert_cli.inventory.tree import scan_tree
from expert_cli.utils.text import size_text

TRIAL_BYTES = 64_000_000
_LIST_S = 10.0
_BLOCK = os.urandom(1 << 20)  # random, so that a compressing file system writes it all
_OTHER = "name a folder that can be written (--output, HF_HOME, TMPDIR)"
_SLOW = "a slow disk: keep data and token stores on a faster one (train --stage DIR)"


@dataclass(frozen=True)
class Place:
    """A folder that is written to. `little`: free bytes below which it is a warning; below a tenth of that nothing works."""

    name: str
    path: Path
    little: int


@dataclass(frozen=True)
class Speed:
    """What one trial file told, in MB/s."""

    write: float
    read: float


def places(here: Path, cache: Path) -> list[Place]:
    """Return the folders of a run started `here`: its output, the hub's cache (base models), temporary files."""
    return [
        Place("disk, output", here, 5_000_000_000),  # a run with its checkpoints: under 1 GB for the shipped experts
        Place("disk, HF cache", cache, 10_000_000_000),  # base models of 0.3 to 8 GB
        Place("disk, temp", Path(tempfile.gettempdir()), 2_000_000_000),
    ]


def disks(where: Sequence[Place]) -> list[CheckResult]:
    """Judge each place; places on the same disk are measured once."""
    known: dict[int, Speed] = {}
    lines = []
    for place in where:
        folder = next((folder for folder in (place.path, *place.path.parents) if folder.is_dir()), place.path)
        try:
            device, free = folder.stat().st_dev, shutil.disk_usage(folder).free
            if device not in known and free > 4 * TRIAL_BYTES:
                known[device] = measure_speed(folder)
            lines.append(check_disk(place, free, known.get(device)))
        except (OSError, EnvironmentProblem) as error:
            words = f"{folder}: {getattr(error, 'strerror', None) or error}"
            lines.append(CheckResult(place.name, "fail", words, _OTHER))
    return lines


def check_disk(place: Place, free: int, speed: Speed | None) -> CheckResult:
    """Judge the room and the speed of one place."""
    speeds = f", reads {speed.read:,.0f} MB/s, writes {speed.write:,.0f} MB/s" if speed else ""
    is_slow = speed is not None and min(speed.read, speed.write) < SLOW_MB_PER_S
    room = f"make room: {size_text(place.little)} is little enough, or use a folder on another disk"
    return judged(
        place.name,
        f"{place.path}: {size_text(free)} free{speeds}",
        (free < place.little / 10, "fail", room),
        (free < place.little, "warn", room),
        (is_slow, "warn", _SLOW),
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
        return Speed(write, measure_read(Path(name)).mb_per_s)
    finally:
        Path(name).unlink(missing_ok=True)


def hf_cache(hub: Path) -> CheckResult:
    """Say where the hub's cache is and how much it holds."""
    if not hub.is_dir():
        return CheckResult("HF cache", "ok", f"{hub}: nothing yet")
    tree = scan_tree([hub], lambda: None, max_s=_LIST_S)
    models = sum(path.name.startswith("models--") for path in hub.iterdir())
    unfinished = f", unfinished downloads: {tree.unfinished}" if tree.unfinished else ""
    found = f"{hub}: {'at least ' if tree.cut_short else ''}{size_text(tree.bytes)}, models: {models}{unfinished}"
    return judged("HF cache", found, (unfinished, "warn", "go on with the download, or delete *.incomplete"))


def hub_state(forbidden: str, endpoint: str) -> CheckResult:
    """Say whether the hub may be asked; nothing is asked here. forbidden: what forbids it, "" if nothing does."""
    found = (
        f"offline, {forbidden}: base models, those of the package index too, and data must be on this machine already"
        if forbidden
        else f"{endpoint} may be asked (not tried now); --offline or HF_HUB_OFFLINE=1 forbids it"
    )
    return CheckResult("hub", "ok", found)
