"""The experiment on a tiny real model: a manifest, and the same without what this tool adds."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from expert_cli.benchmark.experiment import PRESETS
from expert_cli.pipeline.options import QUIET_SETTINGS
from tests.schemas import valid
from tests.train.projects import project, train

ROOT = Path(__file__).parents[2]
CONFIG: dict[str, Any] = {"batch_size": 2, "gradient_accumulation_steps": 4, "max_seq_length": 128, "max_steps": 3}


@pytest.fixture(scope="module")
def manifest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return project(tmp_path_factory.mktemp("project"), **CONFIG)


def steps(manifest: Path, name: str, *settings: str) -> list[dict[str, Any]]:
    """Train; return the logged steps."""
    run = train(manifest, settings=(*QUIET_SETTINGS, *settings), output=manifest.parent / name).output
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]


@pytest.fixture(scope="module")
def ours(manifest: Path) -> list[dict[str, Any]]:
    return steps(manifest, "ours")


@pytest.mark.parametrize("preset", PRESETS)
def test_a_preset_learns_the_same_from_the_same_documents(
    manifest: Path, ours: list[dict[str, Any]], preset: str
) -> None:
    found = steps(manifest, preset, *PRESETS[preset])
    for key in ("tokens_real", "tokens_trained"):
        assert [line[key] for line in found] == [line[key] for line in ours]
    for key in ("loss", "grad_norm"):
        assert [line[key] for line in found] == pytest.approx([line[key] for line in ours], rel=0.02), key
    assert (found[-1]["tokens_padded"] > 0) == (preset != "flattening")


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
