"""`python -m expert_cli.benchmark.experiment.baseline_main JOB.json`: a run of the stock Trainer in a process.

JOB.json: preset, manifest and overrides of `train_baseline`. A failure is printed as `train --json` prints it.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from expert_cli.config.resolve import Overrides
from expert_cli.console.terminal import Console
from expert_cli.errors import ExpertError
from expert_cli.utils.process_setup import prepare_process


def main() -> int:
    """Do the job that the command line names; return the exit code."""
    job = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    asked = job["overrides"]
    overrides = Overrides(**{**asked, "output": Path(asked["output"]), "settings": tuple(asked["settings"])})
    try:
        prepare_process()
        from expert_cli.benchmark.experiment.baseline import train_baseline

        train_baseline(job["preset"], Path(job["manifest"]), overrides)
    except ExpertError as error:
        Console("train", as_json=True).fail(error.message, error.hint, error.exit_code)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
