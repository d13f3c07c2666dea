"""The files of a run directory."""

from __future__ import annotations

from pathlib import Path


class RunPaths:
    """The files of a run directory, which need not exist."""

    def __init__(self, output: Path) -> None:
        """Take the directory."""
        self.output = output
        self.adapter = output / "adapter"  # safetensors, its config, the tokenizer, the model card
        self.checkpoints = output / "checkpoints"  # one folder for each checkpoint
        self.tensorboard = output / "tensorboard"
        self.run_json = output / "run.json"  # resolved settings, effects, hashes, versions, machine
        self.metrics = output / "metrics.jsonl"  # one line for each logged step
        self.status = output / "status.json"  # what the run is doing, or why it ended
        self.log = output / "log.txt"  # every reported line, with its time
        self.report_json = output / "report.json"  # what `train --json` prints
        self.report_html = output / "report.html"  # the run as a page with charts
        self.evaluation = output / "evaluation.json"  # the last `evaluate --json` of this run's adapter
        self.complete = output / "COMPLETE"  # exists if and only if the run finished
