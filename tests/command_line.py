"""Run expert-cli in this process, as its console script does."""

from __future__ import annotations

import io
import os
import sys
import warnings
from collections.abc import Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path

import pytest

from expert_cli.cli import main

DROPPED = ("NO_COLOR", "FORCE_COLOR", "GITHUB_ACTIONS", "PY_COLORS", "TTY_COMPATIBLE")
"""Variables that color the output; a service that runs the tests may set them."""


@dataclass(frozen=True)
class Done:
    """A command that ended."""

    code: int
    out: str
    err: str


def run_command(words: Sequence[str | Path], folder: Path, environment: Mapping[str, str] = os.environ) -> Done:
    """Run `expert-cli WORDS` in `folder`. environment: of the command; as before afterwards."""
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8") for _ in range(2))
    before = dict(os.environ)
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err), warnings.catch_warnings():
        warnings.simplefilter("default")
        patch.setattr(sys, "argv", ["expert-cli", *map(str, words)])
        patch.chdir(folder)
        try:
            kept = {name: value for name, value in environment.items() if name not in DROPPED}
            replace_environment({**kept, "CUDA_VISIBLE_DEVICES": ""})
            main()
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 0
        finally:
            replace_environment(before)
    texts = []
    for stream in (out, err):
        stream.flush()
        texts.append(stream.buffer.getvalue().decode("utf-8"))
    return Done(code, *texts)


def replace_environment(variables: Mapping[str, str]) -> None:
    given = dict(variables)
    os.environ.clear()
    os.environ.update(given)
