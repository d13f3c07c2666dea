"""Folders made once and kept in the user's cache: built beside their place, renamed, verified at each use.

cache/gguf/3f1c...-v1/         model.safetensors  config.json  tokenizer.json ...  unpacked.json
cache/gguf/3f1c...-v1.lock     held by the process that makes the folder; others wait, and use it
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
    """Make `folder` with `build` (which fills the empty folder it is given) unless it is there and whole.

    Returns the sha256 of each file by name. A damaged folder is named in a warning and built anew. Raises
    EnvironmentProblem when the disk is full or may not be written, and what `build` raises.
    """
    try:
        if fault(folder):
            with disk_errors(f"cannot write {folder}", elsewhere=""):
                folder.parent.mkdir(parents=True, exist_ok=True)
                with FileLock(folder.with_name(f"{folder.name}.lock")):
                    _make(folder, build, report)
    except OSError as error:  # transformers says so, without a number, of a model that it cannot load
        raise EnvironmentProblem(f"{folder}: {error.strerror or error}") from error
    return {name: entry["sha256"] for name, entry in _recorded(folder).files.items()}


def _make(folder: Path, build: Callable[[Path], None], report: Reporter) -> None:
    wrong = fault(folder)
    if not wrong:  # another process was first
        return
    if folder.exists():
        report.warning(f"{folder} is damaged ({wrong}): it is made again")
    for left in (folder, *folder.parent.glob(f".{folder.name}.*")):  # by killed processes: who builds holds the lock
        remove(left)
    with folder_beside(folder) as beside:
        build(beside)
        write_json(beside / RECORD, {"files": VerifiedFolder.measured(beside, times=True).files})
        beside.rename(folder)


def fault(folder: Path) -> str:
    """Return what is wrong with an unpacked folder, "" when it is whole; contents are hashed where times differ."""
    try:
        return _recorded(folder).damage()
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        return f"{type(error).__name__}: {error}"


def _recorded(folder: Path) -> VerifiedFolder:
    return VerifiedFolder(folder, parse_json((folder / RECORD).read_bytes())["files"])
