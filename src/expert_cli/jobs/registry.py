"""The schedulers that a file can be printed for, one entry each; the file itself is its template in `files/`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

TargetName = Literal["slurm", "skypilot", "kubernetes"]


@dataclass(frozen=True)
class Target:
    """A scheduler.

    template: in `files/`. defaults: the options that not every scheduler takes and this one does, with the value of one
    that is not given; None: it must be. refused: of the others, those that need more words than "not of this scheduler".
    shares_folder: its machines see the folder in which the command is given, so that any manifest can be named.
    """

    template: str
    defaults: dict[str, str | bool | None]
    refused: dict[str, str]
    shares_folder: bool = False


TARGETS: dict[TargetName, Target] = {
    "slurm": Target(
        "slurm.sh.j2",
        {"time": "24:00:00"},
        {"spot": "choose the partition or qos in the file: whichever it is, a job that is preempted goes on"},
        shares_folder=True,
    ),
    "skypilot": Target("skypilot.yaml.j2", {"spot": False, "storage": None}, {}),
    "kubernetes": Target("kubernetes.yaml.j2", {"spot": False, "storage": "expert-cli", "image": "python:3.11"}, {}),
}
