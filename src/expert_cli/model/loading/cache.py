"""Folders made once and kept in the user's cache: built beside their place, renamed, verified at each use.

    cache/gguf/3f1c...-v1/         model.safetensors  config.json  tokenizer.json ...  unpacked.json
    cache/gguf/.3f1c...-v1.x7k2/   one being built; renamed when whole. One left by a killed process is removed after a day.

No lock: two processes at once both build, the first to rename wins, the other verifies and uses the winner's folder.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from expert_cli.errors import EnvironmentProblem, IntegrityError
from expert_cli.utils.disk_errors import disk_errors
from expert_cli.utils.files import VerifiedFolder, folder_beside, parse_json, write_json
from expert_cli.utils.reporter import Reporter

RECORD = "unpacked.json"
_ABANDONED_S = 24 * 3600.0


def materialize(folder: Path, build: Callable[[Path], None], report: Reporter) -> dict[str, str]:
    """Make `folder` with `build` (which fills the empty folder it is given) unless it is there and whole.

    Returns the sha256 of each file by name. A damaged folder is named in a warning and built anew. Raises
    EnvironmentProblem when the disk is full or may not be written, and what `build` raises.
    """
    try:
        with disk_errors(f"cannot write {folder}", elsewhere=""):
            if not _is_good(folder, report):
                _build(folder, build, report)
    except OSError as error:  # transformers says so, without a number, of a model that it cannot load
        raise EnvironmentProblem(f"{folder}: {error.strerror or error}") from error
    if not _is_good(folder, report):
        raise IntegrityError(f"{folder} changed while it was made", "Start again, with one process at a time")
    return {name: entry["sha256"] for name, entry in _recorded(folder).files.items()}


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


def _is_good(folder: Path, report: Reporter) -> bool:
    if not folder.exists():
        return False
    if wrong := fault(folder):
        report.warning(f"{folder} is damaged ({wrong}): it is made again")
    return not wrong


def _build(folder: Path, build: Callable[[Path], None], report: Reporter) -> None:
    """Make the folder; where another process was first its good folder stays, a damaged one goes out of the way."""
    for path in folder.parent.glob(".*"):
        with suppress(OSError):  # another process removes it
            if path.is_dir() and time.time() - path.stat().st_mtime > _ABANDONED_S:
                shutil.rmtree(path, ignore_errors=True)
    with folder_beside(folder) as beside:
        build(beside)
        write_json(beside / RECORD, {"files": VerifiedFolder.measured(beside, times=True).files})
        try:
            beside.rename(folder)
        except OSError:
            if not folder.exists():
                raise
            if not _is_good(folder, report):
                with folder_beside(folder) as aside:
                    folder.rename(aside / "damaged")
                    beside.rename(folder)
