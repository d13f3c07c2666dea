"""Liger's kernels on a CPU, by Triton's interpreter: what a step with them computes is what transformers' modules compute."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from expert_cli.hardware.machine import has_package

HERE = Path(__file__).parents[4]


@pytest.mark.slow
@pytest.mark.skipif(
    not (has_package("liger_kernel") and has_package("triton")), reason="liger-kernel and triton are not installed"
)
def test_a_step_with_liger_is_that_of_transformers_modules() -> None:
    paths = os.pathsep.join([str(HERE), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(
        [sys.executable, "-m", "tests.liger_interpreted"],
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    steps = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(steps) == 4  # two architectures, with activation checkpointing and without
    for step in steps:
        assert step["fused"] >= 4, "norms and activations of two layers"
        assert step["loss"] == pytest.approx(step["own_loss"], rel=1e-6)
        assert step["difference"] < 1e-5
