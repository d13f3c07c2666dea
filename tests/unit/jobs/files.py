"""The files of a small expert for every scheduler, and the shell scripts in them."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import yaml

from expert_cli.jobs.job import Job
from expert_cli.jobs.job import job_file as job_file_of
from expert_cli.jobs.registry import TargetName
from tests import manifests

BASH = shutil.which("bash") or "bash"
SIZES = [(1, 1), (1, 2), (3, 1), (2, 8)]
STORAGE = {"skypilot": "s3://bucket/runs"}


def job_file(job: Job) -> tuple[str, str]:
    """Return a job's name and file, of some version."""
    return job_file_of(job, "0.1.0")


def written(target: TargetName, nodes: int = 1, gpus: int = 1, **options: str | bool) -> str:
    """Return the file of the small expert in this folder, which is made where it is not there."""
    if not Path("manifest.json").is_file():
        manifests.write(Path(), manifests.small())
    if target in STORAGE:
        options = {"storage": STORAGE[target], **options}
    return job_file(Job(target, Path("manifest.json"), nodes, gpus, options=options))[1]


def of_kind(text: str, kind: str) -> dict[str, Any]:
    """Return the one document of this kind in a file for Kubernetes."""
    (found,) = (one for one in yaml.safe_load_all(text) if one["kind"] == kind)
    return found  # type: ignore[no-any-return]


def scripts(target: TargetName, text: str) -> list[str]:
    """Return the shell scripts of a file."""
    if target == "slurm":
        return [text]
    if target == "skypilot":
        task = yaml.safe_load(text)
        return [task["setup"], task["run"]]
    return [of_kind(text, "Job")["spec"]["template"]["spec"]["containers"][0]["args"][0]]
