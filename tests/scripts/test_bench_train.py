"""What a step of the tool's loop costs beyond a plain one, in miniature."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from transformers import TrainerCallback

from benchmarks.bench_train import SMALL_STEPS, PlainSteps, main, words_of
from benchmarks.lib.own_step import own_step, prepare, write_manifest
from tests import tiny


@pytest.fixture(scope="module")
def manifest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Learns next to nothing: both loops find the same values at every step."""
    home = tmp_path_factory.mktemp("bench")
    rows = [(f"Add {n} and {n % 7}", str(n + n % 7)) for n in range(40)]
    config = {**SMALL_STEPS, "learning_rate": 1e-9, "logging_steps": 1}
    return write_manifest(home / "project", tiny.tiny_model_folder(home / "model"), "none", rows, config)


class Losses(TrainerCallback):
    def __init__(self) -> None:
        self.found: list[float] = []

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
        self.found += [logs["loss"]] if "loss" in logs else []


def test_the_plain_loop_takes_the_same_steps(manifest: Path) -> None:
    plain, ours = PlainSteps(), Losses()
    own_step(prepare(manifest, 3), [plain, ours])
    assert len(set(ours.found)) == 3
    assert plain.losses == pytest.approx(ours.found, abs=1e-5)


def test_every_pair_but_the_first_is_written(
    manifest: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [
        "--manifest",
        str(manifest),
        "--runs",
        "2",
        "--warm",
        "1",
        "--steps",
        "2",
        "--json",
        str(tmp_path / "pairs"),
    ]
    pairs = main(words)
    assert [tuple(pair) for pair in json.loads((tmp_path / "pairs").read_text(encoding="utf-8"))] == pairs
    assert capsys.readouterr().out.endswith(f"{words_of(pairs)}\n")
    assert ", 4 pairs; " in words_of(pairs)


def test_the_ratio_in_words() -> None:
    told = words_of([(2.0, 1.0)] * 3)
    assert told.startswith(
        "a step of ours takes 2.000 (2.000-2.000) times the loop's, median 2.000, 3 pairs; +1000.00 ms"
    )
    assert words_of([(1.0, 1.0), (4.0, 1.0)]).startswith("a step of ours takes 2.000 ")
