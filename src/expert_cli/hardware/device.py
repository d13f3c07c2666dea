"""A device that a step can be computed on: what is asked of it, as most of torch's devices answer. Their list: devices.py.

Torch, which takes seconds to load, is loaded by the functions that need it, not by this module.
"""

from __future__ import annotations

import platform
import sys
import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from expert_cli._compat import expandable_segments

if TYPE_CHECKING:
    import torch

    from expert_cli.hardware.machine import Machine

PLAIN_ATTENTION = ("documents", "sdpa", "eager")
"""The attention that is made of torch's own operations, and so there is everywhere."""
ELSEWHERE = "use --device auto, which takes what is there"
FIGURES = {
    "utilization": ("utilization", 1.0),
    "memory_mb": ("device_memory_used", 1e-6),
    "power_w": ("power_draw", 1.0),
    "temperature_c": ("temperature", 1.0),
}
"""What a card may tell of itself, in per cent, MB of 1e6 bytes, watts, degrees Celsius: torch's function, and the factor."""
Count = Literal["memory_allocated", "max_memory_allocated", "memory_reserved", "max_memory_reserved"]
"""Bytes of this process, in torch's words: what its tensors take, and what it holds for them; of both now, and the most."""
Lack = tuple[str, str]
"""What is missing, and the remedy."""
Card = tuple[str, int, tuple[int, int]]
"""Name, bytes of memory and compute capability, (0, 0) where the maker counts none."""


@dataclass(frozen=True)
class Device:
    """A device, and all in which it differs; what is written here holds for those whose torch module is made like torch.cuda.

    name: as `--device`, manifests and run.json have it. type: torch's; AMD's cards have NVIDIA's. title: in messages.
    systems: those that have a torch for it. install: how to get that torch; driver: what to look at where it finds no card.
    automatic: `auto` takes it. bf16_since, tf32_since: the compute capability with which its cards learned it (None: none
    did). pins_memory: copies from pinned memory do not wait. has_triton: Triton's kernels, as Liger's, run there.
    grows_blocks: its allocator can, once it is told. attention: names of back ends. bitsandbytes: the file or folder of that
    package which holds its kernels; small_optimizers: it has 8-bit and paged optimizers. counters: torch's functions of other
    names. figures: those of FIGURES that torch tells at once.
    """

    name: str
    type: str
    title: str
    systems: tuple[str, ...] = ("Linux", "Windows")
    install: str = ""
    driver: str = ""
    automatic: bool = True
    bf16_since: tuple[int, int] = (0, 0)
    tf32_since: tuple[int, int] | None = None
    pins_memory: bool = True
    has_triton: bool = True
    grows_blocks: bool = False
    attention: tuple[str, ...] = PLAIN_ATTENTION
    bitsandbytes: str = "*"
    small_optimizers: bool = True
    counters: Mapping[Count, str] = field(default_factory=dict)
    figures: tuple[str, ...] = ()

    @property
    def kind(self) -> Literal["cpu", "gpu"]:
        """Which of two tables of constants holds for it."""
        return "cpu" if self.type == "cpu" else "gpu"

    @property
    def is_gpu(self) -> bool:
        """Whether it is another thing than the CPU, with memory and time of its own."""
        return self.kind == "gpu"

    def lacks(self, machine: Machine) -> Lack | None:
        """Return what a machine lacks to train on it; None where it can."""
        if machine.system not in self.systems:
            return f"this is {machine.system}; {self.title}s are used on {' and '.join(self.systems)}", ELSEWHERE
        if machine.torch_device != self.name:
            return f"the installed torch is built for {machine.torch_build}", self.install
        return None if machine.gpus else (f"torch finds no {self.title}", self.driver)

    def refuses(self, machine: Machine, quantization: str, optimizer: str) -> Lack | None:
        """Return what bitsandbytes has not for this device; None where a run can have both."""
        if quantization in ("int4", "int8") and self.name in machine.bitsandbytes_lacks:
            remedy = 'pip install --upgrade bitsandbytes, or write "quantization": "none"'
            return f"{quantization}: the installed bitsandbytes has no kernels for {self.title}s", remedy
        if not self.small_optimizers and ("8bit" in optimizer or "paged" in optimizer):
            return f"{optimizer}: bitsandbytes has no such optimizer for {self.title}s", 'write "optim": "adamw_torch"'
        return None

    def is_available(self) -> bool:
        """Whether torch, as installed, can compute on it now. Loads torch."""
        return bool(self._torch().is_available())

    def cards(self) -> list[Card]:
        """Return the cards that torch sees, the one it takes first. Loads torch."""
        with warnings.catch_warnings(), suppress(RuntimeError):
            warnings.simplefilter("ignore")  # of a driver that is too old, with which none is seen
            module = self._torch()
            found = [module.get_device_properties(index) for index in range(module.device_count())]
            return [
                (each.name, int(each.total_memory), (getattr(each, "major", 0), getattr(each, "minor", 0)))
                for each in found
            ]
        return []

    def place(self, process: int = 0) -> str | int:
        """Return where a process's model belongs, as transformers' `device_map` takes it.

        process: its number on this machine; each has a card of its own, dealt as accelerate does.
        """
        return process % int(self._torch().device_count())

    def card_name(self) -> str:
        """Return the name of the card in use."""
        return str(self._torch().get_device_name())

    def memory(self) -> tuple[int, int]:
        """Return (bytes that are free, bytes in all) of the card in use."""
        free, total = self._torch().mem_get_info()
        return int(free), int(total)

    def held(self, count: Count) -> int | None:
        """Return a count of bytes; None where nothing counts it."""
        counter = getattr(self._torch(), self.counters.get(count, count), None)
        return int(counter()) if counter else None

    def reset_peak(self) -> None:
        """Begin to count both peaks anew, where they are counted."""
        if self.held("max_memory_allocated") is not None:
            self._torch().reset_peak_memory_stats()

    def spilled(self) -> int:
        """Return the bytes of its memory that lie in the host's: Windows' driver moves them there without a word."""
        return max(0, (self.held("memory_reserved") or 0) - self.memory()[1])

    def set_flags(self, *, tf32: bool) -> None:
        """Set torch's process-wide switches: TF32 for fp32 matrix products and cuDNN, and an allocator whose blocks grow."""
        import torch

        if self.grows_blocks and has_expandable_segments():  # fixed blocks fragment when batches differ in length
            expandable_segments()
        if self.tf32_since is not None:
            torch.backends.cuda.matmul.allow_tf32 = tf32
            torch.backends.cudnn.allow_tf32 = tf32

    def empty_cache(self) -> None:
        """Give back what torch keeps and nothing uses."""
        self._torch().empty_cache()

    def event(self) -> Any:
        """Return a mark in what the device has to do, which tells the milliseconds to another one."""
        return self._torch().Event(enable_timing=True)

    def rng_states(self) -> list[torch.Tensor]:
        """Return the states of its random generators, one a card."""
        return list(self._torch().get_rng_state_all())

    def set_rng_states(self, states: Sequence[torch.Tensor]) -> None:
        """Set the random generators; of cards, those that are there."""
        module = self._torch()
        for index, state in zip(range(module.device_count()), states, strict=False):
            module.set_rng_state(state, index)

    def sample(self) -> dict[str, float | None] | None:
        """Look once at the card in use: FIGURES, None for what it does not tell; None where it tells nothing."""
        module, found = self._torch(), dict.fromkeys(FIGURES, None) if self.figures else None
        for name in self.figures:
            function, factor = FIGURES[name]
            with suppress(Exception):  # another one for each driver, library and missing package
                found = {**(found or {}), name: factor * float(getattr(module, function)())}
        return found

    def _torch(self) -> Any:
        """Return torch's module for it: torch.cuda, torch.xpu, torch.mps."""
        import torch

        return torch.get_device_module(self.type)


def has_expandable_segments() -> bool:
    """Whether CUDA's allocator can grow its blocks: on Linux, not in WSL 2, where it fails (pytorch issue 192330)."""
    return sys.platform == "linux" and "microsoft" not in platform.release().lower()
