"""What every stage of a run in rounds works with, and where it leaves what it makes.

OUT/sft/                          the first training, a run directory
OUT/round-0/evaluation.json       its adapter, judged on the held-back prompts
OUT/round-1/samples/block-0001.jsonl ...   answers that were drawn and judged (`sampling.py`)
OUT/round-1/rows.jsonl            those that are trained (`select.py`)
OUT/round-1/run/                  their training, a run directory
OUT/round-1/evaluation.json       its adapter, judged on the held-back prompts
OUT/adapter/, run.json, report.json, ...   of the best of them, as every run leaves them
"""

from __future__ import annotations

import gc
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from expert_cli.config.effects import Decided
from expert_cli.config.plan import Plan
from expert_cli.config.run_config import AUTO, RunConfig
from expert_cli.errors import Interrupted
from expert_cli.evaluation.cases import EvalCase
from expert_cli.hardware.devices import DEVICES
from expert_cli.hardware.machine import Machine
from expert_cli.manifest.key import not_used
from expert_cli.manifest.keys.rft import RftConfig
from expert_cli.pipeline.options import RunOptions
from expert_cli.pipeline.result import RunResult
from expert_cli.pipeline.rft.prompts import files_of
from expert_cli.runs.log import RunLog
from expert_cli.runs.signals import STOP_FILE, StopRequest
from expert_cli.runs.status import RunStatus
from expert_cli.utils.reporter import Reporter

if TYPE_CHECKING:
    from accelerate import PartialState


class RoundPaths:
    """The files of a round."""

    def __init__(self, output: Path, number: int) -> None:
        """Take the run's folder and the round's number; 0: what is there before the first."""
        self.folder = output / f"round-{number}"
        self.samples = self.folder / "samples"
        """One file a block of prompts."""
        self.rows = self.folder / "rows.jsonl"
        """What is trained."""
        self.run = self.folder / "run"
        """The training, a run directory."""
        self.evaluation = self.folder / "evaluation.json"
        """The adapter, judged on the held-back prompts."""

    def block(self, number: int) -> Path:
        """The file of a block of prompts, counted from 1."""
        return self.samples / f"block-{number:04}.jsonl"


@dataclass(frozen=True)
class Work:
    """A run in rounds: what it is, where it runs, who is told.

    begun_with: the processes that began it; 0: as many as now. hashes: of the files that prompts are judged on, by name.
    """

    plan: Plan
    settings: RftConfig
    machine: Machine
    report: Reporter
    options: RunOptions
    job: PartialState
    status: RunStatus
    begun_with: int = 0
    hashes: Mapping[str, str] = field(default_factory=dict)

    @property
    def run(self) -> RunConfig:
        """The run."""
        return self.plan.run

    def judged_on(self, prompts: Sequence[EvalCase]) -> str:
        """Return a hash of the files that prompts are judged on; "" where they name none."""
        found = [self.hashes[name] for one in prompts for name in files_of(one)]
        return hashlib.sha256("\n".join(found).encode()).hexdigest() if found else ""

    def paths(self, number: int) -> RoundPaths:
        """The files of a round."""
        return RoundPaths(self.run.output, number)

    def at(self, stage: str) -> None:
        """Say which stage begins. Raises Interrupted where the file STOP asks the run to end."""
        self.status.at(stage)
        self.report.info(f"stage     {stage}")
        self.look_for_stop()

    def look_for_stop(self) -> None:
        """Raise Interrupted, in all processes, where the file STOP asks the run to end: what is done is on disk."""
        stop = StopRequest(self.run.output)
        if self.job.is_main_process:
            stop.asked()
        stop.agree()
        self._end_by(stop)

    def _end_by(self, stop: StopRequest) -> None:
        if stop.exit_code:
            told = f"stopped by {stop.reason} in {self.status.stage}"
            raise Interrupted(told, f"go on: {self.status.go_on}", stop.exit_code, by_signal=stop.by_signal)

    def train(self, run: RunConfig, *, is_first: bool = False) -> RunResult:
        """Make an ordinary run, or go on with it, or return what it came to if it is done.

        Raises Interrupted where it was asked to stop, also where that run has no step left.
        """
        from transformers import TrainerCallback

        from expert_cli.pipeline.train import train_here

        class HandStopDown(TrainerCallback):
            """Lets the file STOP of this run end the training within it."""

            def on_step_end(self, args: Any, state: Any, *_: Any, **__: Any) -> None:  # noqa: ARG002
                if state.is_world_process_zero and (stop := above / STOP_FILE).exists():
                    stop.replace(below / STOP_FILE)

        above, below = self.run.output, run.output
        drift = tuple(key for key in self.options.drift if not key.startswith("rft."))
        trusting = is_first and self.options.trust_store
        options = replace(
            self.options,
            resume=AUTO,
            overwrite=False,
            locked=None,
            drift=drift,
            trust_store=trusting,
            max_forget=None,
            callbacks=(*self.options.callbacks, HandStopDown()),
        )
        store_url = run.store_url if is_first else ""  # nobody puts the stores of rounds anywhere
        plan = replace(
            self.plan, run=replace(run, rft=None, store_url=store_url), decided=self._decided(is_first=is_first)
        )
        done = train_here(plan, self.machine, self.report, options, self.job, RunLog(), self.begun_with)
        free_memory(run)
        if done.unserved is not None:
            self._end_by(done.unserved)
        return done

    def _decided(self, *, is_first: bool) -> Decided:
        """Return what became of the manifest's keys in one of the trainings."""
        decided = self.plan.decided
        if is_first or self.settings.replay:
            return decided
        why = not_used("training.rft.replay is 0: a round trains its answers alone")
        named = [path for path in decided.outcomes if path[0] == "dataset" and path[-1] in ("path", "train")]
        return replace(decided, outcomes={**decided.outcomes, **dict.fromkeys(named, why)})


def free_memory(run: RunConfig) -> None:
    """Give back what a model that nothing holds any more took, before the next one is loaded."""
    gc.collect()
    DEVICES[run.compute.device].empty_cache()
