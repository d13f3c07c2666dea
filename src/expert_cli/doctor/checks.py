"""What is told of a machine, and what is tried (`probes.py`): a line a check, ok, warn or fail, with a remedy.

Probes run in a process of their own: one that crashes or hangs costs its line, not the report.
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
from packaging.specifiers import SpecifierSet
from packaging.version import InvalidVersion, Version

from expert_cli.errors import EnvironmentProblem
from expert_cli.evaluation.verifiers.sandbox.child_process import standing_walls
from expert_cli.hardware import machine, nvml
from expert_cli.hardware.machine import Gpu, Machine, installed
from expert_cli.hardware.nvml import Driver, GpuSample
from expert_cli.utils.reporter import Reporter
from expert_cli.utils.subprocesses import JsonLinesWorker, LineProcess, how_it_ended, last_words
from expert_cli.utils.text import first_line, size_text

State = Literal["ok", "warn", "fail"]
"""From best to worst."""
SMALL_MEMORY_BYTES = 6_000_000_000
"""The smallest base models train within 3 GB of main memory on a CPU; the libraries and the system need as much again."""
ABILITIES = (("bf16", (8, 0)), ("TF32", (8, 0)), ("FP8", (8, 9)))
"""What GPUs learned, and in which compute capability: Ampere's, Ada's."""
_WDDM = (
    "under WDDM memory that does not fit spills into main memory and training crawls: NVIDIA Control Panel, "
    "Manage 3D settings, CUDA - Sysmem Fallback Policy, Prefer No Sysmem Fallback"
)
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
    """Something that is tried. run: returns what it found where all is well, and raises where it is not.

    severity, fix: how bad that is, and what to do. limit_s: after how long it counts as hung.
    """

    name: str
    run: Callable[[], str]
    severity: State
    fix: str
    limit_s: float


def judged(name: str, found: str, *problems: tuple[object, State, str]) -> CheckResult:
    """Return a check's line: the first of `problems` (whether it is there, how bad it is, the remedy) decides, none is ok."""
    for is_there, state, fix in problems:
        if is_there:
            return CheckResult(name, state, found, fix)
    return CheckResult(name, "ok", found)


def worst(lines: Sequence[CheckResult]) -> State:
    """Return the state of all lines together."""
    return max((line.state for line in lines), key=get_args(State).index, default="ok")


def check_up(report: Reporter, probes: Sequence[Probe]) -> list[CheckResult]:
    """Return the lines of this machine and of the working directory; the probes, which load torch, come last."""
    lines = list(told())
    with report.progress("checking", None, "checks done") as bar:
        bar.update(len(lines), f"now {probes[0].name}")
        for line in run_probes(probes):
            lines.append(line)
            bar.update(len(lines))
    return lines


def told() -> Iterator[CheckResult]:
    """Yield what is told without being tried; a GPU that the installed torch cannot use comes before everything else."""
    from huggingface_hub import constants

    facts, driver, cards = machine.inspect(), nvml.driver_info(), nvml.sample()
    build = torch_build(facts, driver)
    if build.state == "fail":
        yield build
    needed = importlib.metadata.metadata("expert-cli")
    yield python(platform.python_version(), needed["Requires-Python"])
    yield system(facts)
    yield check_driver(driver)
    if build.state != "fail":
        yield build
    yield from gpus(cards, os.environ.get("CUDA_VISIBLE_DEVICES"), facts.gpus)
    yield from packages(map(Requirement, needed.get_all("Requires-Dist", [])))
    deno = installed("deno")
    found = f"deno {deno}: type-checked and run with their tests" if deno else "no deno: they cannot be judged"
    yield CheckResult("TypeScript answers", "ok", found, "" if deno else 'pip install "expert-cli[evaluate]"')
    yield walls(standing_walls())
    yield disk(
        "disk, output", Path.cwd(), 5_000_000_000
    )  # a run with its checkpoints: under 1 GB for the shipped experts
    yield disk("disk, HF cache", Path(constants.HF_HUB_CACHE), 10_000_000_000)  # base models of 0.3 to 8 GB
    yield disk("disk, temp", Path(tempfile.gettempdir()), 2_000_000_000)


def python(version: str, needs: str) -> CheckResult:
    """Judge the interpreter; `needs` is the distribution's own Requires-Python."""
    is_other = sys.maxsize < 2**32 or version not in SpecifierSet(needs, prereleases=True)
    fix = f"install a 64-bit Python {needs} and make a new virtual environment with it"
    return judged("Python", f"{version}, {sys.executable}", (is_other, "fail", fix))


def system(machine: Machine) -> CheckResult:
    """Name the system, its cores and memory."""
    bf16 = ", bf16 in hardware" if machine.cpu_bf16 else ""
    found = f"{platform.platform()}, {machine.cores} CPU cores{bf16}, {size_text(machine.memory_bytes)} memory"
    fix = "little memory: choose a small base model, close other programs"
    return judged("system", found, (machine.memory_bytes < SMALL_MEMORY_BYTES, "warn", fix))


def check_driver(found: Driver) -> CheckResult:
    """Judge the NVIDIA driver."""
    if found.problem:
        is_updated = "mismatch" in found.problem.lower()
        fix = "the driver was updated while it was in use: restart the machine"
        return judged("driver", f"no NVIDIA driver answers ({found.problem})", (is_updated, "fail", fix))
    cuda = ", runs CUDA up to {}.{}".format(*found.cuda) if found.cuda else ""
    return CheckResult("driver", "ok", f"NVIDIA {found.version}{cuda}")


def torch_build(machine: Machine, found: Driver) -> CheckResult:
    """Judge which torch is installed: whether it can use a GPU that is here, and the driver the CUDA it was built for."""
    if machine.first_words:
        words, _, fix = machine.first_words.partition(" Fix: ")
        return CheckResult("torch build", "fail", words, fix)
    version = dict(machine.versions).get("torch", "not installed")
    if version == "not installed":
        return CheckResult("torch build", "fail", "torch is not installed", "pip install torch")
    built, driver = machine.torch_cuda, found.cuda
    words = f"{version}, for CPUs" if machine.torch_device == "cpu" else f"{version}, built for {machine.torch_build}"
    if not (built and driver and int(built.split(".")[0]) > driver[0]):
        return CheckResult("torch build", "ok", words)
    index = f"https://download.pytorch.org/whl/cu{driver[0]}{driver[1]}"
    fix = f"update the NVIDIA driver, or try an older build: pip install torch --index-url {index} --force-reinstall"
    return CheckResult("torch build", "fail", f"{words}; the driver runs CUDA up to {driver[0]}.{driver[1]}", fix)


def gpus(cards: Sequence[GpuSample], visible: str | None, seen: Sequence[Gpu] = ()) -> Iterator[CheckResult]:
    """Judge every GPU; `visible` is CUDA_VISIBLE_DEVICES, None where it is not set. seen: what torch sees, of any maker."""
    if not (cards or seen):
        yield CheckResult("GPU", "warn", "none: training runs on the CPU, which suits small models and trials only")
    for index, gpu in enumerate(() if cards else seen):
        yield CheckResult(f"GPU {index}", "ok", f"{gpu.name}, {size_text(gpu.memory_bytes)}")
    for card in cards:
        yield _gpu(card)
        used, total = card.memory_used_mb, card.memory_total_mb
        if used is not None and total and used > 0.1 * total:
            taken = f"{used:,.0f} MB of {total:,.0f} MB in use"
            fix = "memory comes back when its process ends: nvidia-smi names it; shut down the kernel of a notebook"
            yield CheckResult(f"GPU {card.index} memory", "warn", taken, fix)
    if cards and visible is not None:
        is_hidden = visible.strip() in ("", "-1")
        found = f"CUDA_VISIBLE_DEVICES={visible!r} {'hides every GPU' if is_hidden else 'chooses which GPUs are seen'}"
        yield judged("GPU choice", found, (is_hidden, "warn", "unset CUDA_VISIBLE_DEVICES to train on a GPU"))
    elif len(cards) > 1:
        found = f"{len(cards)} GPUs; training uses one, the first; CUDA_VISIBLE_DEVICES=N chooses another"
        yield CheckResult("GPU choice", "ok", found)


def _gpu(card: GpuSample) -> CheckResult:
    name, capability = f"GPU {card.index}", card.capability
    if card.problem:
        fix = "restart the machine; if it comes back, look at power, heat and seat of the card (Linux: dmesg, lines with Xid)"
        return CheckResult(name, "fail", f"{card.name or 'a card'} does not answer: {card.problem}", fix)
    words = [card.name, "shares the system's memory" if card.memory_bytes is None else size_text(card.memory_bytes)]
    if capability:
        has = " ".join(word for word, since in ABILITIES if capability >= since)
        lacks = " ".join(word for word, since in ABILITIES if capability < since)
        words += [f"compute capability {capability[0]}.{capability[1]}", has, f"no {lacks}" if lacks else ""]
    old = capability is not None and capability < (8, 0)
    return judged(
        name,
        ", ".join(filter(None, (*words, card.model))),
        (old, "warn", "no bfloat16 before Ampere: training uses fp16 here"),
        (card.model == "WDDM", "warn", _WDDM),
    )


def packages(
    needs: Iterable[Requirement], version_of: Callable[[str], str | None] = installed
) -> Iterator[CheckResult]:
    """Judge every package that is always needed; those that are as they should be share one line."""
    fine = []
    for need in needs:
        if need.marker and not need.marker.evaluate({"extra": ""}):
            continue
        version, fix = version_of(need.name), f'pip install "{need.name}{need.specifier}"'
        if version is None:
            yield CheckResult(need.name, "fail", f"not installed; needed: {need.specifier or 'any version'}", fix)
        elif _fits(need, version):
            fine.append(f"{need.name} {version}")
        else:
            yield CheckResult(need.name, "fail", f"{version} is not {need.specifier}", fix)
    yield CheckResult("packages", "ok", ", ".join(fine))


def _fits(need: Requirement, version: str) -> bool:
    try:
        return need.specifier.contains(Version(version), prereleases=True)
    except InvalidVersion:
        return True  # a private build names itself as it likes


def walls(standing: Sequence[str]) -> CheckResult:
    """Say what of the system keeps the programs that are answers from its files and its network."""
    lacking = [
        *(["the network"] if not {"syscalls", "namespaces"} & set(standing) else []),
        *(["files"] if "files" not in standing else []),
    ]
    fix = (
        f"only Deno itself keeps them from {' and '.join(lacking)}: evaluate on Linux 5.13 or later, or in a container"
    )
    if "the network" in lacking:
        fix += "; where you trust the model: evaluate --without-walls"
    return judged("walls around answers", f"{', '.join(standing) or 'none'} stand", (lacking, "warn", fix))


def disk(name: str, path: Path, little: int) -> CheckResult:
    """Judge the room of a folder. little: free bytes below which that is a warning; below a tenth nothing works."""
    folder = next((folder for folder in (path, *path.parents) if folder.is_dir()), path)
    try:
        tempfile.TemporaryFile(dir=folder).close()
        free = shutil.disk_usage(folder).free
    except OSError as error:
        fix = "name a folder that can be written (--output, HF_HOME, TMPDIR)"
        return CheckResult(name, "fail", f"{folder}: {error.strerror or error}", fix)
    room = f"make room: {size_text(little)} is little enough, or use a folder on another disk"
    found = f"{path}: {size_text(free)} free"
    return judged(name, found, (free < little / 10, "fail", room), (free < little, "warn", room))


def attempt(probe: Probe) -> CheckResult:
    """Try something in this process; what it raises is its line."""
    try:
        return CheckResult(probe.name, "ok", probe.run())
    except EnvironmentProblem as problem:
        return CheckResult(probe.name, probe.severity, problem.message, problem.hint or probe.fix)
    except Exception as error:  # noqa: BLE001  a trial finds out what breaks, and the report must go on
        return CheckResult(probe.name, probe.severity, f"{type(error).__name__}: {first_line(error)}", probe.fix)


def run_probes(probes: Sequence[Probe], program: str = _PROGRAM) -> Iterator[CheckResult]:
    """Yield the line of each probe in turn; one that dies or hangs ends the process, which is replaced for the rest.

    program: answers each line {"probe": name} with a line, that probe's CheckResult.
    """
    try:
        with (
            tempfile.TemporaryDirectory(prefix="expert-cli-doctor-", ignore_cleanup_errors=True) as name,
            closing(JsonLinesWorker(partial(_start, program, Path(name)))) as worker,
        ):
            for probe in probes:
                try:
                    yield CheckResult(**worker.ask({"probe": probe.name}, probe.limit_s))
                except TimeoutError:
                    yield CheckResult(probe.name, probe.severity, f"no answer within {probe.limit_s:.0f} s", probe.fix)
                except EOFError as error:
                    found = ": ".join(filter(None, (how_it_ended(*error.args), last_words(Path(name, "stderr.txt")))))
                    yield CheckResult(probe.name, probe.severity, found, probe.fix)
    except OSError as error:
        found = f"no process can be started to try torch: {error}"
        yield CheckResult("probes", "fail", found, "look at memory and disk space")


def _start(program: str, folder: Path) -> LineProcess:
    """Start the child with our import path and no network, where nothing compiled earlier is used again."""
    command = [sys.executable, "-X", "faulthandler", "-W", "ignore", "-c", program]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        "PYTHONIOENCODING": "utf-8",
        "HF_HUB_OFFLINE": "1",
        "TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor"),
        "TRITON_CACHE_DIR": str(folder / "triton"),
        "TORCHINDUCTOR_COMPILE_THREADS": "1",
    }
    with (folder / "stderr.txt").open("wb") as stderr:
        return LineProcess(command, cwd=folder, env=environment, stderr=stderr)
