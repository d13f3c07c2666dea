"""Two processes that share out the base model (FSDP2, gloo) train what one process trains, and may take turns with it."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.forked_cli import Forked
from tests.process_groups import variables_of
from tests.train.projects import project
from tests.train.test_distributed import losses

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="Forked")
CLOSE = 1e-4
CONFIG: dict[str, Any] = {
    "max_steps": None,
    "epochs": 1,
    "batch_size": 3,
    "gradient_accumulation_steps": 2,
    "logging_steps": 1,
    "save_steps": 2,
    "learning_rate": 0.01,
}
SHARED, WHOLE = "training.config.fsdp=true", "training.config.fsdp=false"


def trained(manifest: Path, output: Path, processes: int, *settings: str, fails: int = 0) -> str:
    """Train in so many processes, or go on with what lies in `output`; return what the processes told."""
    words = ["train", "--manifest", str(manifest), "--output", str(output), "--offline", "--resume", "auto"]
    for setting in settings:
        words += ["--set", setting]
    env = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    jobs = [Forked(words, output.parent, env=env | its) for its in variables_of(processes)]
    told = "".join(job.communicate(timeout=240)[1] for job in jobs)
    assert [job.returncode for job in jobs] == [fails] * processes, told[-3000:]
    return told


def sizes(folder: Path) -> dict[str, int]:
    return {path.name: path.stat().st_size for path in folder.glob("*.safetensors")}


def test_the_losses_are_those_of_one_process_which_goes_on_from_the_same_files(tmp_path: Path) -> None:
    config = {"adapter_type": "dora", "gradient_checkpointing": True}
    manifest = project(tmp_path, base={"quantization": "int4"}, **CONFIG, **config)
    trained(manifest, tmp_path / "one", 1)
    halved = "training.config.gradient_accumulation_steps=1"
    trained(manifest, tmp_path / "two", 2, SHARED, halved)
    one, two = losses(tmp_path / "one"), losses(tmp_path / "two")
    assert len(one) > 4
    assert two == pytest.approx(one, rel=CLOSE)
    for kept in ("checkpoints/checkpoint-2", "adapter"):
        assert sizes(tmp_path / "two" / kept) == sizes(tmp_path / "one" / kept), kept
    (tmp_path / "two" / "COMPLETE").unlink()
    for checkpoint in (tmp_path / "two" / "checkpoints").iterdir():
        if checkpoint.name != "checkpoint-2":
            shutil.rmtree(checkpoint)
    trained(manifest, tmp_path / "two", 1, WHOLE, halved)
    assert losses(tmp_path / "two") == pytest.approx(one, rel=CLOSE)
    assert "checkpoint-2: step 2, epoch" in (tmp_path / "two" / "log.txt").read_text(encoding="utf-8")
