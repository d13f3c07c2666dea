"""Who holds GPU memory, and how it comes back. Ends nobody's process."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from expert_cli.hardware.nvml import GpuProcess, GpuSample, driver_info, holders, sample

CLEAR_THE_CACHE = (
    '"Clear the CUDA cache" (torch.cuda.empty_cache()) makes a process hand back what it keeps but does not use; only that '
    "process can do it, and what another process holds comes back when that process ends."
)
UNNAMED_MB = 600.0
"""The driver and the display take this much of a card without a name; more is somebody's."""


@dataclass(frozen=True)
class Holding:
    """The GPUs, who holds their memory, and what to do. `problem`: why no GPU can be asked, else ""."""

    problem: str
    gpus: tuple[GpuSample, ...]
    holders: tuple[GpuProcess, ...]

    @property
    def advice(self) -> list[str]:
        """Return sentences to read one after the other."""
        return advice(self.gpus, self.holders)

    def as_json(self) -> dict[str, Any]:
        """Return what `doctor --free-memory --json` prints."""
        rows = [
            {name: getattr(one, name) for name in ("index", "name", "memory_used_mb", "memory_total_mb", "problem")}
            for one in self.gpus
        ]
        return {
            "problem": self.problem,
            "gpus": rows,
            "holders": [asdict(row) for row in self.holders],
            "advice": self.advice,
        }


def memory_holders(nvml: Any = None) -> Holding:
    """Ask the driver."""
    return Holding(driver_info(nvml).problem, tuple(sample(nvml)), tuple(holders(nvml)))


def advice(gpus: Sequence[GpuSample], holders: Sequence[GpuProcess]) -> list[str]:
    """Say how memory comes back, for what is held here."""
    if not gpus:
        return []
    said = []
    if holders:
        end = "taskkill /PID N" if os.name == "nt" else "kill N"
        said.append(
            "Memory comes back when its process ends: Ctrl-C where it was started, shut down the kernel of a notebook, or "
            f"{end} (N is the pid) if it is yours. expert-cli ends no process."
        )
    for one in gpus:
        held = sum(row.memory_mb or 0.0 for row in holders if row.gpu == one.index)
        untold = any(row.memory_mb is None for row in holders if row.gpu == one.index)
        if one.memory_used_mb is not None and not untold and one.memory_used_mb - held > UNNAMED_MB:
            said.append(
                f"GPU {one.index}: {one.memory_used_mb - held:,.0f} MB belong to nobody that the driver names: another "
                "container, another user, the display, or a process that is ending."
            )
    return [*said, CLEAR_THE_CACHE]
