"""Copies of data on a faster disk: `--stage /fast` makes /fast/home/me/train.jsonl of /home/me/train.jsonl."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Sequence
from pathlib import Path

from expert_cli.data.store.files import file_hashes
from expert_cli.errors import IntegrityError
from expert_cli.utils.disk_errors import disk_errors
from expert_cli.utils.files import beside, sha256_of
from expert_cli.utils.paths import is_inside
from expert_cli.utils.reporter import Reporter
from expert_cli.utils.text import plural, size_text


def staged_path(path: Path, target: Path) -> Path:
    """Return where the copy of a file or folder lies: its whole path again under `target`, so that no two collide.

    Links are not resolved: a file of the hub cache keeps its name and suffix.
    """
    full = Path(os.path.abspath(path))  # noqa: PTH100  resolve() would follow the links, absolute() keeps ".."
    drive = re.sub(r"[^\w.-]+", "_", full.drive).strip("_")
    return target.absolute() / drive / full.relative_to(full.anchor)


def stage(files: Sequence[Path], target: Path, report: Reporter) -> dict[Path, Path]:
    """Copy files under `target`; return where the copy of each lies. Those that lie there already stay where they are.

    A copy is used again if its SHA-256 is that of the source, which is read again only where it changed. Raises
    EnvironmentProblem: no such file, no room, cannot be written; IntegrityError: a copy reads back different.
    """
    copies = {path: path if is_inside(path, target) else staged_path(path, target) for path in files}
    copied = 0
    with disk_errors(f"cannot be staged to {target}", "stage to another disk: --stage DIR"):
        target.mkdir(parents=True, exist_ok=True)
        hashes = file_hashes(target)
        for path, copy in copies.items():
            sha256 = hashes.sha256(path)
            if path == copy or (copy.is_file() and hashes.sha256(copy, again=True) == sha256):
                continue
            with beside(copy) as unfinished:
                shutil.copyfile(path, unfinished)
                if sha256_of(unfinished) != sha256:
                    told = f"{path}: changed while it was staged, or its copy {copy} reads back different"
                    raise IntegrityError(told, "wait until it is written, or stage to another disk")
                unfinished.replace(copy)
            copied += copy.stat().st_size
        hashes.save()
    report.info(f"staged    {plural(len(copies), 'file')} in {target}, {size_text(copied)} copied")
    return copies
