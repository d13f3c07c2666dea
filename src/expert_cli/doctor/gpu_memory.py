"""Who holds GPU memory, and how it comes back. Ends nobody's process."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from expert_cli.hardware.nvml import GpuProcess, GpuSample, driver_info, holders, sample

CLEAR_THE_CACHE = (
    '"Clear the CUDA cache" (torch.cuda.empty_cache()) makes a process hand back what it keeps but does not use; only that '
    "process can do it, and what another process holds comes back when that process ends."
)
UNNAMED_MB = 600.0
"""The driver and the display take this much of a card without a name; more is somebody's."""
_OF_A_GPU = ("index", "name", "memory_used_mb", "memory_total_mb", "problem")


def memory_holders(nvml: Any = None) -> dict[str, Any]:
    """Return what `doctor --free-memory --json` prints: why no GPU can be asked, the GPUs, who holds what, and what to do."""
    gpus, processes = sample(nvml), holders(nvml)
    return {
        "problem": driver_info(nvml).problem,
        "gpus": [{name: getattr(one, name) for name in _OF_A_GPU} for one in gpus],
        "holders": [asdict(row) for row in processes],
        "advice": _advice(gpus, processes),
    }


def _advice(gpus: Sequence[GpuSample], holders: Sequence[GpuProcess]) -> list[str]:
    """Say how memory comes back, for what is held here: sentences to read one after the other."""
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
        held = [row.memory_mb for row in holders if row.gpu == one.index]
        if one.memory_used_mb is None or None in held:
            continue
        unnamed = one.memory_used_mb - sum(mb or 0.0 for mb in held)
        if unnamed > UNNAMED_MB:
            said.append(
                f"GPU {one.index}: {unnamed:,.0f} MB belong to nobody that the driver names: another container, another "
                "user, the display, or a process that is ending."
            )
    return [*said, CLEAR_THE_CACHE]
