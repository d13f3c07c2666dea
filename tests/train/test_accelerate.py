"""`accelerate launch` with a configuration of the user's own trains what one process trains at the same effective batch."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.train.projects import logged, project, train

# With MULTI_CPU and with --cpu accelerate 1.15 starts one process alone, whatever num_processes says, but for mpirun's.
CONFIG = """
compute_environment: LOCAL_MACHINE
distributed_type: MULTI_GPU
use_cpu: true
num_machines: 1
num_processes: 2
main_process_port: 0
mixed_precision: bf16
"""


@pytest.mark.slow
def test_two_processes_train_what_one_does_in_the_precision_of_the_manifest(tmp_path: Path) -> None:
    (tmp_path / "accelerate.yaml").write_text(CONFIG, encoding="utf-8")
    config: dict[str, Any] = {"max_steps": None, "epochs": 2, "batch_size": 3, "logging_steps": 1}
    alone = train(project(tmp_path / "one", gradient_accumulation_steps=2, **config))
    manifest = project(tmp_path / "two", gradient_accumulation_steps=1, **config)
    launch = [sys.executable, "-m", "accelerate.commands.launch", "--config_file", str(tmp_path / "accelerate.yaml")]
    words = ["-m", "expert_cli", "train", "--manifest", str(manifest), "--output", str(tmp_path / "run"), "--offline"]
    env = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run([*launch, *words], capture_output=True, text=True, check=False, timeout=240, env=env)
    assert done.returncode == 0, done.stderr[-3000:]
    assert json.loads((tmp_path / "run" / "status.json").read_text(encoding="utf-8"))["world_size"] == 2
    losses = logged(tmp_path / "run", "loss")
    assert len(losses) > 4
    assert losses == pytest.approx(logged(alone.output, "loss"), rel=1e-5)
