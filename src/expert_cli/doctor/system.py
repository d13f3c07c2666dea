"""Python, the system, the driver, the torch build, the GPUs: what can be told without loading torch."""

from __future__ import annotations

import platform
import sys
from collections.abc import Sequence
from pathlib import Path

from packaging.specifiers import SpecifierSet

from expert_cli.doctor.check_result import CheckResult
from expert_cli.hardware.machine import Machine
from expert_cli.hardware.nvml import Driver, GpuInfo, GpuProcess, GpuSample
from expert_cli.utils.text import size_text

SMALL_MEMORY_BYTES = 6_000_000_000
"""The smallest base models train within 3 GB of main memory on a CPU; the libraries and the system need as much again."""
_NVIDIA = "0x10de"


def gpu_warning(machine: Machine) -> list[CheckResult]:
    """Return the line that comes before all others, if there is one: a GPU that the installed torch cannot use."""
    words, _, fix = machine.first_words.partition(" Fix: ")
    return [CheckResult("torch build", "fail", words, fix)] if words else []


def python(version: str, needs: str, bits: int) -> CheckResult:
    """Judge the interpreter; `needs` is the distribution's own Requires-Python."""
    found = f"{version}, {bits} bit, {sys.executable}"
    if bits < 64 or version not in SpecifierSet(needs, prereleases=True):
        return CheckResult(
            "Python", "fail", found, f"install a 64-bit Python {needs} and make a new virtual environment with it"
        )
    return CheckResult("Python", "ok", found)


def system(machine: Machine) -> CheckResult:
    """Name the system, its cores and memory."""
    bf16 = ", bf16 in hardware" if machine.cpu_bf16 else ""
    found = f"{platform.platform()}, {machine.cores} CPU cores{bf16}, {size_text(machine.memory_bytes)} memory"
    if machine.memory_bytes < SMALL_MEMORY_BYTES:
        return CheckResult("system", "warn", found, "little memory: choose a small base model, close other programs")
    return CheckResult("system", "ok", found)


def check_driver(found: Driver, nvidia_device: bool) -> CheckResult:
    """Judge the NVIDIA driver; `nvidia_device`: the system lists a card of that maker."""
    if not found.problem:
        cuda = f", runs CUDA up to {found.cuda[0]}.{found.cuda[1]}" if found.cuda else ""
        return CheckResult("driver", "ok", f"NVIDIA {found.version}{cuda}")
    if "mismatch" in found.problem.lower():
        fix = "the driver was updated while it was in use: restart the machine"
        return CheckResult("driver", "fail", f"the NVIDIA driver cannot be asked: {found.problem}", fix)
    if nvidia_device:
        fix = "install NVIDIA's driver (in a container: start it with the GPU handed in, docker run --gpus all)"
        return CheckResult(
            "driver", "fail", f"an NVIDIA card is in this machine, but its driver does not answer: {found.problem}", fix
        )
    return CheckResult("driver", "ok", f"no NVIDIA driver ({found.problem})")


def torch_build(machine: Machine, found: Driver) -> CheckResult:
    """Judge which torch is installed, and whether the driver can run the CUDA it was built for."""
    version = dict(machine.versions).get("torch", "not installed")
    if version == "not installed":
        return CheckResult("torch build", "fail", "torch is not installed", "pip install torch")
    if not machine.torch_cuda:
        return CheckResult("torch build", "ok", f"{version}, for CPUs")
    words = f"{version}, built for CUDA {machine.torch_cuda}"
    if found.cuda and int(machine.torch_cuda.split(".")[0]) > found.cuda[0]:
        index = f"https://download.pytorch.org/whl/cu{found.cuda[0]}{found.cuda[1]}"
        fix = (
            f"update the NVIDIA driver, or try an older build: pip install torch --index-url {index} --force-reinstall"
        )
        return CheckResult(
            "torch build", "fail", f"{words}; the driver runs CUDA up to {found.cuda[0]}.{found.cuda[1]}", fix
        )
    return CheckResult("torch build", "ok", words)


def check_gpus(cards: Sequence[GpuInfo], visible: str | None) -> list[CheckResult]:
    """Judge every GPU; `visible` is CUDA_VISIBLE_DEVICES, None where it is not set."""
    if not cards:
        return [CheckResult("GPU", "warn", "none: training runs on the CPU, which suits small models and trials only")]
    lines = [_gpu(card) for card in cards]
    if visible is not None:
        hidden = "hides every GPU" if visible.strip() in ("", "-1") else "chooses which GPUs are seen"
        state, fix = (
            ("warn", "unset CUDA_VISIBLE_DEVICES to train on a GPU") if hidden.startswith("hides") else ("ok", "")
        )
        lines.append(
            CheckResult(
                "GPU choice", "warn" if state == "warn" else "ok", f"CUDA_VISIBLE_DEVICES={visible!r} {hidden}", fix
            )
        )
    elif len(cards) > 1:
        found = f"{len(cards)} GPUs; training uses one, the first; CUDA_VISIBLE_DEVICES=N chooses another"
        lines.append(CheckResult("GPU choice", "ok", found))
    return lines


def memory_in_use(samples: Sequence[GpuSample], holders: Sequence[GpuProcess]) -> list[CheckResult]:
    """Say how much of each GPU's memory is taken, and by whom; more than a tenth is worth a warning."""
    lines = []
    for sample in samples:
        if sample.memory_used_mb is None or not sample.memory_total_mb:
            continue
        ours = [holder for holder in holders if holder.gpu == sample.index]
        names = ", ".join(f"{row.pid} ({_mb(row.memory_mb)})" for row in ours[:3]) or "none that the driver names"
        more = f" and {len(ours) - 3} more" if len(ours) > 3 else ""
        found = f"{_mb(sample.memory_used_mb)} of {_mb(sample.memory_total_mb)} in use; processes: {names}{more}"
        full = sample.memory_used_mb > 0.1 * sample.memory_total_mb
        fix = "expert-cli doctor --free-memory says who, and how to give it back" if full else ""
        lines.append(CheckResult(f"GPU {sample.index} memory", "warn" if full else "ok", found, fix))
    return lines


def has_nvidia_device(devices: Path = Path("/sys/bus/pci/devices")) -> bool:
    """Whether Linux lists a display or 3D controller of NVIDIA, driver or not; elsewhere there is no list to look into."""
    try:
        return any(
            (device / "vendor").read_text().strip() == _NVIDIA and (device / "class").read_text().startswith("0x03")
            for device in devices.iterdir()
        )
    except OSError:
        return False


def _gpu(card: GpuInfo) -> CheckResult:
    name = f"GPU {card.index}"
    if card.problem:
        fix = "restart the machine; if it comes back, look at power, heat and seat of the card (Linux: dmesg, lines with Xid)"
        return CheckResult(name, "fail", f"{card.name or 'a card'} does not answer: {card.problem}", fix)
    memory = "memory not told" if card.memory_bytes is None else size_text(card.memory_bytes)
    found = ", ".join([card.name, memory, *_abilities(card.capability), *([card.model] if card.model else [])])
    if card.mig:
        fix = "training sees the slice that CUDA_VISIBLE_DEVICES=MIG-... names (nvidia-smi -L lists them), not the whole card"
        return CheckResult(name, "warn", f"{found}, split into slices (MIG): utilization is not told", fix)
    if card.capability is not None and card.capability < (8, 0):
        return CheckResult(name, "warn", found, "no bfloat16 before Ampere: training uses fp16 here")
    if card.model == "WDDM":
        fix = (
            "under WDDM memory that does not fit spills into main memory and training crawls: NVIDIA Control Panel, "
            "Manage 3D settings, CUDA - Sysmem Fallback Policy, Prefer No Sysmem Fallback"
        )
        return CheckResult(name, "warn", found, fix)
    return CheckResult(name, "ok", found)


def _abilities(capability: tuple[int, int] | None) -> list[str]:
    if capability is None:
        return ["compute capability not told"]
    # bf16 and TF32 came with Ampere (8.0), FP8 with Ada (8.9).
    has = [word for word, since in (("bf16", (8, 0)), ("TF32", (8, 0)), ("FP8", (8, 9))) if capability >= since]
    lacks = [word for word in ("bf16", "TF32", "FP8") if word not in has]
    return [
        f"compute capability {capability[0]}.{capability[1]}",
        *([" ".join(has)] if has else []),
        *([f"no {' '.join(lacks)}"] if lacks else []),
    ]


def _mb(value: float | None) -> str:
    return "size not told" if value is None else f"{value:,.0f} MB"
