"""What is told without being tried, one entry of the table each: Python, packages, disks; of GPUs see `gpus.py`."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import shutil
import struct
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from expert_cli.doctor import gpus
from expert_cli.doctor.check import Check, CheckResult, judged
from expert_cli.evaluation.verifiers.sandbox.isolation import standing_walls
from expert_cli.hardware import machine, nvml
from expert_cli.hardware.machine import Machine, installed
from expert_cli.utils.text import size_text

KNOWN_BAD = {
    "bitsandbytes 0.48.0": "answers of 8-bit checkpoints are broken (bitsandbytes pull request 1776); 0.48.1 is not",
    "torch 2.9.0": "torch.compile fails on torch.bmm (pytorch issue 165892); 2.9.1 does not",
}
"""Versions within the bounds of the metadata, and what is wrong with each."""
DISTRIBUTION = "expert-cli"
TYPESCRIPT = "TypeScript answers"
WALLS = "walls around answers"
Installed = Callable[[str], str | None]
SMALL_MEMORY_BYTES = 6_000_000_000
"""The smallest base models train within 3 GB of main memory on a CPU; the libraries and the system need as much again."""
Place = tuple[str, Path, int]
"""A name, a folder that is written to, and the free bytes below which that is a warning; below a tenth nothing works."""


def look(here: Path) -> list[Check]:
    """Return the checks of what is told without being tried, for a run started in the folder `here`."""
    from huggingface_hub import constants

    facts, driver, cards = machine.inspect(), nvml.driver_info(), nvml.sample()
    (needs, of_python), cache = asked_for(), Path(constants.HF_HUB_CACHE)
    places = [
        ("disk, output", here, 5_000_000_000),  # a run with its checkpoints: under 1 GB for the shipped experts
        ("disk, HF cache", cache, 10_000_000_000),  # base models of 0.3 to 8 GB
        ("disk, temp", Path(tempfile.gettempdir()), 2_000_000_000),
    ]
    checks = [
        Check("Python", lambda: python(platform.python_version(), of_python, struct.calcsize("P") * 8)),
        Check("system", lambda: system(facts)),
        Check("driver", lambda: gpus.check_driver(driver, gpus.has_nvidia_device())),
        Check("torch build", lambda: gpus.torch_build(facts, driver)),
        Check("GPU", lambda: gpus.check_gpus(cards, os.environ.get("CUDA_VISIBLE_DEVICES"), facts.gpus)),
        Check("GPU memory", lambda: gpus.memory_in_use(cards, nvml.holders())),
        Check("packages", lambda: versions(needs, tested())),
        Check(TYPESCRIPT, lambda: typescript(installed("deno"))),
        Check(WALLS, lambda: walls(standing_walls())),
        Check("disks", lambda: disks(places)),
    ]
    # a GPU that the installed torch cannot use comes before everything else
    return sorted(checks, key=lambda check: check.name != "torch build") if facts.first_words else checks


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


def asked_for() -> tuple[list[Requirement], str]:
    """Return what the distribution asks for, extras included, and which Python; nothing where it runs from its source."""
    with suppress(importlib.metadata.PackageNotFoundError):
        told = importlib.metadata.metadata(DISTRIBUTION)
        return [Requirement(line) for line in told.get_all("Requires-Dist", [])], told["Requires-Python"]
    return [], ""


def tested() -> dict[str, str]:
    """Return {name: version} of what constraints.txt, in the package or above it in a working copy, pins for this Python."""
    package = Path(__file__).parents[1]
    places = [folder / "constraints.txt" for folder in (package, package.parents[1])]
    lines = next((path.read_text(encoding="utf-8").splitlines() for path in places if path.is_file()), [])
    rows = [Requirement(words) for line in lines if (words := line.partition("#")[0].strip())]
    return {canonicalize_name(row.name): next(iter(row.specifier)).version for row in rows if _applies(row, "")}


def versions(
    needs: Iterable[Requirement], pins: Mapping[str, str], version_of: Installed = installed
) -> list[CheckResult]:
    """Judge every package that is always needed; those that are as they should be share one line."""
    asked = [need for need in needs if _applies(need, "")]
    lines = [_judge(need, version_of(need.name), pins.get(canonicalize_name(need.name))) for need in asked]
    fine = ", ".join(line.found for line in lines if line.state == "ok")
    if not lines:
        found = "what is needed is not known: expert-cli runs from its source"
        return [CheckResult("packages", "warn", found, "pip install -e .")]
    return [line for line in lines if line.state != "ok"] + ([CheckResult("packages", "ok", fine)] if fine else [])


def walls(standing: Sequence[str]) -> CheckResult:
    """Say what of the system keeps the programs that are answers from its files and its network."""
    lacking = [
        *(["the network"] if not {"syscalls", "namespaces"} & set(standing) else []),
        *(["files"] if "files" not in standing else []),
    ]
    found = f"{', '.join(standing)} stand" if standing else "none stand"
    fix = (
        f"only Deno itself keeps them from {' and '.join(lacking)}: evaluate on Linux 5.13 or later, or in a container"
    )
    if "the network" in lacking:
        fix += "; where you trust the model: evaluate --without-walls"
    return judged(WALLS, found, (lacking, "warn", fix))


def typescript(deno: str | None) -> CheckResult:
    """Say whether answers can be type-checked and run; training needs none of it: always ok."""
    if deno is None:
        return CheckResult(TYPESCRIPT, "ok", "no deno: they cannot be judged", 'pip install "expert-cli[evaluate]"')
    return CheckResult(TYPESCRIPT, "ok", f"deno {deno}: type-checked and run with their tests")


def _judge(need: Requirement, version: str | None, pin: str | None) -> CheckResult:
    fix = f'pip install "{need.name}=={pin}"' if pin else f'pip install "{need.name}{need.specifier}"'
    if version is None:
        return CheckResult(need.name, "fail", f"not installed; needed: {need.specifier or 'any version'}", fix)
    public = version.partition("+")[0]
    reason = KNOWN_BAD.get(f"{canonicalize_name(need.name)} {public}")
    if reason:
        return CheckResult(need.name, "warn", f"{version}: {reason}", fix)
    if _fits(need, version):
        other = f" (tested: {pin})" if pin and public != pin.partition("+")[0] else ""
        return CheckResult(need.name, "ok", f"{need.name} {version}{other}")
    lower = [bound for bound in need.specifier if not bound.operator.startswith("<")]
    if all(bound.contains(Version(version), prereleases=True) for bound in lower):
        return CheckResult(need.name, "warn", f"{version} is newer than {need.specifier}, and was never tried", fix)
    return CheckResult(need.name, "fail", f"{version} is older than {need.specifier}", fix)


def _fits(need: Requirement, version: str | None) -> bool:
    try:
        return version is not None and need.specifier.contains(Version(version), prereleases=True)
    except InvalidVersion:
        return True  # a private build names itself as it likes


def _applies(need: Requirement, extra: str) -> bool:
    """Whether a requirement counts on this system with an extra; "": without any."""
    return need.marker is None or need.marker.evaluate({"extra": extra})


def disks(places: Sequence[Place]) -> list[CheckResult]:
    """Judge the room of each place."""
    lines = []
    for name, path, little in places:
        folder = next((folder for folder in (path, *path.parents) if folder.is_dir()), path)
        try:
            tempfile.TemporaryFile(dir=folder).close()
            lines.append(check_disk((name, path, little), shutil.disk_usage(folder).free))
        except OSError as error:
            words = f"{folder}: {error.strerror or error}"
            fix = "name a folder that can be written (--output, HF_HOME, TMPDIR)"
            lines.append(CheckResult(name, "fail", words, fix))
    return lines


def check_disk(place: Place, free: int) -> CheckResult:
    """Judge the room of one place."""
    name, path, little = place
    room = f"make room: {size_text(little)} is little enough, or use a folder on another disk"
    found = f"{path}: {size_text(free)} free"
    return judged(name, found, (free < little / 10, "fail", room), (free < little, "warn", room))
