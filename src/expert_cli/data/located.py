"""Sources that were found: which files the rows of a run are in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from expert_cli.config.run_config import SourceSpec
from expert_cli.data.formats.raw_row import Piece
from expert_cli.data.places import DataFile


@dataclass(frozen=True)
class Located:
    """One source and the files its rows are in; `revision` is the commit of a hub data set, else ""."""

    spec: SourceSpec
    files: tuple[DataFile, ...]
    revision: str = ""

    @property
    def pieces(self) -> list[Piece]:
        """Return its files, each as one piece."""
        return list(map(Piece, self.files))

    def __str__(self) -> str:
        """Return the source as messages name it."""
        return f"{self.spec}" + (f" [{self.spec.split}]" if self.spec.split != "train" else "")


@dataclass(frozen=True)
class LocatedData:
    """All sources of a run, those that train and those that evaluate."""

    train: tuple[Located, ...]
    validation: tuple[Located, ...]

    def files(self) -> list[DataFile]:
        """Return the files that are read, in order, each once."""
        return list(dict.fromkeys(path for source in self.train + self.validation for path in source.files))


def local_hint(alternatives: Sequence[Path], otherwise: str = "") -> str:
    """Return the remedy where a source is not to be had; `alternatives` are data files of this machine."""
    there = f" On this machine: {', '.join(map(str, alternatives))}." if alternatives else ""
    return (
        f"{otherwise + ', or give' if otherwise else 'Give'} the rows as a local file or folder: --dataset PATH.{there}"
    )
