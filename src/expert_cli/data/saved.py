"""What the library `datasets` writes with `save_to_disk`, as token stores are laid out too: which files hold a split's rows.

    train/state.json       {"_data_files": [{"filename": "data-00000.arrow"}, ...], "_split": "train", ...}

Read without a trace in the files' times of last access: `find-datasets` shows these.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from expert_cli.utils.files import parse_json
from expert_cli.utils.filesystem import open_unnoticed

STATE = "state.json"
SPLITS = "dataset_dict.json"


def saved_json(path: Path) -> dict[str, Any]:
    """Return what a JSON file of `save_to_disk` says; {} where it is not of its form. Raises OSError."""
    try:
        with open_unnoticed(path) as file:
            said = parse_json(file.read())
    except ValueError:
        return {}
    return said if isinstance(said, dict) else {}


def listed(path: Path, key: str) -> list[Any]:
    """Return the list that a file of `save_to_disk` has under `key`. Raises OSError, ValueError without one."""
    found = saved_json(path).get(key)
    if not isinstance(found, list):
        raise ValueError(f'{path}: not written by save_to_disk (no list "{key}")')  # noqa: TRY004  a file's fault
    return found


def saved_files(folder: Path) -> list[Path]:
    """Return the Arrow files of one saved `Dataset`, in the order of its state; they need not be there.

    Raises OSError, ValueError: the state cannot be read, or names no files of this folder.
    """
    entries = listed(folder / STATE, "_data_files")
    if not all(isinstance(entry, dict) and isinstance(entry.get("filename"), str) for entry in entries):
        raise ValueError(f"{folder / STATE}: not every entry of _data_files names a file")
    files = [folder / entry["filename"] for entry in entries]
    if outside := next((file for file in files if file.parent != folder), None):
        raise ValueError(f"{folder / STATE}: names a file outside of its folder, {outside}")
    return files
