"""What the steps of a Trainer cost, whoever's it is: time, kernel time, arithmetic and losses, watched by a callback."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch.profiler import ProfilerActivity, profile
from transformers import TrainerCallback

from expert_cli.data.packing.batches import documents_of
from expert_cli.data.packing.packed_dataset import PackedDataset
from expert_cli.model.flops import Flops, flops
from expert_cli.utils.length_histogram import LengthHistogram


@dataclass
class StepMeter(TrainerCallback):
    """Times `measured` steps after `warm` others, then profiles `profiled` more on a GPU.

    step_s: seconds of a measured step, their mean. kernel_s: of these the GPU computes and copies; None on a CPU. loss: the
    last that was logged by then. peak_gb: of the GPU's memory, by then; 0 on a CPU. cost: what a token costs.
    """

    warm: int
    measured: int
    profiled: int = 3
    step_s: float = 0.0
    kernel_s: float | None = None
    loss: float = float("nan")
    peak_gb: float = 0.0
    cost: Flops = field(init=False)

    @property
    def steps(self) -> int:
        """Steps that it needs in all."""
        return self.warm + self.measured + self.profiled

    def on_train_begin(self, args: Any, state: Any, control: Any, **parts: Any) -> None:  # noqa: ARG002
        """Count what a token costs."""
        rows = parts["train_dataloader"].dataset
        if isinstance(rows, PackedDataset):
            lengths = rows.document_lengths
        else:
            lengths = LengthHistogram.of(np.array([len(one["labels"]) for row in rows for one in documents_of(row)]))
        self.cost = flops(parts["model"].get_base_model(), lengths, recomputed=False)

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:  # noqa: ARG002
        """Start or stop the clock or the profiler, once all that was asked of the GPU is done."""
        on_gpu, step = torch.cuda.is_available(), state.global_step
        if step not in (self.warm, self.warm + self.measured, self.steps):
            return
        if on_gpu:
            torch.cuda.synchronize()
        if step == self.warm:
            self.step_s = -time.perf_counter()
        elif step < self.steps:
            self.step_s = (self.step_s + time.perf_counter()) / self.measured
            if on_gpu:
                self.peak_gb = torch.cuda.max_memory_allocated() / 2**30
                self.profiler: Any = profile(activities=[ProfilerActivity.CUDA])
                self.profiler.start()
        elif on_gpu:
            self.profiler.stop()
            self.kernel_s = kernel_seconds(self.profiler.events()) / self.profiled

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:  # noqa: ARG002
        """Remember the loss."""
        if "loss" in logs and state.global_step <= self.warm + self.measured:
            self.loss = logs["loss"]


def kernel_seconds(events: Any) -> float:
    """Return the seconds of a profile's kernels and copies; annotations span the gaps between them."""
    on_gpu = [one for one in events if "cuda" in str(one.device_type).lower() and not one.is_user_annotation]
    return float(sum(one.self_device_time_total for one in on_gpu)) / 1e6
