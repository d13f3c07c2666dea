"""Two processes (gloo, CPU) train what one process trains at the same effective batch, and go on after a break."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests import tiny
from tests.train.projects import project

TOGETHER = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
TORCHRUN = [*TOGETHER, "-m", "expert_cli"]
ALONE = [sys.executable, "-m", "expert_cli"]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.tiny_model_folder(tmp_path_factory.mktemp("models") / "tiny-llama")


def run(command: list[str], manifest: Path, *options: str) -> dict[str, Any]:
    words = [*command, "train", "--manifest", str(manifest), "--json", "--offline", *options]
    done = subprocess.run(
        words, capture_output=True, text=True, check=False, env={**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    )
    assert done.returncode == 0, done.stderr[-3000:]
    documents = [line for line in done.stdout.splitlines() if line.startswith("{")]
    assert len(documents) == 1
    return json.loads(documents[0])  # type: ignore[no-any-return]


def losses(output: Path) -> list[float]:
    lines = [json.loads(line) for line in (output / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    return [line["loss"] for line in lines if "loss" in line]


def test_two_processes_train_what_one_does_and_resume(tmp_path: Path, model: Path) -> None:
    config = {
        "max_steps": None,
        "epochs": 2,
        "batch_size": 3,
        "logging_steps": 1,
        "save_steps": 2,
        "learning_rate": 0.01,
    }
    one = project(tmp_path / "one", model, gradient_accumulation_steps=2, **config)
    two = project(tmp_path / "two", model, gradient_accumulation_steps=1, **config)
    alone = run(ALONE, one, "--output", str(tmp_path / "a"))
    together = run(TORCHRUN, two, "--output", str(tmp_path / "b"))
    assert together["steps"] == alone["steps"]
    for kind in ("real", "trained"):
        assert together["tokens"][kind] == alone["tokens"][kind]
    assert losses(tmp_path / "b") == pytest.approx(losses(tmp_path / "a"), rel=1e-5)
    (tmp_path / "b" / "COMPLETE").unlink()
    for checkpoint in (tmp_path / "b" / "checkpoints").iterdir():
        if checkpoint.name != "checkpoint-2":
            for path in checkpoint.iterdir():
                path.unlink()
            checkpoint.rmdir()
    resumed = run(TORCHRUN, two, "--output", str(tmp_path / "b"), "--resume", "auto")
    assert resumed["resumed_from"].endswith("checkpoint-2")
    assert resumed["adapter_sha256"] == together["adapter_sha256"]


UNEQUAL = """
import sys
from pathlib import Path
from accelerate import Accelerator
from expert_cli.training.training_loop import broadcast_rank0

accelerator = Accelerator(cpu=True)
rank = accelerator.process_index
found = broadcast_rank0(accelerator, lambda: (0.3, 0.9)[rank])
Path(sys.argv[1], str(rank)).write_text(repr(found))
accelerator.end_training()
"""


def test_all_processes_judge_by_what_the_first_one_found(tmp_path: Path) -> None:
    script = tmp_path / "unequal.py"
    script.write_text(UNEQUAL, encoding="utf-8")
    done = subprocess.run(
        [*TOGETHER, str(script), str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "CUDA_VISIBLE_DEVICES": ""},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert [(tmp_path / rank).read_text() for rank in "01"] == ["0.3", "0.3"]
