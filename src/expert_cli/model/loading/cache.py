"""Folders made once and kept in the user's cache: built beside their place, renamed, verified at each use.

    cache/gguf/3f1c...-v1/         model.safetensors  config.json  tokenizer.json ...  unpacked.json
    cache/gguf/.3f1c...-v1.x7k2/   one being built; renamed when whole. One left by a killed process is removed after a day.

No lock: two processes at once both build, the first to rename wins, the other verifies and uses the winner's folder.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

from expert_cli.errors import EnvironmentProblem, IntegrityError
from expert_cli.utils.disk_errors import disk_errors
from expert_cli.utils.files import parse_json, write_json
from expert_cli.utils.filesystem import is_abandoned
from expert_cli.utils.reporter import Reporter
from expert_cli.utils.verified_folder import VerifiedFolder, folder_beside

RECORD = "unpacked.json"


def materialize(folder: Path, build: Callable[[Path], None], report: Reporter) -> dict[str, str]:
    """Make `folder` with `build` (which fills the empty folder it is given) unless it is there and whole.

    Returns the sha256 of each file by name. A damaged folder is named in a warning and built anew. Raises
    EnvironmentProblem when the disk is full or may not be written, and what `build` raises.
    """
    try:
        with disk_errors(f"cannot write {folder}", elsewhere=""):
            hashes = _good(folder, report)
            if hashes is None:
                _build(folder, build, report)
                hashes = _good(folder, report)
    except OSError as error:  # transformers says so, without a number, of a model that it cannot load
        raise EnvironmentProblem(f"{folder}: {error.strerror or error}") from error
    if hashes is None:
        raise IntegrityError(f"{folder} changed while it was made", "Start again, with one process at a time")
    return hashes


def fault(folder: Path) -> str | None:
    """Return what is wrong with an unpacked folder, None when it is whole.

    Sizes are always compared; contents are hashed where the time of the last change is not the recorded one.
    """
    try:
        return _recorded(folder).damage() or None
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        return f"{type(error).__name__}: {error}"


def _recorded(folder: Path) -> VerifiedFolder:
    return VerifiedFolder(folder, parse_json((folder / RECORD).read_bytes())["files"])


def _good(folder: Path, report: Reporter) -> dict[str, str] | None:
    if not folder.exists():
        return None
    if wrong := fault(folder):
        report.warning(f"{folder} is damaged ({wrong}): it is made again")
        return None
    return {name: entry["sha256"] for name, entry in _recorded(folder).files.items()}


def _build(folder: Path, build: Callable[[Path], None], report: Reporter) -> None:
    """Make the folder; where another process was first its good folder stays, a damaged one goes out of the way."""
    _remove_stale(folder.parent)
    with folder_beside(folder) as beside:
        build(beside)
        write_json(beside / RECORD, {"files": VerifiedFolder.measured(beside, times=True).files})
        try:
            beside.rename(folder)
        except OSError:
            if not folder.exists():
                raise
            if _good(folder, report) is None:
                with folder_beside(folder) as aside:
                    folder.rename(aside / "damaged")
                    beside.rename(folder)


def _remove_stale(parent: Path) -> None:
    for path in parent.glob(".*"):
        if path.is_dir() and is_abandoned(path):
            shutil.rmtree(path, ignore_errors=True)
