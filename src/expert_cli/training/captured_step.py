"""Records forward and backward of a micro-batch as one CUDA graph, which is replayed for every other micro-batch.

A batch is copied into fixed buffers; the graph reads them and adds to the gradients in place. Clipping and AdamW are recorded
as separate graphs, on the flat buffer. Optimizers of bitsandbytes run eagerly after the replay, because they launch on another
stream (pull 2050). `make_graphed_callables` is not used: it may corrupt accumulated gradients (pytorch issue 181723).

A graph may run on cards and drivers that were never tested, so it is verified first. With the same seed, the first micro-batch
must give the same loss and gradient norm eagerly and by replay, and two replays must give twice the gradient norm.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch

from expert_cli.hardware.devices import Device

LOSS_TOLERANCE, NORM_TOLERANCE = 1e-3, 1e-2  # largest difference of a replay, relative to the eager step
Work = Callable[[], Any]
"""Work to record; it must return the same tensors at every replay."""


class CudaGraphs:
    """Records work as CUDA graphs with a common memory pool; a call returns the function that replays the work."""

    def __init__(self) -> None:
        """Create the stream for all recordings; warm-up runs must use it, too."""
        self.stream: Any = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        self.pool = torch.cuda.graph_pool_handle()

    def warm_up(self, work: Work) -> Any:
        """Run the work eagerly on the stream of the recordings."""
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream):
            done = work()
        torch.cuda.current_stream().wait_stream(self.stream)
        return done

    def __call__(self, work: Work) -> Work:
        """Record the work, which was warmed up before, and return the function that replays it."""
        graph = torch.cuda.CUDAGraph()
        # thread_local: the thread that pins memory allocates during the recording
        with torch.cuda.graph(graph, pool=self.pool, stream=self.stream, capture_error_mode="thread_local"):
            done = work()

        def replay() -> Any:
            graph.replay()
            return done

        return replay


class NotCaptured(Exception):
    """A recorded step differs from the eager one; the message says how."""


class CapturedStep:
    """A recorded training step over fixed buffers. Every replay adds to `gradient`, the buffer of the parameters' gradients."""

    def __init__(
        self,
        loss_of: Callable[..., torch.Tensor],
        gradient: torch.Tensor,
        batch: Mapping[str, Any],
        graphs: Any,
        seed: int,
    ) -> None:
        """Record and verify the step. Raises NotCaptured, or any error of the recording; the gradients are zero in any case.

        loss_of: batch -> summed loss. batch: any batch of the run, on the device; all have the same shapes. graphs: records and
        warms up work, as `CudaGraphs` does.
        """
        self._fixed = {name: value for name, value in batch.items() if not isinstance(value, torch.Tensor)}
        self.buffers = {name: value.clone() for name, value in batch.items() if isinstance(value, torch.Tensor)}
        self._scale = torch.ones((), device=gradient.device)
        self._loss_of, self._gradient, self._graphs, self._seed = loss_of, gradient, graphs, seed
        try:
            self._record(batch)
        finally:
            gradient.zero_()

    def take(self, batch: Mapping[str, Any], scale: float) -> None:
        """Copy a batch into the buffers. scale: multiplies its summed loss."""
        for name, buffer in self.buffers.items():
            buffer.copy_(batch[name], non_blocking=True)
        self._scale.fill_(scale)

    def replay(self) -> torch.Tensor:
        """Add the gradients of the batch in the buffers; return its scaled loss, which the next replay overwrites."""
        return self._replay()  # type: ignore[no-any-return]

    def seconds(self, device: Device) -> float:
        """Return the mean time of five replays."""
        begin, end = device.event(), device.event()
        self.replay()
        begin.record()
        for _ in range(5):
            self.replay()
        end.record()
        end.synchronize()
        self._gradient.zero_()
        return float(begin.elapsed_time(end)) / 5000

    def _record(self, batch: Mapping[str, torch.Tensor]) -> None:
        def work() -> torch.Tensor:
            loss = self._loss_of(**self.buffers, **self._fixed) * self._scale
            loss.backward()  # type: ignore[no-untyped-call]
            return loss.detach()

        eagerly = partial(self._graphs.warm_up, work)
        self._measured(eagerly)  # chooses and compiles kernels
        eager = self._measured(eagerly)
        # Recorded with other tokens, so that a graph that does not read the buffers fails the check.
        for name in ("input_ids", "targets"):
            self.buffers[name].copy_(batch[name].flip(-1))
        self._replay: Work = self._graphs(work)
        self.take(batch, 1.0)
        once = self._measured(self.replay)
        _require_alike("loss", eager[0], once[0], LOSS_TOLERANCE)
        _require_alike("gradient norm", eager[1], once[1], NORM_TOLERANCE)
        torch.manual_seed(self._seed)
        self.replay()
        twice = float(torch.linalg.vector_norm(self._gradient))
        _require_alike("gradient norm of two replays", 2 * once[1], twice, NORM_TOLERANCE)

    def _measured(self, work: Work) -> tuple[float, float]:
        """Return loss and gradient norm of one pass from zero gradients and the seed."""
        self._gradient.zero_()
        torch.manual_seed(self._seed)
        return float(work()), float(torch.linalg.vector_norm(self._gradient))


def _require_alike(what: str, eager: float, replayed: float, tolerance: float) -> None:
    if not abs(eager - replayed) <= tolerance * abs(eager):
        raise NotCaptured(f"{what}: {eager:.6g} eagerly, {replayed:.6g} by replay")


class Recorded:
    """Work that runs eagerly the first time, and is recorded and replayed after that if possible."""

    def __init__(self, work: Work, graphs: Any) -> None:
        """graphs: None to record nothing."""
        self._work, self._graphs = work, graphs
        self._replay: Work | None = None

    def __call__(self) -> Any:
        """Do the work."""
        if self._replay is not None:
            return self._replay()
        if self._graphs is None:
            return self._work()
        done = self._graphs.warm_up(self._work)
        try:
            self._replay = self._graphs(self._work)  # recording executes nothing
        except Exception:  # noqa: BLE001  no error of a driver may end the run
            self._graphs = None
        return done


class CapturedAdamW(torch.optim.AdamW):
    """AdamW with a recorded step. The schedule sets the learning rate as a number; each step copies it into a buffer."""

    def __init__(self, parameters: Any, lr: float, graphs: CudaGraphs, **settings: Any) -> None:
        """Take AdamW's settings and the recorder."""
        super().__init__(parameters, lr=lr, **{**settings, "fused": True, "capturable": True})
        self._rate = torch.tensor(lr, device=self.param_groups[0]["params"][0].device)
        self._recorded = Recorded(super().step, graphs)

    def step(self, closure: Any = None) -> None:  # type: ignore[override]  # noqa: ARG002
        """Do one step."""
        (group,) = self.param_groups
        rate = group["lr"]
        self._rate.fill_(rate)
        group["lr"] = self._rate
        self._recorded()
        group["lr"] = rate
