"""What this machine has: GPUs, memory, cores, number formats, versions. Asks no torch, so that asking is quick."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import platform
import re
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from expert_cli.hardware import nvml

PACKAGES = ("torch", "transformers", "peft", "bitsandbytes", "datasets", "accelerate", "tokenizers", "expert-cli")


@dataclass(frozen=True)
class Gpu:
    """One NVIDIA GPU as the driver reports it."""

    name: str
    memory_bytes: int
    capability: tuple[int, int]

    @property
    def has_bf16(self) -> bool:
        """Whether bfloat16 runs on tensor cores (Ampere, 8.0, and later)."""
        return self.capability >= (8, 0)

    @property
    def has_tf32(self) -> bool:
        """Whether TF32 exists (Ampere, 8.0, and later)."""
        return self.capability >= (8, 0)


@dataclass(frozen=True)
class Machine:
    """The facts that decisions rest on. `torch_cuda`: the CUDA version torch was built for, "" for a CPU build."""

    system: str
    cores: int
    memory_bytes: int
    gpus: tuple[Gpu, ...]
    cpu_bf16: bool
    torch_cuda: str
    versions: tuple[tuple[str, str], ...]

    @property
    def cuda_usable(self) -> bool:
        """Whether there is a GPU and a torch that can use it."""
        return bool(self.gpus and self.torch_cuda)

    @property
    def first_words(self) -> str:
        """What a user must know before anything else, or "": a GPU that the installed torch cannot use."""
        if not self.gpus or self.torch_cuda:
            return ""
        return (
            f"{self.gpus[0].name} is here, but the installed torch is a CPU build and will not use it. "
            "Fix: pip install torch --index-url https://download.pytorch.org/whl/cu130 --force-reinstall"
        )


def inspect() -> Machine:
    """Look at this machine."""
    return Machine(
        system=platform.system(),
        cores=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
        memory_bytes=psutil.virtual_memory().total,
        gpus=_gpus(),
        cpu_bf16=_cpu_has_bf16(),
        torch_cuda=_torch_cuda(),
        versions=(
            ("python", platform.python_version()),
            *((name, installed(name) or "not installed") for name in PACKAGES),
        ),
    )


def has_package(name: str) -> bool:
    """Whether a package can be imported, without importing it."""
    return importlib.util.find_spec(name) is not None


def installed(name: str) -> str | None:
    """Return the version of an installed distribution, or None."""
    with suppress(importlib.metadata.PackageNotFoundError):
        return importlib.metadata.version(name)
    return None


def _gpus() -> tuple[Gpu, ...]:
    """Return the GPUs that training may use, the one it takes first."""
    cards = nvml.gpus()
    return tuple(
        Gpu(card.name, card.memory_bytes, card.capability)
        for card in (cards[index] for index in nvml.visible())
        if card.memory_bytes is not None and card.capability is not None
    )


def _torch_cuda() -> str:
    """Read the CUDA version from torch's version file, because importing torch takes seconds."""
    spec = importlib.util.find_spec("torch")
    places = spec.submodule_search_locations if spec else None
    text = _text(Path(places[0]) / "version.py") if places else ""
    match = re.search(r"^cuda[^=\n]*=\s*['\"]([\d.]+)['\"]", text, re.MULTILINE)
    return match.group(1) if match else ""


def _cpu_has_bf16() -> bool:
    """Whether the CPU multiplies bfloat16 natively (AVX512-BF16, AMX, Arm BF16), as Linux tells; elsewhere nothing does."""
    return bool(re.search(r"\b(avx512_bf16|amx_bf16|bf16)\b", _text(Path("/proc/cpuinfo"))))


def _text(path: Path) -> str:
    """Return the text of a file, "" of one that cannot be read."""
    with suppress(OSError):
        return path.read_text(encoding="utf-8", errors="replace")
    return ""
