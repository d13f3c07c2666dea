"""Checks the machine by facts and by probes (`probes.py`), with a line for each: ok, warn or fail, and a remedy.

Probes run in a separate process: a probe that crashes or hangs fails only its own line.
"""

from __future__ import annotations

import importlib.metadata
import os
import platform
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal, get_args

from packaging.requirements import Requirement

from expert_cli.errors import EnvironmentProblem
from expert_cli.hardware import machine, nvml
from expert_cli.hardware.machine import Gpu, Machine, installed
from expert_cli.hardware.nvml import Driver
from expert_cli.utils.subprocesses import JsonLinesWorker, LineProcess, how_it_ended, last_words
from expert_cli.utils.text import first_line, size_text

State = Literal["ok", "warn", "fail"]
"""The states, from best to worst."""
LIMIT_S = 300.0
"""A probe that takes longer counts as hanging."""
_PROGRAM = "from expert_cli.doctor.probes import main; main()"


@dataclass(frozen=True)
class CheckResult:
    """One line of the report. warn: training works, but worse than it could; fail: it will not work. `fix` may be empty."""

    name: str
    state: State
    found: str
    fix: str = ""


@dataclass(frozen=True)
class Probe:
    """Something to try: `run` returns what it found, and raises an error on failure. fix: what to do then."""

    name: str
    run: Callable[[], str]
    severity: State
    fix: str


def worst(lines: Sequence[CheckResult]) -> State:
    """Return the worst state of all lines."""
    return max((line.state for line in lines), key=get_args(State).index, default="ok")


def told() -> Iterator[CheckResult]:
    """Yield the results of checks that need no probe; a torch build that cannot use the GPU comes first."""
    from huggingface_hub import constants

    facts, driver = machine.inspect(), nvml.driver_info()
    build = torch_build(facts, driver)
    if build.state == "fail":
        yield build
    bf16 = ", bf16 in hardware" if facts.cpu_bf16 else ""
    size = size_text(facts.memory_bytes)
    python = f"Python {platform.python_version()} ({sys.executable})"
    yield CheckResult("system", "ok", f"{platform.platform()}, {facts.cores} CPU cores{bf16}, {size} memory, {python}")
    yield check_driver(driver)
    if build.state != "fail":
        yield build
    yield from gpus(facts.gpus, has_cards=bool(nvml.sample()))
    yield from packages(map(Requirement, importlib.metadata.requires("expert-cli") or []))
    # a run with its checkpoints: under 1 GB for the shipped experts
    yield disk("disk, output", Path.cwd(), 5_000_000_000)
    yield disk("disk, HF cache", Path(constants.HF_HUB_CACHE), 10_000_000_000)  # base models of 0.3 to 8 GB


def check_driver(found: Driver) -> CheckResult:
    """Judge the NVIDIA driver."""
    if "mismatch" in found.problem.lower():
        return CheckResult("driver", "fail", found.problem, "it was updated while it was in use: restart the machine")
    if found.problem:
        return CheckResult("driver", "ok", f"no NVIDIA driver answers ({found.problem})")
    cuda = ", runs CUDA up to {}.{}".format(*found.cuda) if found.cuda else ""
    return CheckResult("driver", "ok", f"NVIDIA {found.version}{cuda}")


def torch_build(machine: Machine, found: Driver) -> CheckResult:
    """Judge the installed torch: whether it can use an existing GPU, and whether the driver fits its CUDA version."""
    if machine.first_words:
        words, _, fix = machine.first_words.partition(" Fix: ")
        return CheckResult("torch build", "fail", words, fix)
    built, driver = machine.torch_cuda, found.cuda
    words = f"{installed('torch')}, built for {machine.torch_build}"
    if not (built and driver and int(built.split(".")[0]) > driver[0]):
        return CheckResult("torch build", "ok", words)
    index = f"https://download.pytorch.org/whl/cu{driver[0]}{driver[1]}"
    fix = f"update the NVIDIA driver, or try an older build: pip install torch --index-url {index} --force-reinstall"
    return CheckResult("torch build", "fail", f"{words}; the driver runs CUDA up to {driver[0]}.{driver[1]}", fix)


def gpus(usable: Sequence[Gpu], *, has_cards: bool) -> Iterator[CheckResult]:
    """Judge the GPUs that training may use, the preferred one first. has_cards: the driver reports some."""
    if not usable:
        found = "none that training can use: it runs on the CPU, which is enough for small models and trials only"
        chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
        fix = f"unset CUDA_VISIBLE_DEVICES, which is {chosen!r}" if has_cards and chosen is not None else ""
        yield CheckResult("GPU", "warn", found, fix)
    for number, gpu in enumerate(usable):
        found = f"{gpu.name}, {size_text(gpu.memory_bytes)}, compute capability {gpu.capability[0]}.{gpu.capability[1]}"
        if gpu.is_ampere:
            yield CheckResult(f"GPU {number}", "ok", found)
        else:
            yield CheckResult(f"GPU {number}", "warn", found, "no bfloat16 before Ampere: training uses fp16 here")


def packages(
    needs: Iterable[Requirement], version_of: Callable[[str], str | None] = installed
) -> Iterator[CheckResult]:
    """Judge every required package; all good ones share a line."""
    fine = []
    for need in needs:
        if need.marker and not need.marker.evaluate({"extra": ""}):
            continue
        version = version_of(need.name)
        if version is not None and need.specifier.contains(version, prereleases=True):
            fine.append(f"{need.name} {version}")
            continue
        found = f"{version or 'none'} is installed; needed: {need.specifier or 'any version'}"
        yield CheckResult(need.name, "fail", found, f'pip install "{need.name}{need.specifier}"')
    yield CheckResult("packages", "ok", ", ".join(fine))


def disk(name: str, path: Path, little: int) -> CheckResult:
    """Judge the free space of a folder: less than `little` bytes is a warning, less than a tenth of that a failure."""
    free = shutil.disk_usage(next(folder for folder in (path, *path.parents) if folder.is_dir())).free
    found = f"{path}: {size_text(free)} free"
    if free >= little:
        return CheckResult(name, "ok", found)
    fix = f"free some space ({size_text(little)} are needed), or use a folder on another disk"
    return CheckResult(name, "fail" if free < little / 10 else "warn", found, fix)


def attempt(probe: Probe) -> CheckResult:
    """Run a probe in this process; an exception becomes its line."""
    try:
        return CheckResult(probe.name, "ok", probe.run())
    except EnvironmentProblem as problem:
        return CheckResult(probe.name, probe.severity, problem.message, problem.hint or probe.fix)
    except Exception as error:  # noqa: BLE001  a probe may raise anything, and the report must continue
        return CheckResult(probe.name, probe.severity, f"{type(error).__name__}: {first_line(error)}", probe.fix)


def run_probes(probes: Sequence[Probe], program: str = _PROGRAM, limit_s: float = LIMIT_S) -> Iterator[CheckResult]:
    """Yield the line of each probe; one that crashes or hangs ends its process, which is replaced for the rest."""
    with (
        tempfile.TemporaryDirectory(prefix="expert-cli-doctor-", ignore_cleanup_errors=True) as name,
        closing(JsonLinesWorker(partial(_start, program, Path(name)))) as worker,
    ):
        for probe in probes:
            try:
                yield CheckResult(**worker.ask({"probe": probe.name}, limit_s))
            except TimeoutError:
                yield CheckResult(probe.name, probe.severity, f"no answer within {limit_s:.0f} s", probe.fix)
            except EOFError as error:
                found = ": ".join(filter(None, (how_it_ended(*error.args), last_words(Path(name, "stderr.txt")))))
                yield CheckResult(probe.name, probe.severity, found, probe.fix)


def _start(program: str, folder: Path) -> LineProcess:
    """Start the child with our import path, without network, and without compiled code of earlier runs."""
    command = [sys.executable, "-X", "faulthandler", "-W", "ignore", "-c", program]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        "HF_HUB_OFFLINE": "1",
        "TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor"),
        "TRITON_CACHE_DIR": str(folder / "triton"),
    }
    with (folder / "stderr.txt").open("wb") as stderr:
        return LineProcess(command, cwd=folder, env=environment, stderr=stderr)
