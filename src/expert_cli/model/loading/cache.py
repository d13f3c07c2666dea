"""Folders made once and kept in the user's cache: built beside their place, renamed, verified at each use.

    cache/gguf/3f1c...-v1/         model.safetensors  config.json  tokenizer.json ...  unpacked.json
    cache/gguf/.3f1c...-v1.x7k2/   one being built; renamed when whole. One left by a killed process is removed after a day.

No lock: two processes at once both build, the first to rename wins, the other verifies and uses the winner's folder.
"""

from __future__ import annotations

import errno
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from expert_cli.errors import EnvironmentProblem, IntegrityError
from expert_cli.utils.files import parse_json, sha256_of, sync_folder, write_json
from expert_cli.utils.reporter import Reporter

RECORD = "unpacked.json"
_STALE_S = 24 * 3600.0


def materialize(folder: Path, build: Callable[[Path], None], report: Reporter) -> dict[str, str]:
    """Make `folder` with `build` (which fills the empty folder it is given) unless it is there and whole.

    Returns the sha256 of each file by name. A damaged folder is named in a warning and built anew. Raises
    EnvironmentProblem when the disk is full or may not be written, and what `build` raises.
    """
    try:
        hashes = _good(folder, report)
        return hashes if hashes is not None else _build(folder, build, report)
    except OSError as error:
        raise disk_problem(error, folder) from error


def disk_problem(error: OSError, path: Path) -> EnvironmentProblem:
    """Return the error for a place that cannot be read or written."""
    if error.errno in {errno.ENOSPC, errno.EDQUOT}:
        return EnvironmentProblem(f"{path}: no space left on the disk", "Free some space and start again")
    return EnvironmentProblem(f"{path}: {error.strerror or error}", "See that the folder may be written")


def fault(folder: Path) -> str | None:
    """Return what is wrong with an unpacked folder, None when it is whole.

    Sizes are always compared; contents are hashed where the time of the last change is not the recorded one.
    """
    try:
        record: dict[str, Any] = parse_json((folder / RECORD).read_bytes())["files"]
        for name, wanted in record.items():
            file = folder / name
            found = file.stat()
            if found.st_size != wanted["bytes"]:
                return f"{name} has {found.st_size} bytes, not {wanted['bytes']}"
            if found.st_mtime_ns != wanted["mtime_ns"] and sha256_of(file) != wanted["sha256"]:
                return f"{name} does not have the recorded sha256"
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        return f"{type(error).__name__}: {error}"
    return None


def _good(folder: Path, report: Reporter) -> dict[str, str] | None:
    if not folder.exists():
        return None
    wrong = fault(folder)
    if wrong is None:
        record = parse_json((folder / RECORD).read_bytes())["files"]
        return {name: entry["sha256"] for name, entry in record.items()}
    report.warning(f"{folder} is damaged ({wrong}): it is made again")
    return None


def _build(folder: Path, build: Callable[[Path], None], report: Reporter) -> dict[str, str]:
    folder.parent.mkdir(parents=True, exist_ok=True)
    _remove_stale(folder.parent)
    beside = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    try:
        build(beside)
        _record(beside)
        sync_folder(beside)
        _move(beside, folder, report)
    finally:
        shutil.rmtree(beside, ignore_errors=True)
    hashes = _good(folder, report)
    if hashes is None:
        raise IntegrityError(f"{folder} changed while it was made", "Start again, with one process at a time")
    return hashes


def _record(folder: Path) -> None:
    files = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            stat = path.stat()
            name = path.relative_to(folder).as_posix()
            files[name] = {"bytes": stat.st_size, "mtime_ns": stat.st_mtime_ns, "sha256": sha256_of(path)}
    write_json(folder / RECORD, {"files": files})


def _move(beside: Path, folder: Path, report: Reporter) -> None:
    """Rename; where another process was first its good folder stays, a damaged one goes out of the way."""
    try:
        beside.rename(folder)
    except OSError:
        if not folder.exists():
            raise
        if _good(folder, report) is None:
            aside = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
            folder.rename(aside / "damaged")
            shutil.rmtree(aside, ignore_errors=True)
            beside.rename(folder)


def _remove_stale(parent: Path) -> None:
    for path in parent.glob(".*"):
        try:
            if path.is_dir() and time.time() - path.stat().st_mtime > _STALE_S:
                shutil.rmtree(path, ignore_errors=True)
        except OSError:  # another process removed it first
            continue
