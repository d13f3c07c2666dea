"""Describes this machine: GPUs, memory, cores, number formats, versions. torch is slow to import, so it is asked last."""

from __future__ import annotations

import ctypes
import importlib.metadata
import importlib.util
import platform
import re
import sys
import warnings
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import psutil

from expert_cli.hardware import nvml
from expert_cli.utils.process_setup import prepare_process, usable_cores

AMPERE = (8, 0)
"""The compute capability of the first NVIDIA GPUs with bfloat16 on tensor cores and TF32."""
PACKAGES = ("torch", "transformers", "peft", "bitsandbytes", "datasets", "accelerate", "tokenizers", "expert-cli")


@dataclass(frozen=True)
class Gpu:
    """A GPU as its driver or torch reports it."""

    name: str
    memory_bytes: int
    capability: tuple[int, int]

    @property
    def is_ampere(self) -> bool:
        """Whether it computes in bfloat16 and TF32."""
        return self.capability >= AMPERE


@dataclass(frozen=True)
class Machine:
    """Facts about the machine that decisions depend on.

    gpus: those that the installed torch can use, and NVIDIA GPUs that it cannot use. torch_cuda, torch_hip: the version of
    CUDA or ROCm that torch was built for, else "".
    """

    system: str
    cores: int
    memory_bytes: int
    gpus: tuple[Gpu, ...]
    cpu_bf16: bool
    torch_cuda: str
    versions: tuple[tuple[str, str], ...]
    torch_hip: str = ""

    @property
    def torch_device(self) -> str:
        """The device that the installed torch was built for; in torch, AMD GPUs are cuda devices."""
        return "cuda" if self.torch_cuda or self.torch_hip else "cpu"

    @property
    def torch_build(self) -> str:
        """What the installed torch was built for, in words."""
        return f"CUDA {self.torch_cuda}" if self.torch_cuda else f"ROCm {self.torch_hip}" if self.torch_hip else "CPUs"

    @property
    def device(self) -> str:
        """The device for `auto`."""
        return self.torch_device if self.gpus else "cpu"

    def words_of(self, device: str) -> str:
        """Return the training device in words."""
        return self.gpus[0].name if device == "cuda" else f"{self.cores} CPU cores"

    @property
    def first_words(self) -> str:
        """A message about a GPU that the installed torch cannot use, which the user must know first; else ""."""
        if not self.gpus or self.torch_device != "cpu":
            return ""
        return (
            f"{self.gpus[0].name} is here, but the installed torch is a CPU build and will not use it. "
            "Fix: pip install torch --index-url https://download.pytorch.org/whl/cu130 --force-reinstall"
        )


def inspect() -> Machine:
    """Inspect this machine."""
    cuda, hip = _torch_built_for("cuda"), _torch_built_for("hip")
    found = Machine(
        system=platform.system(),
        cores=usable_cores(),
        memory_bytes=psutil.virtual_memory().total,
        gpus=(),
        # native bfloat16 (AVX512-BF16, AMX, Arm BF16), reported only by Linux
        cpu_bf16=bool(re.search(r"\b(avx512_bf16|amx_bf16|bf16)\b", _text(Path("/proc/cpuinfo")))),
        torch_cuda=cuda,
        versions=(
            ("python", platform.python_version()),
            *((name, installed(name) or "not installed") for name in PACKAGES),
        ),
        torch_hip=hip,
    )
    return replace(found, gpus=seen_by_torch()) if hip else _with_nvidia(found)


def has_package(name: str) -> bool:
    """Return whether a package can be imported, without importing it."""
    return importlib.util.find_spec(name) is not None


def installed(name: str) -> str | None:
    """Return the version of an installed distribution, or None."""
    with suppress(importlib.metadata.PackageNotFoundError):
        return importlib.metadata.version(name)
    return None


def _with_nvidia(found: Machine) -> Machine:
    """Return the machine with the NVIDIA GPUs that training may use, the preferred one first, from the driver or torch."""
    gpus = tuple(
        # a GPU that shares the host's memory reports none
        Gpu(card.name, round(1e6 * (card.memory_total_mb or 0.0)) or found.memory_bytes, card.capability)
        for card in nvml.visible()
        if card.capability is not None
    )
    if found.torch_cuda and not gpus:
        with suppress(OSError):  # without the driver's own library, torch sees no GPU either
            ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")
            gpus = seen_by_torch()
    return replace(found, gpus=gpus)


def seen_by_torch() -> tuple[Gpu, ...]:
    """Return the GPUs that torch sees, the preferred one first. Imports torch."""
    prepare_process()  # its settings are read when torch is imported
    import torch

    with warnings.catch_warnings(), suppress(RuntimeError):
        warnings.simplefilter("ignore")  # e.g. the driver is too old, and no GPU is seen
        found = [torch.cuda.get_device_properties(index) for index in range(torch.cuda.device_count())]
        return tuple(Gpu(each.name, int(each.total_memory), (each.major, each.minor)) for each in found)
    return ()


def _torch_built_for(toolkit: str) -> str:
    """Return a toolkit's version from torch's version file, as importing torch takes seconds; "" if not built for it."""
    spec = importlib.util.find_spec("torch")
    text = _text(Path(spec.origin).with_name("version.py")) if spec and spec.origin else ""
    match = re.search(rf"^{toolkit}\b[^=\n]*=\s*['\"]([^'\"]+)['\"]", text, re.MULTILINE)
    return match.group(1) if match else ""


def _text(path: Path) -> str:
    """Return a file's text, "" if it cannot be read."""
    with suppress(OSError):
        return path.read_text(encoding="utf-8", errors="replace")
    return ""
