"""How the packs of an optimizer step are split into micro-steps: smaller ones where memory is short, larger ones where a GPU
would wait for kernels to be launched. The effective batch stays.
"""

from __future__ import annotations

from dataclasses import replace

from expert_cli.data.packing.step_schedule import Schedule

MERGED = "micro-steps were merged: the GPU would compute them faster than they are launched"


def smaller(schedule: Schedule, unit: int = 1) -> Schedule:
    """Return the schedule with the next smaller micro-batch, a multiple of `unit`, that divides the present one."""
    batch = max(n for n in range(unit, schedule.batch_size, unit) if schedule.batch_size % n == 0)
    return replace(schedule, batch_size=batch)


def merged(schedule: Schedule, factor: int) -> Schedule:
    """Return the schedule with micro-batches `factor` times as large; it divides the accumulation."""
    return replace(schedule, batch_size=schedule.batch_size * factor)


def merged_words(asked: tuple[int, int], used: tuple[int, int]) -> str:
    """Return one sentence where micro-steps were merged, else "". Each: packs of a micro-batch, micro-batches a step."""
    if used[0] <= asked[0]:
        return ""
    return f"micro-batch {asked[0]} x {asked[1]} -> {used[0]} x {used[1]}: {MERGED}"
