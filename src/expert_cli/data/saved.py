"""What the library `datasets` writes with `save_to_disk`, as token stores are laid out too: which files hold a split's rows.

    train/state.json       {"_data_files": [{"filename": "data-00000.arrow"}, ...], "_split": "train", ...}

Read without a trace in the files' times of last access: `find-datasets` shows these.
"""

from __future__ import annotations

from pathlib import Path, PurePath
from typing import Any

from expert_cli.data.places import Place, read_start
from expert_cli.utils.files import parse_json
from expert_cli.utils.object_storage import StoredFolder

STATE = "state.json"
SPLITS = "dataset_dict.json"


def saved_json(path: Path | StoredFolder) -> dict[str, Any]:
    """Return what a JSON file of `save_to_disk` says; {} where it is not of its form. Raises OSError."""
    try:
        said = parse_json(read_start(path))
    except ValueError:
        return {}
    return said if isinstance(said, dict) else {}


def listed(path: Path | StoredFolder, key: str) -> list[Any]:
    """Return the list that a file of `save_to_disk` has under `key`. Raises OSError, ValueError without one."""
    found = saved_json(path).get(key)
    if not isinstance(found, list):
        raise ValueError(f'{path}: not written by save_to_disk (no list "{key}")')  # noqa: TRY004  a file's fault
    return found


def saved_files(folder: Place) -> list[Place]:
    """Return the Arrow files of one saved `Dataset`, in the order of its state; they need not be there.

    Raises OSError, ValueError: the state cannot be read, or names no files of this folder.
    """
    entries = listed(folder / STATE, "_data_files")
    if not all(isinstance(entry, dict) and isinstance(entry.get("filename"), str) for entry in entries):
        raise ValueError(f"{folder / STATE}: not every entry of _data_files names a file")
    names = [PurePath(entry["filename"]).as_posix() for entry in entries]
    if outside := next((name for name in names if (PurePath("folder") / name).parent != PurePath("folder")), None):
        raise ValueError(f"{folder / STATE}: names a file outside of its folder, {folder / outside}")
    return [folder / name for name in names]
