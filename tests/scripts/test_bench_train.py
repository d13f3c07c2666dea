"""The measuring scripts in miniature: every way trains the same, so that its time may be compared."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import bench_gpu
from benchmarks.bench_train import words_of
from benchmarks.lib import own_step, step_check, step_meter

WARM, MEASURED = 1, 2
pytestmark = pytest.mark.filterwarnings("default")  # the other ways' libraries warn of each other


@pytest.fixture(scope="module")
def manifest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("bench")
    base = {"name": str(bench_gpu.make_model(home, on_gpu=False)), "quantization": "none"}
    config = {**bench_gpu.CONFIG, "max_seq_length": 128, "batch_size": 2, "dataloader_num_workers": 0, "bf16": False}
    rows = bench_gpu.make_rows(home, on_gpu=False)
    return own_step.write_manifest(home / "project", base, rows, {**config, "learning_rate": 0.01})


def test_every_way_trains_the_same(manifest: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = {way: own_step.child(way, manifest, WARM, MEASURED) for way in ("ours", "bare")}
    assert all(len(one["step_s"]) == MEASURED for one in found.values())
    assert len({(*one["real"], *one["trained"], one["flops"]) for one in found.values()}) == 1
    assert found["ours"]["losses"][-1] < found["ours"]["losses"][0] - 1e-3
    for way, one in found.items():
        assert one["losses"] == pytest.approx(found["ours"]["losses"], abs=2e-4), way
    against = bench_gpu.compare("flattening", manifest, WARM, MEASURED)
    assert against is not None
    assert [sum(against[side]["runs"][0]["trained_tokens"][WARM:]) for side in "ab"] == [
        sum(found["ours"]["trained"])
    ] * 2
    bench_gpu.show({**found, "stock": against, "gone": None}, peak=1e12)
    shown = capsys.readouterr().out
    assert f"| stock | {against['b']['tokens_per_s']['mean']:,.0f}, " in shown
    assert "gone: not measured" in shown


def test_correctness_comes_first(manifest: Path) -> None:
    lines = step_check.check(manifest.parents[1] / "model", on_gpu=False)
    assert set(lines) == {"machine", "isolation, documents", "NF4 with copy"}


def test_idle_share_and_pairs() -> None:
    assert step_meter.idle_share([(0, 2), (1, 3), (5, 10)]) == pytest.approx(0.2)
    told = words_of([{"step_s": [2.0, 2.0], "between_s": [1.0, 1.0]}, {"step_s": [2.0], "between_s": [1.0]}])
    assert told.startswith(
        "a step of ours takes 2.000 (2.000-2.000) times the loop's, median 2.000, 3 pairs; +1000.00 ms"
    )
    assert words_of([{"step_s": [1.0, 4.0], "between_s": [1.0, 1.0]}]).startswith("a step of ours takes 2.000 ")
