"""`cli`: run expert-cli as its own process, as a user or a program does."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# Without a GPU, without color forced by a CI service.
DROPPED = ("NO_COLOR", "FORCE_COLOR", "GITHUB_ACTIONS", "PY_COLORS", "TTY_COMPATIBLE", "CUDA_VISIBLE_DEVICES")


@dataclass(frozen=True)
class Done:
    """A finished process."""

    code: int
    out: str
    err: str


def environment(**more: str) -> dict[str, str]:
    """Return this process's environment as the tests need it, with the package importable."""
    kept = {name: value for name, value in os.environ.items() if name not in DROPPED}
    path = os.pathsep.join(filter(None, (str(ROOT / "src"), kept.get("PYTHONPATH", ""))))
    return {**kept, "PYTHONPATH": path, "CUDA_VISIBLE_DEVICES": "", "PYTHONIOENCODING": "utf-8", **more}


@pytest.fixture
def cli(tmp_path: Path) -> Callable[..., Done]:
    """Return a function that runs expert-cli in `tmp_path`; keywords are environment variables.

    Every run is held to what holds for all: no escape sequences where there is no terminal, and no traceback.
    """

    def run(*args: str | Path, **env: str) -> Done:
        command = [sys.executable, "-m", "expert_cli", *map(str, args)]
        ran = subprocess.run(
            command,
            cwd=tmp_path,
            env=environment(**env),
            capture_output=True,
            encoding="utf-8",
            timeout=600,  # on a machine that ten others compute on
            check=False,
        )
        assert "\x1b" not in ran.stdout + ran.stderr
        assert "Traceback" not in ran.stderr
        return Done(ran.returncode, ran.stdout, ran.stderr)

    return run
