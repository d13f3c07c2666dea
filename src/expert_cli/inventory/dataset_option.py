"""What a user types after `--dataset` to train on a data set that was found."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from expert_cli.data.sources.folder import folder_files
from expert_cli.errors import ExpertError
from expert_cli.utils.reporter import NullReporter


def dataset_option(kind: str, name: str, path: Path, files: Sequence[Path], here: Path) -> str:
    """Return the value of `--dataset` that reads these rows in a command started in `here`, "" where none does.

    files: those of the data set, or the folder that it is. A folder's own name will do where its training split is of these
    files alone; else the one file among them that has a name for training.
    """
    if kind == "hub":
        return name
    if kind not in ("file", "folder", "saved"):
        return ""
    if kind == "file" or files == [path]:
        return _typed(path, here) if kind == "file" or _train_files(path) else ""
    train = _train_files(path)
    if train and set(train) <= set(files):
        return _typed(path, here)
    mine = [file for file in train if file in files]
    return _typed(mine[0], here) if len(mine) == 1 else ""


def _train_files(folder: Path) -> list[Path]:
    try:
        return folder_files(folder, "", "train", NullReporter())
    except (ExpertError, OSError):
        return []


def _typed(path: Path, here: Path) -> str:
    return path.relative_to(here).as_posix() if path.is_relative_to(here) else str(path)
