"""How a run begins: with a folder of its own, its status and its log."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

from expert_cli.config.plan import require_free
from expert_cli.config.run_config import RunConfig
from expert_cli.pipeline.options import RunOptions
from expert_cli.runs.lock import contents
from expert_cli.runs.log import RunLog
from expert_cli.runs.paths import RunPaths
from expert_cli.runs.status import RunStatus
from expert_cli.utils.reporter import Reporter


def begin_run(run: RunConfig, report: Reporter, options: RunOptions, status: RunStatus, log: RunLog) -> None:
    """Make room for a run, and let its status and its log begin."""
    _make_room(run.output, report, options)
    status.begin()
    log.begin(RunPaths(run.output).log)


def _make_room(output: Path, report: Reporter, options: RunOptions) -> None:
    """Make the output folder; one that holds something is refused, moved aside with `overwrite`, kept to be gone on with."""
    require_free(output, overwrite=options.overwrite or bool(options.resume))
    if contents(output) and not options.resume:
        aside = output.with_name(f"{output.name}.{datetime.now():%Y%m%d-%H%M%S-%f}")
        output.rename(aside)
        report.info(f"the run that lay there is now {aside}")
    output.mkdir(parents=True, exist_ok=True)
    RunPaths(output).complete.unlink(missing_ok=True)  # a run that goes on has not ended
