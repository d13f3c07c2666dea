"""`expert-cli job`."""

from __future__ import annotations

from typing import Annotated

import typer

from expert_cli.commands.options import BaseModel, ManifestPath
from expert_cli.console.terminal import Console
from expert_cli.jobs.registry import TargetName


def job(
    console: Console,
    manifest: ManifestPath,
    target: Annotated[TargetName, typer.Option("--for", help="Whose file it is.")],
    nodes: Annotated[int, typer.Option(min=1, help="How many machines.")] = 1,
    gpus: Annotated[int, typer.Option(min=1, help="GPUs of each machine; each gets a process.")] = 1,
    spot: Annotated[
        bool, typer.Option("--spot", help="Machines that may be taken away, for less (skypilot, kubernetes).")
    ] = False,
    name: Annotated[str | None, typer.Option(help="Name of the job. Default: made of the manifest's.")] = None,
    base_model: BaseModel = None,
    time: Annotated[
        str | None, typer.Option(metavar="D-HH:MM:SS", help="slurm: the longest time. Default: 24:00:00.")
    ] = None,
    image: Annotated[str | None, typer.Option(help="kubernetes: the container's image. Default: python:3.11.")] = None,
    storage: Annotated[
        str | None,
        typer.Option(
            help="What is kept when machines go. kubernetes: a volume claim, by default expert-cli; skypilot: a bucket's URL."
        ),
    ] = None,
) -> None:
    """Print the file by which SLURM, SkyPilot or Kubernetes trains an expert. Nothing is started.

    The file is yours to change; its comments say where, and what must be there. It prepares the data, trains with --resume
    auto, and is tried again where the run was stopped by a signal (exit code 143), and three times where the machine lacked
    something (3); all else ends it. The manifest is named from the folder in which the command is given.

    Examples:

        expert-cli job --for slurm -m experts/expert-sql/manifest.json --nodes 2 --gpus 4 > job.sh

        expert-cli job --for kubernetes -m experts/expert-sql/manifest.json --spot > job.yaml

        expert-cli job --for skypilot -m experts/expert-sql/manifest.json --spot --storage s3://bucket/runs > job.yaml
    """
    from expert_cli import __version__
    from expert_cli.jobs.job import Job, job_file

    options = {"spot": spot, "time": time, "image": image, "storage": storage}
    asked = Job(target, manifest, nodes, gpus, name or "", base_model or "", options)
    named, file = job_file(asked, __version__)
    console.result(
        {"for": target, "name": named, "nodes": nodes, "gpus": gpus, "file": file}, lambda: file.rstrip("\n")
    )
