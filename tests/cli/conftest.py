"""`cli`: run expert-cli as its own process, as a user or a program does."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.forked_cli import Forked

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


def forked(words: list[str], folder: Path, told: Path) -> Done:
    process = Forked(words, told, cwd=folder, env=environment())
    out, err = process.communicate()
    return Done(process.returncode, out, err)


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
def cli(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Done]:
    """Return a function that runs expert-cli in `tmp_path`; keywords are environment variables.

    Every run is held to what holds for all: no escape sequences where there is no terminal, and no traceback. Without
    keywords, some of which are read when Python starts, the process is forked where it can be.
    """

    def run(*args: str | Path, **env: str) -> Done:
        words = [*map(str, args)]
        may_fork = sys.platform == "linux" and not env
        done = forked(words, tmp_path, tmp_path_factory.mktemp("told")) if may_fork else started(words, tmp_path, env)
        assert "\x1b" not in done.out + done.err
        assert "Traceback" not in done.err
        return done

    return run
