"""A folder -> the files that hold a split: what `save_to_disk` wrote, or data files with split names."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from expert_cli.data.hub import load_card
from expert_cli.data.selection import select_files
from expert_cli.errors import EnvironmentProblem, InputError


def folder_files(folder: Path, config: str, split: str) -> list[Path]:
    """Return the files of `folder` that hold `split`, in reading order; `config` is one of the README's, "" = the default.

    A folder of `save_to_disk` is read as its own lists say: a `Dataset` has no splits, so all of it is taken for "train".
    Raises InputError: no such split, a listed file is missing; EnvironmentProblem: cannot be read.
    """
    try:
        if (folder / "dataset_dict.json").is_file():
            splits = _listed(folder / "dataset_dict.json", "splits")
            if split not in splits:
                raise InputError(f'{folder}: there is no split "{split}"; there is: {", ".join(splits)}')
            return _saved_files(folder / split)
        if (folder / "state.json").is_file():
            return _saved_files(folder)
        names = [path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()]
    except OSError as error:
        raise EnvironmentProblem(f"{folder}: cannot be read: {error.strerror or error}") from error
    card = load_card(folder / "README.md")
    return [folder / name for name in select_files(names, card, config, split, str(folder))]


def _saved_files(folder: Path) -> list[Path]:
    """The Arrow files of one saved `Dataset`, in the order of its state."""
    entries = _listed(folder / "state.json", "_data_files")
    files = [folder / str(entry["filename"]) for entry in entries if isinstance(entry, dict) and "filename" in entry]
    for path in files:
        if path.parent != folder or not path.is_file():
            raise InputError(
                f"{path}: listed in {folder / 'state.json'}, but it is not there", "Save the data set again."
            )
    return files


def _listed(path: Path, key: str) -> list[Any]:
    try:
        listed = json.loads(path.read_text(encoding="utf-8"))[key]
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f'{path}: not written by save_to_disk (no list "{key}")') from error
    return list(listed)
