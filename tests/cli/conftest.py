"""`cli`: run expert-cli as a user or a program does."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.command_line import DROPPED, Done, run_command

ROOT = Path(__file__).parents[2]


def environment(**more: str) -> dict[str, str]:
    """Return this process's environment as the tests need it, with the package importable."""
    kept = {name: value for name, value in os.environ.items() if name not in DROPPED}
    path = os.pathsep.join(filter(None, (str(ROOT / "src"), kept.get("PYTHONPATH", ""))))
    return {**kept, "PYTHONPATH": path, "CUDA_VISIBLE_DEVICES": "", "PYTHONIOENCODING": "utf-8", **more}


def started(words: list[str], folder: Path, env: dict[str, str]) -> Done:
    ran = subprocess.run(
        [sys.executable, "-m", "expert_cli", *words],
        cwd=folder,
        env=environment(**env),
        capture_output=True,
        encoding="utf-8",
        timeout=600,  # on a machine that ten others compute on
        check=False,
    )
    return Done(ran.returncode, ran.stdout, ran.stderr)


@pytest.fixture
def cli(tmp_path: Path) -> Callable[..., Done]:
    """Return a function that runs expert-cli in `tmp_path`; keywords are environment variables.

    Every run is held to what holds for all: no escape sequences where there is no terminal, and no traceback. It runs in
    this process; with keywords, some of which are read when Python starts, in one of its own.
    """

    def run(*args: str | Path, **env: str) -> Done:
        words = [*map(str, args)]
        done = started(words, tmp_path, env) if env else run_command(words, tmp_path)
        assert "\x1b" not in done.out + done.err
        assert "Traceback" not in done.err
        return done

    return run
