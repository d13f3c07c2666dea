"""The job files of examples/jobs: what reads them finds what they say, and they name what the commands take."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from expert_cli.errors import EnvironmentProblem

JOBS = Path(__file__).parents[2] / "examples" / "jobs"


def test_the_job_files_are_read_and_try_again_what_may_end_otherwise() -> None:
    job = yaml.safe_load((JOBS / "train.k8s.yaml").read_text(encoding="utf-8"))
    rules = {
        rule["action"]: rule.get("onExitCodes", {}).get("values") for rule in job["spec"]["podFailurePolicy"]["rules"]
    }
    (container,) = job["spec"]["template"]["spec"]["containers"]
    assert (job["kind"], rules["Count"], rules["Ignore"]) == ("Job", [EnvironmentProblem.exit_code], [143])
    assert job["spec"]["template"]["spec"]["restartPolicy"] == "Never"  # without it there is no podFailurePolicy
    sky = yaml.safe_load((JOBS / "train.sky.yaml").read_text(encoding="utf-8"))
    assert sky["resources"]["job_recovery"]["recover_on_exit_codes"] == [143]
    slurm = (JOBS / "train.slurm").read_text(encoding="utf-8")
    options = dict(re.findall(r"^#SBATCH --([\w-]+)=(.+)$", slurm, re.MULTILINE))
    assert (options["signal"], "#SBATCH --requeue\n" in slurm) == ("TERM@120", True)
    if bash := shutil.which("bash"):
        for script in (slurm, *container["args"], sky["setup"], sky["run"]):
            done = subprocess.run([bash, "-n"], input=script, capture_output=True, encoding="utf-8", check=False)
            assert (done.returncode, done.stderr) == (0, "")
    else:
        pytest.skip("no bash")
