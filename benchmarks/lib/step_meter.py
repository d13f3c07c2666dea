"""When steps begin and end; on a GPU also how often the host waits for it, and how long it has nothing to do."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

WATCHED = 4
"""Steps in which host syncs are counted, and then as many under the profiler."""


def make_meter(steps: int, *, on_gpu: bool) -> Any:
    """Return a callback that marks begin and end of every step, without waiting for the GPU.

    `between` is called between two steps and is not part of them. After `steps` steps the GPU is watched.
    """
    import torch
    from transformers import TrainerCallback

    def now() -> Any:
        if not on_gpu:
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record()
        return event

    class Meter(TrainerCallback):
        def __init__(self) -> None:
            self.begins: list[Any] = []
            self.ends: list[Any] = []
            self.found: dict[str, Any] = {}
            self.between: Callable[[], Any] | None = None
            self._watch = watch_gpu(self.found) if on_gpu else iter(())

        def begin(self) -> None:
            self.begins.append(now())

        def end(self) -> None:
            self.ends.append(now())
            if len(self.ends) >= steps:
                next(self._watch, None)
            if self.between is not None:
                self.between()
            self.begin()

        def on_train_begin(self, *_: Any, **__: Any) -> None:
            self.begin()

        def on_step_end(self, *_: Any, **__: Any) -> None:
            self.end()

        def seconds(self) -> list[float]:
            return _differences(self.begins, self.ends, on_gpu=on_gpu)

        def seconds_between(self) -> list[float]:
            return _differences(self.ends, self.begins[1:], on_gpu=on_gpu)

    return Meter()


def _differences(before: list[Any], after: list[Any], *, on_gpu: bool) -> list[float]:
    if on_gpu:
        after[-1].synchronize()
        return [a.elapsed_time(b) / 1000 for a, b in zip(before, after, strict=False)]
    return [b - a for a, b in zip(before, after, strict=False)]


def watch_gpu(found: dict[str, Any]) -> Iterator[None]:
    """Count host syncs over WATCHED steps, then measure over as many how long the GPU was idle; one `next` a step's end."""
    import torch

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode("warn")
        for _ in range(WATCHED):
            yield
        torch.cuda.set_sync_debug_mode("default")
        found["syncs"] = sum("synchronizing" in str(one.message) for one in caught) / WATCHED
    torch.cuda.synchronize()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        for _ in range(WATCHED - 1):
            yield
        torch.cuda.synchronize()
    spans = sorted((e.time_range.start, e.time_range.end) for e in profile.events() or [] if _on_device(e))
    found["idle"] = idle_share(spans)
    yield


def _on_device(event: Any) -> bool:
    """Whether an event is a kernel or a copy; annotations span the gaps that are looked for."""
    if getattr(event, "is_user_annotation", False):
        return False
    return "cuda" in str(event.device_type).lower() and event.time_range.end > event.time_range.start


def idle_share(spans: Sequence[tuple[float, float]]) -> float | None:
    """Return the share of the time from the first to the last of sorted (start, end) that none of them covers."""
    if not spans:
        return None
    busy, reached = 0.0, spans[0][0]
    for start, end in spans:
        busy += max(0.0, end - max(start, reached))
        reached = max(reached, end)
    return 1 - busy / (reached - spans[0][0])
