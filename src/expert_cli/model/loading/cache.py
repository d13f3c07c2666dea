"""Folders that are built once in the user's cache, under another name, then renamed and verified at each use.

cache/gguf/3f1c...-v1/         model.safetensors  config.json  tokenizer.json ...  unpacked.json
cache/gguf/3f1c...-v1.lock     held by the process that builds the folder; others wait, then use it
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from filelock import FileLock

from expert_cli.errors import EnvironmentProblem
from expert_cli.utils.disk_errors import disk_errors
from expert_cli.utils.files import VerifiedFolder, folder_beside, parse_json, remove, write_json
from expert_cli.utils.reporter import Reporter

RECORD = "unpacked.json"


def materialize(folder: Path, build: Callable[[Path], None], report: Reporter) -> dict[str, str]:
    """Build `folder` with `build` (which fills an empty folder) unless it exists and is intact.

    Returns the sha256 of each file by name. A damaged folder is reported and rebuilt. Raises EnvironmentProblem when the disk
    is full or not writable, and the errors of `build`.
    """
    try:
        if fault(folder):
            with disk_errors(f"cannot write {folder}", elsewhere=""):
                folder.parent.mkdir(parents=True, exist_ok=True)
                with FileLock(folder.with_name(f"{folder.name}.lock")):
                    _make(folder, build, report)
    except OSError as error:  # without errno from transformers, for a model that it cannot load
        raise EnvironmentProblem(f"{folder}: {error.strerror or error}") from error
    return {name: entry["sha256"] for name, entry in _recorded(folder).files.items()}


def _make(folder: Path, build: Callable[[Path], None], report: Reporter) -> None:
    wrong = fault(folder)
    if not wrong:  # another process was first
        return
    if folder.exists():
        report.warning(f"{folder} is damaged ({wrong}) and is built again")
    for left in (folder, *folder.parent.glob(f".{folder.name}.*")):  # of killed processes: the builder holds the lock
        remove(left)
    with folder_beside(folder) as beside:
        build(beside)
        write_json(beside / RECORD, {"files": VerifiedFolder.measured(beside, times=True).files})
        beside.rename(folder)


def fault(folder: Path) -> str:
    """Return why a folder is damaged, or "" if it is intact; contents are hashed if modification times differ."""
    try:
        return _recorded(folder).damage()
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        return f"{type(error).__name__}: {error}"


def _recorded(folder: Path) -> VerifiedFolder:
    return VerifiedFolder(folder, parse_json((folder / RECORD).read_bytes())["files"])
