"""What this machine has: GPUs, memory, cores, number formats, versions. Torch is slow to load: asked if nothing else tells."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import platform
import re
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import psutil

from expert_cli.hardware import nvml
from expert_cli.hardware.devices import DEVICES
from expert_cli.utils.process_setup import prepare_process, usable_cores

FLASH_ATTENTION = {2: ("flash_attn", "flash-attn"), 3: ("flash_attn_interface", "flash-attn-3")}
"""The module and the distribution of each version: FlashAttention 4 has a module of version 2's name."""
PACKAGES = ("torch", "transformers", "peft", "bitsandbytes", "datasets", "accelerate", "tokenizers", "expert-cli")


@dataclass(frozen=True)
class Gpu:
    """One GPU as its driver or torch reports it; `device`: its name in DEVICES."""

    name: str
    memory_bytes: int
    capability: tuple[int, int]
    device: str = "cuda"

    @property
    def has_bf16(self) -> bool:
        """Whether it computes in bfloat16 (NVIDIA: on tensor cores, Ampere, 8.0, and later)."""
        return self.capability >= DEVICES[self.device].bf16_since

    @property
    def has_tf32(self) -> bool:
        """Whether TF32 exists (NVIDIA: Ampere, 8.0, and later)."""
        since = DEVICES[self.device].tf32_since
        return since is not None and self.capability >= since


@dataclass(frozen=True)
class ShortAttention:
    """What trials showed of attention to short documents (`model/kernels/cpu_trials.py`).

    longest: tokens of a document up to which batched matrix products are taken (0: never). trials: (tokens of a document, ms
    of those products at best, ms of one fused call a document at best), as far as they were made.
    """

    longest: int
    trials: tuple[tuple[int, float, float], ...]

    @property
    def words(self) -> str:
        """What is done, and the figures that decided it."""
        told = [
            f"{batched:.2f} ms against {alone:.2f} ms at {tokens} tokens"
            for tokens, batched, alone in self.trials
            if tokens >= self.longest
        ]
        measured = f" (measured on this machine: {', '.join(told)})" if told else ""
        if not self.longest:
            return f"short ones too: batched matrix products take longer here{measured}"
        return f"those of up to {self.longest} tokens by batched matrix products{measured}"


@dataclass(frozen=True)
class Machine:
    """The facts that decisions rest on.

    gpus: those that the installed torch can use, and NVIDIA's that it cannot. torch_cuda, torch_hip, torch_xpu: the version
    of CUDA, ROCm or Intel's toolkit that torch was built for, "" for others; torch_mps: for Metal. unusable: what the driver
    says of cards that do not work. bitsandbytes_lacks: devices for which that package, as installed, has no kernels.
    short_attention: None where it was not tried.
    """

    system: str
    cores: int
    memory_bytes: int
    gpus: tuple[Gpu, ...]
    cpu_bf16: bool
    torch_cuda: str
    versions: tuple[tuple[str, str], ...]
    torch_hip: str = ""
    torch_xpu: str = ""
    torch_mps: bool = False
    unusable: tuple[str, ...] = ()
    bitsandbytes_lacks: tuple[str, ...] = ()
    short_attention: ShortAttention | None = None

    @property
    def torch_device(self) -> str:
        """The device that the installed torch is built for."""
        builds = {"cuda": self.torch_cuda, "rocm": self.torch_hip, "xpu": self.torch_xpu, "mps": self.torch_mps}
        return next((name for name, build in builds.items() if build), "cpu")

    @property
    def torch_build(self) -> str:
        """What the installed torch is built for, in words."""
        words = {
            "cuda": f"CUDA {self.torch_cuda}",
            "rocm": f"ROCm {self.torch_hip}",
            "xpu": f"Intel GPUs ({self.torch_xpu})",
            "mps": "Metal",
            "cpu": "CPUs",
        }
        return words[self.torch_device]

    @property
    def device(self) -> str:
        """The device that `auto` takes."""
        usable = (
            entry.name for entry in DEVICES.values() if entry.is_gpu and entry.automatic and not entry.lacks(self)
        )
        return next(usable, "cpu")

    def words_of(self, device: str) -> str:
        """Return what trains on a device, in words; of the CPU also the GPU that is left alone."""
        if DEVICES[device].is_gpu:
            return self.gpus[0].name
        unused = self.torch_device
        more = f"; {self.gpus[0].name} is there: --device {unused}" if self.gpus and unused != "cpu" else ""
        return f"{self.cores} CPU cores{more}"

    @property
    def first_words(self) -> str:
        """What a user must know before anything else, or "": a GPU that the installed torch cannot use, or nothing can."""
        if not self.gpus and self.unusable:
            return f"{self.unusable[0]}: training runs on the CPU. Fix: expert-cli doctor says what to do"
        if not self.gpus or self.torch_device != "cpu":
            return ""
        return (
            f"{self.gpus[0].name} is here, but the installed torch is a CPU build and will not use it. "
            "Fix: pip install torch --index-url https://download.pytorch.org/whl/cu130 --force-reinstall"
        )


def inspect() -> Machine:
    """Look at this machine."""
    found = Machine(
        system=platform.system(),
        cores=usable_cores(),
        memory_bytes=psutil.virtual_memory().total,
        gpus=(),
        cpu_bf16=_cpu_has_bf16(),
        torch_cuda=_torch_built_for("cuda"),
        versions=(
            ("python", platform.python_version()),
            *((name, installed(name) or "not installed") for name in PACKAGES),
        ),
        torch_hip=_torch_built_for("hip"),
        torch_xpu=_torch_built_for("xpu"),
        torch_mps=(platform.system(), platform.machine()) == ("Darwin", "arm64") and has_package("torch"),
        bitsandbytes_lacks=_bitsandbytes_lacks(),
    )
    if found.torch_device in ("cuda", "cpu"):
        return _with_nvidia(found)
    return replace(found, gpus=_seen_by_torch(found.torch_device))


def has_package(name: str) -> bool:
    """Whether a package can be imported, without importing it."""
    return importlib.util.find_spec(name) is not None


def flash_attention_lacks(version: Literal[2, 3], device: str, machine: Machine) -> str:
    """Return why the package of FlashAttention 2 or 3 does not run on the machine's first GPU, or ""."""
    module, distribution = FLASH_ATTENTION[version]
    if device == "cpu" or not machine.gpus:
        return "flash-attn needs a GPU"
    if f"flash_attention_{version}" not in DEVICES[device].attention:
        return f"flash-attn has no kernels for {DEVICES[device].title}s"
    if version == 3 and machine.gpus[0].capability[0] != 9:
        return "FlashAttention 3 is for Hopper GPUs"
    if version == 2 and not machine.gpus[0].has_bf16:
        return "this GPU is older than Ampere"
    return "" if has_package(module) and installed(distribution) else f"{distribution} is not installed"


def cpu_facts() -> tuple[str, str]:
    """Return the CPU's model and what it can do (its flags), as Linux tells; elsewhere its name alone."""
    text = _text(Path("/proc/cpuinfo"))
    told = dict(re.findall(r"^(model name|CPU part|flags|Features)\s*:\s*(.*)$", text, re.MULTILINE))
    model = told.get("model name") or told.get("CPU part") or platform.processor() or platform.machine()
    return model.strip(), told.get("flags") or told.get("Features") or ""


def installed(name: str) -> str | None:
    """Return the version of an installed distribution, or None."""
    with suppress(importlib.metadata.PackageNotFoundError):
        return importlib.metadata.version(name)
    return None


def _with_nvidia(found: Machine) -> Machine:
    """Return the machine with the cards that training may use, the one it takes first, as the driver or else torch tells."""
    cards = nvml.sample()
    shown = [cards[index] for index in nvml.visible()]
    unusable = tuple(
        f"{card.name or f'GPU {card.index}'} does not answer ({card.problem})" for card in shown if card.problem
    )
    gpus = tuple(
        # a card that shares the host's memory has none to tell of; of one in slices, it is the slice's that counts
        Gpu(card.name, card.memory_bytes or found.memory_bytes, card.capability)
        for card in shown
        if card.capability is not None and (card.memory_bytes is not None or not card.mig)
    )
    told = bool(gpus) and len(gpus) == len(shown)
    if found.torch_device == "cuda" and not told:
        gpus = _seen_by_torch("cuda") or gpus
    return replace(found, gpus=gpus, unusable=unusable)


def _seen_by_torch(device: str) -> tuple[Gpu, ...]:
    prepare_process()  # its settings are read when torch is loaded
    return tuple(Gpu(*card, device) for card in DEVICES[device].cards())


def _torch_built_for(toolkit: str) -> str:
    """Read the version of a toolkit from torch's version file, because importing torch takes seconds; "": not built for it."""
    folder = _folder_of("torch")
    text = _text(folder / "version.py") if folder else ""
    match = re.search(rf"^{toolkit}\b[^=\n]*=\s*['\"]([^'\"]+)['\"]", text, re.MULTILINE)
    return match.group(1) if match else ""


def _bitsandbytes_lacks() -> tuple[str, ...]:
    """Look into the package's folder: importing it loads torch."""
    folder = _folder_of("bitsandbytes")
    return tuple(name for name, device in DEVICES.items() if folder and not any(folder.glob(device.bitsandbytes)))


def _folder_of(package: str) -> Path | None:
    spec = importlib.util.find_spec(package)
    places = spec.submodule_search_locations if spec else None
    return Path(places[0]) if places else None


def _cpu_has_bf16() -> bool:
    """Whether the CPU multiplies bfloat16 natively (AVX512-BF16, AMX, Arm BF16), as Linux tells; elsewhere nothing does."""
    return bool(re.search(r"\b(avx512_bf16|amx_bf16|bf16)\b", _text(Path("/proc/cpuinfo"))))


def _text(path: Path) -> str:
    """Return the text of a file, "" of one that cannot be read."""
    with suppress(OSError):
        return path.read_text(encoding="utf-8", errors="replace")
    return ""
