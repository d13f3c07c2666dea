"""Communication between the processes of a job: counts, flags, decisions, and waiting. Uses gloo, on CPUs.

Reading a number through the devices' own backend would wait for all work in their queues. NCCL also gives up after ten
minutes, while the first process may tokenize for hours; gloo fails at once when a process has ended.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import lru_cache
from typing import Any, TypeVar, cast

from expert_cli.errors import EnvironmentProblem, ExpertError
from expert_cli.utils.text import first_line

LONGEST_WAIT = timedelta(days=7)
Result = TypeVar("Result")


def _dist() -> Any:
    import torch.distributed as dist  # torch is slow to import, and a single process may not need it

    return dist


def world_size() -> int:
    """Return the number of processes in the job; 1 for a single process."""
    dist = _dist()
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def all_reduce_sum(*counts: int) -> list[int]:
    """Return each count summed over all processes; all must call it."""
    if world_size() == 1:
        return list(counts)
    import torch

    sums = torch.tensor(counts, dtype=torch.int64)
    _dist().all_reduce(sums, group=_cpu_group())
    return sums.tolist()


def all_reduce_any(*flags: bool) -> list[bool]:
    """Return each flag, true if any process sets it: all must save, stop and shrink the batch at the same step."""
    return [count > 0 for count in all_reduce_sum(*flags)]


def all_gather(value: Result) -> list[Result]:
    """Return the values of all processes in order; all must call it."""
    if world_size() == 1:
        return [value]
    held: list[Any] = [None] * world_size()
    _dist().all_gather_object(held, value, group=_cpu_group())
    return held


def broadcast_rank0(decide: Callable[[], Result]) -> Result:
    """Return the result of `decide` in every process; only the first process calls it."""
    return cast(Result, all_gather(decide() if _is_first() else None)[0])


def barrier() -> None:
    """Wait until every process has arrived here."""
    all_reduce_sum(0)


@contextmanager
def rank0_first() -> Iterator[None]:
    """Let the first process run the block before the others, however long it takes."""
    if not _is_first():
        barrier()
    yield
    if _is_first():
        barrier()


def leave() -> None:
    """Wait for all processes and disconnect them. A process that left early would count as failed."""
    if world_size() == 1:
        return
    barrier()
    _group_beside.cache_clear()  # a group that outlives the others sometimes aborts the process
    _dist().destroy_process_group()


@contextmanager
def naming_lost_processes() -> Iterator[None]:
    """Convert a broken connection into an error which says that another process of the job has ended.

    Raises EnvironmentProblem in the first process (exit code 3, at which schedulers retry), and ExpertError in the others
    (exit code 1), so that the first one's exit code is the highest.
    """
    try:
        yield
    except RuntimeError as error:
        dist = _dist()
        is_lost = isinstance(error, dist.DistError) or "gloo/transport" in str(error)  # gloo has no class for it
        if world_size() == 1 or not is_lost:
            raise
        told = f"lost the connection to another process of this job, which has probably ended: {first_line(error)}"
        hint = "read that process's error, then continue with --resume auto"
        raise (EnvironmentProblem if dist.get_rank() == 0 else ExpertError)(told, hint) from error


def _is_first() -> bool:
    return world_size() == 1 or _dist().get_rank() == 0


def _cpu_group() -> Any:
    return _group_beside(_dist().group.WORLD)


@lru_cache(1)
def _group_beside(world: Any) -> Any:  # noqa: ARG001  a job that is set up again gets a new group
    """Return a gloo group of all processes. The first call creates it; all processes must make it."""
    return _dist().new_group(backend="gloo", timeout=LONGEST_WAIT)
