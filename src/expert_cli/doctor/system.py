"""Python, the system, the driver, the torch build, the GPUs: what can be told without loading torch."""

from __future__ import annotations

import platform
import sys
from collections.abc import Sequence
from pathlib import Path

from packaging.specifiers import SpecifierSet

from expert_cli.doctor.check_result import CheckResult, judged
from expert_cli.hardware.machine import Gpu, Machine
from expert_cli.hardware.nvml import Driver, GpuInfo, GpuProcess, GpuSample
from expert_cli.utils.text import size_text

SMALL_MEMORY_BYTES = 6_000_000_000
"""The smallest base models train within 3 GB of main memory on a CPU; the libraries and the system need as much again."""
ABILITIES = (("bf16", (8, 0)), ("TF32", (8, 0)), ("FP8", (8, 9)))
"""What GPUs learned, and in which compute capability: Ampere's, Ada's."""
_NVIDIA = "0x10de"
_RESTART = "the driver was updated while it was in use: restart the machine"
_DRIVER = "install NVIDIA's driver (in a container: start it with the GPU handed in, docker run --gpus all)"
_DEAD = "restart the machine; if it comes back, look at power, heat and seat of the card (Linux: dmesg, lines with Xid)"
_SLICES = (
    "training sees the slice that CUDA_VISIBLE_DEVICES=MIG-... names (nvidia-smi -L lists them), not the whole card"
)
_WDDM = (
    "under WDDM memory that does not fit spills into main memory and training crawls: NVIDIA Control Panel, "
    "Manage 3D settings, CUDA - Sysmem Fallback Policy, Prefer No Sysmem Fallback"
)


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


def check_driver(found: Driver, nvidia_device: bool) -> CheckResult:
    """Judge the NVIDIA driver; `nvidia_device`: the system lists a card of that maker."""
    if not found.problem:
        cuda = f", runs CUDA up to {found.cuda[0]}.{found.cuda[1]}" if found.cuda else ""
        return CheckResult("driver", "ok", f"NVIDIA {found.version}{cuda}")
    is_updated = "mismatch" in found.problem.lower()
    words = (
        f"the NVIDIA driver cannot be asked: {found.problem}"
        if is_updated
        else f"an NVIDIA card is in this machine, but its driver does not answer: {found.problem}"
        if nvidia_device
        else f"no NVIDIA driver ({found.problem})"
    )
    return judged("driver", words, (is_updated, "fail", _RESTART), (nvidia_device, "fail", _DRIVER))


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


def check_gpus(cards: Sequence[GpuInfo], visible: str | None, seen: Sequence[Gpu] = ()) -> list[CheckResult]:
    """Judge every GPU; `visible` is CUDA_VISIBLE_DEVICES, None where it is not set. seen: what torch sees, of any maker."""
    if not cards and seen:
        words = [f"{gpu.name}, {size_text(gpu.memory_bytes)}, --device {gpu.device}" for gpu in seen]
        return [CheckResult(f"GPU {index}", "ok", found) for index, found in enumerate(words)]
    if not cards:
        return [CheckResult("GPU", "warn", "none: training runs on the CPU, which suits small models and trials only")]
    lines = [_gpu(card) for card in cards]
    if visible is not None:
        is_hidden = visible.strip() in ("", "-1")
        found = f"CUDA_VISIBLE_DEVICES={visible!r} {'hides every GPU' if is_hidden else 'chooses which GPUs are seen'}"
        lines.append(judged("GPU choice", found, (is_hidden, "warn", "unset CUDA_VISIBLE_DEVICES to train on a GPU")))
    elif len(cards) > 1:
        found = f"{len(cards)} GPUs; training uses one, the first; CUDA_VISIBLE_DEVICES=N chooses another"
        lines.append(CheckResult("GPU choice", "ok", found))
    return lines


def _gpu(card: GpuInfo) -> CheckResult:
    name, capability = f"GPU {card.index}", card.capability
    if card.problem:
        return CheckResult(name, "fail", f"{card.name or 'a card'} does not answer: {card.problem}", _DEAD)
    untold = "memory not told" if card.mig else "shares the system's memory"
    words = [card.name, untold if card.memory_bytes is None else size_text(card.memory_bytes)]
    if capability is None:
        words.append("compute capability not told")
    else:
        has = " ".join(word for word, since in ABILITIES if capability >= since)
        lacks = " ".join(word for word, since in ABILITIES if capability < since)
        words += [f"compute capability {capability[0]}.{capability[1]}", has, f"no {lacks}" if lacks else ""]
    words += [card.model, "split into slices (MIG): utilization is not told" if card.mig else ""]
    old = capability is not None and capability < (8, 0)
    return judged(
        name,
        ", ".join(word for word in words if word),
        (card.mig, "warn", _SLICES),
        (old, "warn", "no bfloat16 before Ampere: training uses fp16 here"),
        (card.model == "WDDM", "warn", _WDDM),
    )


def memory_in_use(samples: Sequence[GpuSample], holders: Sequence[GpuProcess]) -> list[CheckResult]:
    """Say how much of each GPU's memory is taken, and by whom; more than a tenth is worth a warning."""
    lines = []
    for sample in samples:
        used, total = sample.memory_used_mb, sample.memory_total_mb
        if used is None or not total:
            continue
        ours = [holder for holder in holders if holder.gpu == sample.index]
        names = ", ".join(f"{row.pid} ({_mb(row.memory_mb)})" for row in ours[:3]) or "none that the driver names"
        more = f" and {len(ours) - 3} more" if len(ours) > 3 else ""
        found = f"{_mb(used)} of {_mb(total)} in use; processes: {names}{more}"
        fix = "expert-cli doctor --free-memory says who, and how to give it back"
        lines.append(judged(f"GPU {sample.index} memory", found, (used > 0.1 * total, "warn", fix)))
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


def _mb(value: float | None) -> str:
    return "size not told" if value is None else f"{value:,.0f} MB"
