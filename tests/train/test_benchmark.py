"""The experiment on a tiny real model: this tool's own run, and the stock Trainer's with each preset."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import Trainer

from expert_cli.benchmark import stock_trainer
from expert_cli.config.plan import make_plan
from expert_cli.config.resolve import Overrides
from expert_cli.data.packing.packed_dataset import PackedDataset
from expert_cli.hardware.machine import inspect
from expert_cli.pipeline.options import QUIET_SETTINGS
from expert_cli.pipeline.pretokenize import store_for
from expert_cli.pipeline.training_data import resolve_inputs
from expert_cli.utils.reporter import NullReporter
from tests.small_trainer import IMPOSSIBLE
from tests.train.projects import project, train, valid

ROOT = Path(__file__).parents[2]
CONFIG: dict[str, Any] = {"batch_size": 2, "gradient_accumulation_steps": 4, "max_seq_length": 128, "max_steps": 3}


@pytest.fixture(scope="module")
def manifest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return project(tmp_path_factory.mktemp("project"), **CONFIG)


UNPACKED = "training.config.packing=false"


@pytest.fixture(scope="module")
def ours(manifest: Path) -> list[dict[str, Any]]:
    """The steps of this tool's own run, a document a row."""
    return steps_in(train(manifest, settings=(*QUIET_SETTINGS, UNPACKED), output=manifest.parent / "run").output)


def steps_in(run: Path) -> list[dict[str, Any]]:
    lines = map(json.loads, (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines())
    return [line for line in lines if "loss" in line]


@pytest.fixture
def baseline(manifest: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Train a preset in this process as `benchmark` does in one of its own; gives the exit code."""

    def run(preset: str, *settings: str) -> int:
        asked = {"output": str(tmp_path / "run"), "settings": [*QUIET_SETTINGS, *settings], "max_steps": 3}
        job = {"preset": preset, "manifest": str(manifest), "overrides": asked}
        (tmp_path / "job.json").write_text(json.dumps(job), encoding="utf-8")
        return stock_trainer.main(tmp_path / "job.json")

    return run


@pytest.mark.parametrize(("preset", "padded"), [("padded", 0.013), ("flattening", 0.0), ("unoptimized", 0.81)])
def test_the_stock_trainer_learns_the_same_from_the_same_rows(
    preset: str, padded: float, ours: Any, baseline: Any, tmp_path: Path
) -> None:
    assert baseline(preset, UNPACKED) == 0
    found = steps_in(tmp_path / "run")
    for key in ("step", "tokens_real", "tokens_trained"):
        assert [line[key] for line in found] == [line[key] for line in ours], key
    # first adapter, order of documents, masks, schedule, clipping, optimizer: all the same
    for key in ("loss", "grad_norm", "learning_rate"):
        assert [line[key] for line in found] == pytest.approx([line[key] for line in ours], abs=1e-5), key
    assert found[2]["loss"] < found[0]["loss"]
    last = found[-1]
    assert last["tokens_padded"] / (last["tokens_padded"] + last["tokens_real"]) == pytest.approx(padded, abs=0.01)


def test_a_step_takes_as_many_rows_as_the_packs_hold(manifest: Path) -> None:
    run = make_plan(manifest, inspect(), Overrides(max_steps=3)).run
    inputs = resolve_inputs(run, NullReporter())
    documents = store_for(run, inputs, NullReporter()).training()
    packs = PackedDataset(documents, run.data.max_seq_length, run.loader.packing, run.loader.overflow, run.seed)
    found, trainer, totals = stock_trainer.stock_run("padded", run, inputs, packs)
    rows: Any = trainer.train_dataset
    # 13 packs of 5 documents, one of 4: a step of 8 packs, one of the epoch's last 5, one of 8: 34.3 documents a step
    assert (found.optim.batch_size, found.optim.gradient_accumulation_steps) == (9, 4)
    assert len(rows) == 3 * 9 * 4
    epoch = sorted(tuple(ids) for ids in rows["input_ids"][:64])
    assert epoch == sorted(tuple(documents.document(number)[0].tolist()) for number in range(64))
    labels = [label for label in chain.from_iterable(rows["labels"]) if label >= 0]
    assert totals[-1].tolist()[:2] == [sum(map(len, rows["input_ids"])), len(labels)]
    first = next(iter(trainer.get_train_dataloader()))["input_ids"].tolist()
    assert [row[: len(ids)] for row, ids in zip(first, rows["input_ids"], strict=False)] == rows["input_ids"][:9]


@pytest.mark.slow
def test_both_sides_in_processes_of_their_own(manifest: Path) -> None:
    words = f"benchmark -m {manifest} --against padded --steps 3 --warmup 1 --repeats 1 --gate 1000 --json"
    env = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "CUDA_VISIBLE_DEVICES": "", "PYTHONIOENCODING": "utf-8"}
    command = [sys.executable, "-m", "expert_cli", *words.split()]
    ran = subprocess.run(command, env=env, capture_output=True, encoding="utf-8", timeout=300, check=False)
    assert ran.returncode == 5, ran.stderr
    document = json.loads(ran.stdout)
    valid(document, "benchmark")
    a, b = document["a"], document["b"]
    assert b["padding_share"] > a["padding_share"] == 0.0
    assert document["loss_parity"]["holds"], "packs and padded rows, at equal trained tokens"
    assert document["gate"]["reason"].endswith("is below 1000")
    assert "padded  seed" in ran.stderr


@pytest.mark.filterwarnings("default")  # of a step that never comes
def test_memory_that_runs_out_is_told_with_its_bytes(
    baseline: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(Trainer, "compute_loss", lambda *_, **__: torch.empty(IMPOSSIBLE, dtype=torch.uint8))
    assert baseline("padded") == 4
    told = json.loads(capsys.readouterr().out.splitlines()[-1])["error"]["message"]
    assert told.startswith("out of memory: ")
    assert f"you tried to allocate {IMPOSSIBLE} bytes" in told
