"""What the make_*_data.py scripts share: a held-out split by group and files written the same way on every machine."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

Row = Mapping[str, Any]


def side_of(group: str, cases: float = 0.15, valid: float = 0.06) -> str:
    """The side that the hash of a group's text puts it on: test cases, valid or train; the shares are of all groups."""
    share = int.from_bytes(hashlib.sha256(group.encode()).digest()[:8], "big") / 2**64
    return "cases" if share < cases else "valid" if share < cases + valid else "train"


def shape(query: str) -> str:
    """The query without its values: each text and each number is a question mark."""
    return re.sub(r"(?<![\w.])\d+(?:\.\d+)?", "?", re.sub(r"'[^']*'", "?", query))


def split_by_group(
    rows: Iterable[Row], group: Callable[[Row], str], held_out_share: float = 0.1
) -> tuple[list[Row], list[Row]]:
    """Split rows into (train, valid) so that no group stands on both sides.

    The side follows from the hash of the group's text alone, so adding a group moves no other. Exact duplicates are
    dropped; the order is kept.
    """
    train: list[Row] = []
    valid: list[Row] = []
    seen: set[str] = set()
    for row in rows:
        line = json.dumps(row, sort_keys=True)
        if line in seen:
            continue
        seen.add(line)
        digest = hashlib.sha256(group(row).encode()).digest()
        share = int.from_bytes(digest[:8], "big") / 2**64
        (valid if share < held_out_share else train).append(row)
    return train, valid


def write_jsonl(path: Path, rows: Iterable[Row]) -> int:
    """Write one JSON object a line (UTF-8, line feeds on every system) and return the number of rows."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [json.dumps(row, ensure_ascii=False) for row in rows]
    with path.open("w", encoding="utf-8", newline="\n") as file:
        file.writelines(line + "\n" for line in lines)
    return len(lines)
