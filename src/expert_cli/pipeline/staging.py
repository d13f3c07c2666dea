"""Copies data files and token stores to a faster disk: `--stage /fast` copies /home/me/a.jsonl to /fast/home/me/a.jsonl."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from expert_cli.data.sources import Located, LocatedData
from expert_cli.data.store.build import TokenStore
from expert_cli.data.store.store_files import FINGERPRINT
from expert_cli.pipeline.training_data import DataInputs
from expert_cli.utils.disk_errors import disk_errors
from expert_cli.utils.files import beside, files_below, sha256_of
from expert_cli.utils.paths import is_inside
from expert_cli.utils.reporter import Reporter
from expert_cli.utils.text import plural, size_text


def staged_inputs(inputs: DataInputs, target: Path, report: Reporter) -> DataInputs:
    """Return the same inputs with their local data files copied under `target`."""
    copies: dict[Any, Path] = stage((file for file in inputs.located.files() if isinstance(file, Path)), target, report)

    def moved(sources: Sequence[Located]) -> tuple[Located, ...]:
        return tuple(replace(one, files=tuple(copies.get(file, file) for file in one.files)) for one in sources)

    return replace(inputs, located=LocatedData(moved(inputs.located.train), moved(inputs.located.validation)))


def staged_store(store: TokenStore, target: Path, report: Reporter) -> TokenStore:
    """Return the same store, copied under `target`."""
    return replace(store, home=stage(files_below(store.home), target, report)[store.home / FINGERPRINT].parent)


def stage(files: Iterable[Path], target: Path, report: Reporter) -> dict[Path, Path]:
    """Copy files under `target` if they are not there; return the path of each. Raises EnvironmentProblem."""
    copies = {path: path if is_inside(path, target) else _staged_path(path, target) for path in files}
    with disk_errors(f"cannot be staged to {target}", "stage to another disk: --stage DIR"):
        target.mkdir(parents=True, exist_ok=True)
        copied = 0
        for path, copy in copies.items():
            if path != copy and not (copy.is_file() and sha256_of(copy) == sha256_of(path)):
                with beside(copy) as unfinished:
                    shutil.copyfile(path, unfinished)
                    unfinished.replace(copy)
                copied += path.stat().st_size
    report.info(f"staged    {plural(len(copies), 'file')} in {target}, {size_text(copied)} copied")
    return copies


def _staged_path(path: Path, target: Path) -> Path:
    full = Path(os.path.abspath(path))  # noqa: PTH100  resolve() would follow the links, absolute() keeps ".."
    return target.absolute() / re.sub(r"[^\w.-]+", "", full.drive) / full.relative_to(full.anchor)
