"""The command line in a forked process: a module of its own, so that a fork server can find it by name."""

from __future__ import annotations

import multiprocessing
import os
import sys
from pathlib import Path


def main(words: list[str]) -> None:
    """Run the command line with `words`, its stdout thrown away; the process ends with its exit code."""
    from expert_cli import cli

    sys.argv = ["expert-cli", *words]
    multiprocessing.set_start_method("fork", force=True)  # data workers, that is; they would import everything again
    with Path(os.devnull).open("w") as nowhere:
        os.dup2(nowhere.fileno(), 1)
    cli.main()
