"""What a rule of a manifest's key may look at, and what it can say."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from expert_cli.machine import Machine
from expert_cli.manifest.training_config import TrainingConfig
from expert_cli.runconfig import RunConfig

Status = Literal["applied", "adjusted", "informational", "not_used"]


@dataclass(frozen=True)
class Outcome:
    """What became of a key."""

    status: Status
    effect: str
    reason: str = ""


@dataclass(frozen=True)
class Facts:
    """What a rule may look at: the merged values as written, what was decided, the machine, where values came from."""

    config: TrainingConfig
    run: RunConfig
    machine: Machine
    origins: Mapping[str, str]


Rule = Callable[[Facts], Outcome]


def applied(effect: str, reason: str = "") -> Outcome:
    """The key does what it says."""
    return Outcome("applied", effect, reason)


def adjusted(effect: str, reason: str) -> Outcome:
    """The key's job is done with another value."""
    return Outcome("adjusted", effect, reason)


def not_used(reason: str) -> Outcome:
    """The key has no effect in this run."""
    return Outcome("not_used", "", reason)


def informational(reason: str) -> Outcome:
    """The key is there for people or other programs."""
    return Outcome("informational", "", reason)
