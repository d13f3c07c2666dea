"""The files of a run directory."""

from __future__ import annotations

from pathlib import Path


class RunPaths:
    """The files of a run directory."""

    def __init__(self, output: Path) -> None:
        """Take the directory; nothing need be there."""
        self.output = output
        self.adapter = output / "adapter"
        """The trained adapter: safetensors, its config, the tokenizer and the model card."""
        self.checkpoints = output / "checkpoints"
        """One folder a checkpoint."""
        self.tensorboard = output / "tensorboard"
        """TensorBoard event files."""
        self.run_json = output / "run.json"
        """The resolved config, effects, hashes, versions, machine."""
        self.metrics = output / "metrics.jsonl"
        """One JSON line a logged step."""
        self.status = output / "status.json"
        """What the run is doing, or why it ended."""
        self.log = output / "log.txt"
        """Every line that the run told, with its time."""
        self.report_json = output / "report.json"
        """What `train --json` prints."""
        self.report_html = output / "report.html"
        """The run drawn for people: one file that needs no network."""
        self.evaluation = output / "evaluation.json"
        """What `evaluate --json` printed last for this run's adapter."""
        self.complete = output / "COMPLETE"
        """Exists if and only if the run finished."""
