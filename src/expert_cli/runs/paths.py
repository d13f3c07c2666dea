"""The files of a run directory."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class RunPaths:
    """The files of a run directory."""

    output: Path

    @property
    def adapter(self) -> Path:
        """The trained adapter: safetensors, its config, the tokenizer and the model card."""
        return self.output / "adapter"

    @property
    def checkpoints(self) -> Path:
        """One folder a checkpoint."""
        return self.output / "checkpoints"

    @property
    def tensorboard(self) -> Path:
        """TensorBoard event files."""
        return self.output / "tensorboard"

    @property
    def run_json(self) -> Path:
        """The resolved config, effects, hashes, versions, machine."""
        return self.output / "run.json"

    @property
    def metrics(self) -> Path:
        """One JSON line a logged step."""
        return self.output / "metrics.jsonl"

    @property
    def status(self) -> Path:
        """What the run is doing, or why it ended."""
        return self.output / "status.json"

    @property
    def log(self) -> Path:
        """Every line that the run told, with its time."""
        return self.output / "log.txt"

    @property
    def report_json(self) -> Path:
        """What `train --json` prints."""
        return self.output / "report.json"

    @property
    def report_html(self) -> Path:
        """The run drawn for people: one file that needs no network."""
        return self.output / "report.html"

    @property
    def evaluation(self) -> Path:
        """What `evaluate --json` printed last for this run's adapter."""
        return self.output / "evaluation.json"

    @property
    def complete(self) -> Path:
        """Exists if and only if the run finished."""
        return self.output / "COMPLETE"
