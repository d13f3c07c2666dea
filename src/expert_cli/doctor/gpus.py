"""The GPUs: their driver, the torch that is built for them, what each can, and who holds its memory."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from expert_cli.doctor.check import CheckResult, judged
from expert_cli.hardware.machine import Gpu, Machine
from expert_cli.hardware.nvml import Driver, GpuProcess, GpuSample
from expert_cli.utils.text import size_text

ABILITIES = (("bf16", (8, 0)), ("TF32", (8, 0)), ("FP8", (8, 9)))
"""What GPUs learned, and in which compute capability: Ampere's, Ada's."""
_NVIDIA = "0x10de"
_DRIVER = "install NVIDIA's driver (in a container: start it with the GPU handed in, docker run --gpus all)"
_DEAD = "restart the machine; if it comes back, look at power, heat and seat of the card (Linux: dmesg, lines with Xid)"
_WDDM = (
    "under WDDM memory that does not fit spills into main memory and training crawls: NVIDIA Control Panel, "
    "Manage 3D settings, CUDA - Sysmem Fallback Policy, Prefer No Sysmem Fallback"
)


def check_driver(found: Driver, nvidia_device: bool) -> CheckResult:
    """Judge the NVIDIA driver; `nvidia_device`: the system lists a card of that maker."""
    if not found.problem:
        cuda = ", runs CUDA up to {}.{}".format(*found.cuda) if found.cuda else ""
        return CheckResult("driver", "ok", f"NVIDIA {found.version}{cuda}")
    if "mismatch" in found.problem.lower():
        words = f"the NVIDIA driver cannot be asked: {found.problem}"
        return CheckResult("driver", "fail", words, "the driver was updated while it was in use: restart the machine")
    if nvidia_device:
        words = f"an NVIDIA card is in this machine, but its driver does not answer: {found.problem}"
        return CheckResult("driver", "fail", words, _DRIVER)
    return CheckResult("driver", "ok", f"no NVIDIA driver ({found.problem})")


def has_nvidia_device(devices: Path = Path("/sys/bus/pci/devices")) -> bool:
    """Whether Linux lists a display or 3D controller of NVIDIA, driver or not; elsewhere there is no list to look into."""
    try:
        return any(
            (device / "vendor").read_text().strip() == _NVIDIA and (device / "class").read_text().startswith("0x03")
            for device in devices.iterdir()
        )
    except OSError:
        return False


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


def check_gpus(cards: Sequence[GpuSample], visible: str | None, seen: Sequence[Gpu] = ()) -> list[CheckResult]:
    """Judge every GPU; `visible` is CUDA_VISIBLE_DEVICES, None where it is not set. seen: what torch sees, of any maker."""
    if not cards:
        return [
            CheckResult(f"GPU {index}", "ok", f"{gpu.name}, {size_text(gpu.memory_bytes)}")
            for index, gpu in enumerate(seen)
        ] or [CheckResult("GPU", "warn", "none: training runs on the CPU, which suits small models and trials only")]
    lines = [_gpu(card) for card in cards]
    if visible is not None:
        is_hidden = visible.strip() in ("", "-1")
        found = f"CUDA_VISIBLE_DEVICES={visible!r} {'hides every GPU' if is_hidden else 'chooses which GPUs are seen'}"
        lines.append(judged("GPU choice", found, (is_hidden, "warn", "unset CUDA_VISIBLE_DEVICES to train on a GPU")))
    elif len(cards) > 1:
        found = f"{len(cards)} GPUs; training uses one, the first; CUDA_VISIBLE_DEVICES=N chooses another"
        lines.append(CheckResult("GPU choice", "ok", found))
    return lines


def _gpu(card: GpuSample) -> CheckResult:
    name, capability = f"GPU {card.index}", card.capability
    if card.problem:
        return CheckResult(name, "fail", f"{card.name or 'a card'} does not answer: {card.problem}", _DEAD)
    words = [card.name, "shares the system's memory" if card.memory_bytes is None else size_text(card.memory_bytes)]
    if capability is None:
        words.append("compute capability not told")
    else:
        has = " ".join(word for word, since in ABILITIES if capability >= since)
        lacks = " ".join(word for word, since in ABILITIES if capability < since)
        words += [f"compute capability {capability[0]}.{capability[1]}", has, f"no {lacks}" if lacks else ""]
    words.append(card.model)
    old = capability is not None and capability < (8, 0)
    return judged(
        name,
        ", ".join(word for word in words if word),
        (old, "warn", "no bfloat16 before Ampere: training uses fp16 here"),
        (card.model == "WDDM", "warn", _WDDM),
    )


def memory_in_use(cards: Sequence[GpuSample], holders: Sequence[GpuProcess]) -> list[CheckResult]:
    """Say how much of each GPU's memory is taken, and by whom; more than a tenth is worth a warning."""
    lines = []
    for card in cards:
        used, total = card.memory_used_mb, card.memory_total_mb
        if used is None or not total:
            continue
        held = [f"{row.pid} ({megabytes(row.memory_mb, 'size not told')})" for row in holders if row.gpu == card.index]
        names = ", ".join(held[:3]) or "none that the driver names"
        more = f" and {len(held) - 3} more" if len(held) > 3 else ""
        found = f"{megabytes(used)} of {megabytes(total)} in use; processes: {names}{more}"
        fix = "memory comes back when its process ends: Ctrl-C where it was started, or shut down the kernel of a notebook"
        lines.append(judged(f"GPU {card.index} memory", found, (used > 0.1 * total, "warn", fix)))
    return lines


def megabytes(value: float | None, untold: str = "not told") -> str:
    """Return a figure of the driver's in words."""
    return untold if value is None else f"{value:,.0f} MB"
