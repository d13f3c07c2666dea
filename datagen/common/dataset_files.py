"""What the makers of data share: sides that hold groups of rows apart, files that are the same on every machine."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
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


def write_jsonl(path: Path, rows: Iterable[Row]) -> int:
    """Write one JSON object a line (UTF-8, line feeds on every system) and return the number of rows."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [json.dumps(row, ensure_ascii=False) for row in rows]
    with path.open("w", encoding="utf-8", newline="\n") as file:
        file.writelines(line + "\n" for line in lines)
    return len(lines)
