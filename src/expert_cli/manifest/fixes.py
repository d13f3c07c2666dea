"""Mistyped keys, names of other tools and old names -> renames in a manifest's text; every other byte stays.

Only keys are renamed. A key whose value would mean something else under its right name is left to its author.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import getitem
from pathlib import Path
from typing import Any

from expert_cli.errors import ManifestIssue
from expert_cli.manifest.json_parser import JsonText, Path_
from expert_cli.manifest.keys.dataset import Dataset
from expert_cli.manifest.spelling import BY_HAND
from expert_cli.manifest.training_config import TrainingConfig
from expert_cli.utils.disk_errors import disk_errors
from expert_cli.utils.files import write_bytes

_READER = json.JSONDecoder()
_MEANT = re.compile(r"did you mean (\w+)\?.*")


@dataclass(frozen=True)
class Fix:
    """One key to rename: its place (line and column from 1; `start` and `stop` in the text, quotes included)."""

    line: int
    column: int
    old: str
    new: str
    start: int
    stop: int

    def as_json(self) -> dict[str, int | str]:
        """Return the row that `validate --fix --json` prints."""
        return {"line": self.line, "column": self.column, "from": self.old, "to": self.new}


def find_fixes(raw: str, text: JsonText, faults: Sequence[ManifestIssue]) -> tuple[list[Fix], list[ManifestIssue]]:
    """Return the renames, in the file's order, and a remark for every key that cannot be renamed.

    raw: the file's text, with the byte order mark if it has one, which the parser does not count. text: the same, parsed.
    faults: what the reader found.
    Keys inside a mistyped block show only once that block has its right name.
    """
    meant = {(f.line, f.column): match[1] for f in faults if (match := _MEANT.fullmatch(f.suggestion))}
    fixes: list[Fix] = []
    remarks: list[ManifestIssue] = []
    taken: dict[Path_, set[str]] = {}
    lines = [0, *(end + 1 for end, char in enumerate(raw) if char == "\n")]
    for path, place in text.places.items():
        key = str(path[-1])
        if any(str(part).startswith("_") for part in path):
            continue
        known = meant.get(place, "")
        new = _old_name((*path[:-1], known or key), _at(text.value, path)) or known
        if not new:
            continue
        present = taken.setdefault(path[:-1], set(_at(text.value, path[:-1])))
        reason = BY_HAND.get(key.lower(), "") or (f"{new} stands there already" if new in present else "")
        if reason:
            remarks.append(text.fault(path, f"is not renamed to {new}: {reason}"))
            continue
        present.add(new)
        start = lines[place[0] - 1] + place[1] - 1 + (place[0] == 1 and raw.startswith("\ufeff"))
        fixes.append(Fix(*place, key, new, start, _READER.raw_decode(raw, start)[1]))
    return fixes, remarks


def apply_fixes(raw: str, fixes: Iterable[Fix]) -> str:
    """Return the text with its keys renamed."""
    for fix in sorted(fixes, key=lambda fix: fix.start, reverse=True):
        raw = f'{raw[: fix.start]}"{fix.new}"{raw[fix.stop :]}'
    return raw


def diff(old: str, new: str, file: str) -> list[str]:
    """Return the lines of the unified diff, without line ends."""
    before, after = ([line.rstrip("\r") for line in text.split("\n")] for text in (old, new))
    return list(difflib.unified_diff(before, after, file, file, lineterm=""))


def read_raw(path: Path) -> str:
    """Return a file's text as it is: line ends and byte order mark included."""
    return path.read_bytes().decode("utf-8")


def write_raw(path: Path, raw: str) -> None:
    """Replace a file's text atomically and exactly; a link stays a link, the permissions stay.

    Not `files.write_text`, which removes secrets: nothing but the keys may change. Raises EnvironmentProblem.
    """
    path = path.resolve()
    with disk_errors(f"{path} cannot be written", "apply the diff by hand"), path.open("rb+"):
        write_bytes(path, raw.encode("utf-8"))


def _old_name(path: Path_, value: Any) -> str:
    """Return the name of today for the old name at `path`, or ""."""
    key = str(path[-1])
    match path[:-1]:
        case ("training", "config") | ("base_model", "config") | ("base_models", int(), "config"):
            return TrainingConfig.old_names.get(key, "")
        case ("training", "dataset") if isinstance(value, dict):
            return Dataset.old_names.get(key, "")
    return ""


def _at(value: Any, path: Path_) -> Any:
    return reduce(getitem, path, value)
