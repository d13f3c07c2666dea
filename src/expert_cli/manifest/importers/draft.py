"""What a configuration of another trainer has become so far."""

from __future__ import annotations

import os
import reprlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel

from expert_cli.manifest.keys.dataset import Dataset
from expert_cli.manifest.messages import unfit
from expert_cli.manifest.training_config import TrainingConfig
from expert_cli.utils.text import one_line, shortened

Block = Literal["base", "dataset", "config"]
_CHECKED: Mapping[str, type[BaseModel]] = {"config": TrainingConfig, "dataset": Dataset}
NOT_WRITTEN = "(not written)"


@dataclass(frozen=True)
class NotCarried:
    """One key of theirs that the manifest does not have, its value as it is shown, and why."""

    key: str
    value: str
    reason: str


@dataclass
class Draft:
    """A manifest in the making.

    written: the file's keys. values: the same, with what the program does where the file does not say. folder: where the
    file lies. home: where the manifest will lie. carried: each key of theirs with its names here; none: it says what happens
    here anyway. refused: what would train something else. files: texts that go beside the manifest, by their names.
    """

    written: Mapping[str, Any]
    values: Mapping[str, Any]
    folder: Path
    home: Path
    blocks: dict[Block, dict[str, Any]] = field(default_factory=lambda: {"base": {}, "dataset": {}, "config": {}})
    carried: dict[str, list[str]] = field(default_factory=dict)
    not_carried: list[NotCarried] = field(default_factory=list)
    refused: list[NotCarried] = field(default_factory=list)
    files: dict[str, str] = field(default_factory=dict)

    def put(self, key: str, block: Block, name: str, value: Any) -> None:
        """Write a key of the manifest for one of theirs; one whose value does not fit is not carried."""
        if block in _CHECKED and (why := unfit(_CHECKED[block], ("training", block, name), value)):
            self.lose(key, f"{name} {why}", value)
            return
        self.blocks[block][name] = value
        self.agree(key)
        self.carried[key].append(name)

    def agree(self, key: str) -> None:
        """Note that a key says what happens here anyway, or is read together with another one."""
        self.carried.setdefault(key, [])

    def lose(self, key: str, reason: str, value: Any = None) -> None:
        """Note that a key is not carried over. value: where it is not the whole value of `key`."""
        if self.carried.get(key) == []:
            del self.carried[key]
        self.not_carried.append(NotCarried(key, self._shown(key, value), reason))

    def refuse(self, key: str, reason: str, value: Any = None) -> None:
        """Note that a key trains what is not trained here."""
        self.refused.append(NotCarried(key, self._shown(key, value), reason))

    def path(self, written: str) -> str:
        """Return a path that leads somewhere as seen from the manifest's folder, another one (a hub id) as it is."""
        for folder in (Path(), self.folder):
            place = folder / written
            if written and place.exists():
                try:
                    return Path(os.path.relpath(place, self.home)).as_posix()
                except ValueError:  # another drive
                    return place.resolve().as_posix()
        return written

    def _shown(self, key: str, value: Any) -> str:
        shown = self.values.get(key) if value is None else value
        if shown is None:
            return NOT_WRITTEN
        return shortened(one_line(shown if isinstance(shown, str) else reprlib.repr(shown)), 48)
