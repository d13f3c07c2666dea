"""`cli`: run expert-cli as a user or a program does."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import warnings
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path

import pytest

from expert_cli.cli import main

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


def called(words: list[str], folder: Path) -> Done:
    """Run the command line in this process, as `main` does."""
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8") for _ in range(2))
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err), warnings.catch_warnings():
        warnings.simplefilter("default")
        patch.setattr(sys, "argv", ["expert-cli", *words])
        patch.chdir(folder)
        for name in DROPPED:
            patch.delenv(name, raising=False)
        with pytest.raises(SystemExit) as end:
            main()
    code = end.value.code
    texts = []
    for stream in (out, err):
        stream.flush()
        texts.append(stream.buffer.getvalue().decode("utf-8"))  # type: ignore[attr-defined]
    return Done(code if isinstance(code, int) else 0, *texts)


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
        done = started(words, tmp_path, env) if env else called(words, tmp_path)
        assert "\x1b" not in done.out + done.err
        assert "Traceback" not in done.err
        return done

    return run
