"""The measuring scripts in miniature: every way trains the same, so that its time may be compared."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import bench_gpu
from benchmarks.bench_train import interval
from benchmarks.lib import step_check, step_meter, train_job, train_ways

WARM, MEASURED = 1, 2
pytestmark = pytest.mark.filterwarnings("default")  # the other ways' libraries warn of each other


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("bench")
    base = {"name": str(bench_gpu.make_model(home, on_gpu=False)), "quantization": "none"}
    config = {**bench_gpu.CONFIG, "max_seq_length": 128, "batch_size": 2, "dataloader_num_workers": 0, "bf16": False}
    rows = bench_gpu.make_rows(home, on_gpu=False)
    return train_job.write_project(home / "project", base, rows, {**config, "learning_rate": 0.01})


def test_every_way_trains_the_same(project: Path) -> None:
    found = {way: train_ways.child(way, project, WARM, MEASURED) for way in ("ours", "bare", "padded", "flat")}
    assert all(len(one["step_s"]) == MEASURED for one in found.values())
    assert len({(*one["real"], *one["trained"], one["flops"]) for one in found.values()}) == 1
    assert found["ours"]["losses"][-1] < found["ours"]["losses"][0] - 1e-3
    for way, one in found.items():
        assert one["losses"] == pytest.approx(found["ours"]["losses"], abs=2e-4), way
    bench_gpu.show(dict(found), peak=1e12)


def test_steps_of_both_in_turn(project: Path) -> None:
    found = train_ways.child("paired", project, WARM, MEASURED)
    assert len(found["step_s"]) == len(found["between_s"]) == MEASURED


def test_correctness_comes_first(project: Path) -> None:
    lines = step_check.check(project.parent / "model", on_gpu=False)
    assert set(lines) == {"machine", "isolation, documents", "NF4 with copy"}


def test_idle_share_and_interval() -> None:
    assert step_meter.idle_share([(0, 2), (1, 3), (5, 10)]) == pytest.approx(0.2)
    mean, low, high = interval([2.0, 2.0, 2.0])
    assert (mean, low, high) == pytest.approx((2.0, 2.0, 2.0))
    assert interval([1.0, 4.0])[0] == pytest.approx(2.0)
