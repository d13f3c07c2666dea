"""The file STOP of a run that makes several trainings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from transformers import TrainerCallback, TrainerState

from expert_cli.training.signals import STOP_FILE


class HandStopDown(TrainerCallback):
    """Lets the file STOP of a run end a training within it: hands it down to that training's folder."""

    def __init__(self, run: Path, training: Path) -> None:
        """Take the folders of the run, and of the training within it."""
        self._file, self._below = run / STOP_FILE, training / STOP_FILE

    def on_step_end(self, args: Any, state: TrainerState, control: Any, **kwargs: Any) -> None:
        """Look for the file."""
        if state.is_world_process_zero and self._file.exists():
            self._file.replace(self._below)
