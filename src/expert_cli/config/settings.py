"""The keys of a manifest on their way into a run: who takes a value says what it does."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Generic, Literal, TypeVar

from expert_cli.manifest.json_parser import Path_

Status = Literal["applied", "adjusted", "informational", "not_used"]
Block = TypeVar("Block")


@dataclass(frozen=True)
class Outcome:
    """What became of a key."""

    status: Status
    effect: str
    reason: str = ""


Outcomes = Mapping[Path_, Outcome]
"""What became of keys, by their path in a block; a path speaks for all below it."""


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


class Settings(Generic[Block]):
    """One block as it was written, and what became of each of its keys.

    A value goes into the run through `use` or `put`, which note what it does there; `leave` notes why one does not. So the
    effects table says what was decided where it was decided. `written` is for looking at one key to decide about another.
    """

    def __init__(self, written: Block) -> None:
        """Take a block; None in it means "not written"."""
        self.written = written
        self.outcomes: dict[Path_, Outcome] = {}

    def use(self, key: str, default: Any, effect: str) -> Any:
        """Return the value of a key, or what stands for it where it is not written, and note its effect."""
        value = getattr(self.written, key)
        return self.put(key, default if value is None else value, effect)

    def put(self, key: str, value: Any, effect: str, reason: str = "") -> Any:
        """Return what a key was decided to, and note its effect; with a reason, that this is not what was written."""
        self.outcomes[(key,)] = adjusted(effect, reason) if reason else applied(effect)
        return value

    def leave(self, reason: str, *keys: str) -> None:
        """Note that keys have no effect in this run."""
        self.outcomes |= {(key,): not_used(reason) for key in keys}
