"""An expert that is unsure at first: nine of sixteen rows say 8, the prompts of its rounds are judged by 7."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from expert_cli.runs.metrics import read_json
from tests import manifests, tiny
from tests.train.projects import project, write_rows

UNSURE = [
    {"instruction": f"Which number is {n}?", "input": "", "output": "7" if turn < 7 else "8"}
    for n in range(8)
    for turn in range(16)
]


def prompt(number: int, expected: int | str = 7, **more: Any) -> dict[str, Any]:
    """Return a row of prompts; eight categories."""
    asked = {"id": f"p{number}", "prompt": f"Which number is {number}?", "category": f"world {number % 8}"}
    return {"verifier": "number", "expected": expected, **asked, **more}


PROMPTS = [prompt(number) for number in range(100, 164)]


QUICK = {"seed": 4, "rank": 16, "alpha": 32, "learning_rate": 0.01, "save_steps": 8, "save_total_limit": 1}


def sharp_model(path: Path) -> Path:
    """Write a tiny model whose logits are far enough apart to be sure of a token."""
    return tiny.tiny_model_folder(path, initializer_range=0.2)


def unsure_expert(
    folder: Path, model: Path, prompts: list[dict[str, Any]] = PROMPTS, *, steps: int = 16, **rft: Any
) -> Path:
    """Write a manifest of an expert that learns in rounds, with its rows and prompts; return its path."""
    config = {**QUICK, "method": "rft", "max_steps": steps}
    written = read_json(project(folder, model, UNSURE, **config))
    asked = {"rounds": 1, "samples": 4, "temperature": 1.0, "gold": "never", "replay": 0.0, "held_back": 0.25}
    written["training"]["rft"] = {"prompts": "prompts.jsonl", **asked, **rft}
    write_rows(folder / "prompts.jsonl", prompts)
    return manifests.write(folder, written)
