"""What a short run came to, read from its run directory and the samples beside it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from expert_cli.benchmark.experiment.measurement import measure_run
from expert_cli.benchmark.monitor.sampler import MonitorSample
from expert_cli.hardware import nvml
from expert_cli.runs.metrics import MetricsTail
from expert_cli.runs.paths import RunPaths
from tests.fake_nvml import FakeNvml, told

LINE = (
    '{"step": %d, "seconds": %d, "loss": 1.0, "tokens_real": %d, "tokens_trained": %d, "tokens_padded": 0,'
    ' "tokens_per_s": 10.0, "memory_mb": 1.0, "step_time_shares": {"forward": 1.0}}\n'
)


@pytest.mark.parametrize(("index", "utilization"), [(0, 20.0), (1, 95.0), (None, 95.0)], ids=["0", "1", "not known"])
def test_the_gpu_is_the_one_that_the_run_had_and_not_the_busiest(
    tmp_path: Path, index: int | None, utilization: float
) -> None:
    paths = RunPaths(tmp_path)
    paths.metrics.write_text("".join(LINE % (n, n, 10 * n, 5 * n) for n in (1, 2, 3)), encoding="utf-8")
    (one,) = told(FakeNvml(), nvml.sample)
    cards = (replace(one, utilization=20.0), replace(one, index=1, utilization=95.0))
    samples = [MonitorSample(1.0, cards)]
    found = measure_run(paths, MetricsTail(paths.metrics).read(), 42, 1, samples, index)
    assert (found.seconds, found.tokens_per_s, found.utilization["gpu"]) == (2, 10.0, utilization)
