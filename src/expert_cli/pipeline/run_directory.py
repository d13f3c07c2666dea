"""A run directory: made and begun, run.json in it, the error that ends the run, and what is left at its end."""

from __future__ import annotations

import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from expert_cli.config.adapter_origin import CONFIG, WEIGHTS, provenance
from expert_cli.config.plan import Plan, require_free
from expert_cli.config.run_config import RunConfig
from expert_cli.config.run_identity import identity
from expert_cli.data.sources import content_of
from expert_cli.errors import CTRL_C, TERMINATED, ExpertError, Interrupted, ThresholdNotMet
from expert_cli.hardware.machine import Machine
from expert_cli.pipeline.before_after import missed
from expert_cli.pipeline.options import RunOptions
from expert_cli.pipeline.run_result import RunResult
from expert_cli.pipeline.training_data import DataInputs
from expert_cli.runs.lock import contents
from expert_cli.runs.log import RunLog
from expert_cli.runs.metrics import items, part, read_json
from expert_cli.runs.run_paths import RunPaths
from expert_cli.runs.signals import Terminated, raising_sigterm
from expert_cli.runs.status import RunStatus
from expert_cli.utils.disk_errors import known
from expert_cli.utils.files import sha256_of, write_json, write_text
from expert_cli.utils.reporter import Reporter
from expert_cli.utils.text import failure_lines


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


def identity_of(
    run: RunConfig,
    inputs: DataInputs,
    machine: Machine,
    processes: int,
    *,
    trusted: str = "",
    more_files: Sequence[str] = (),
) -> dict[str, Any]:
    """Return what a run has in common with an equal one. more_files: hashes of what it reads beside its rows."""
    return identity(
        run,
        files=[*(content_of(file, inputs.hashes.sha256) for file in inputs.located.files()), *more_files],
        store=dict(inputs.key(run.data).parts),
        trusted=trusted,
        base=inputs.source.sha256,
        template=inputs.template.fingerprint,
        processes=processes,
        versions=machine.versions,
    )


def write_run_json(
    plan: Plan,
    machine: Machine,
    inputs: DataInputs,
    what: Mapping[str, Any],
    command: str,
    *,
    resumed_from: str,
    more: Mapping[str, Any],
) -> None:
    """Write what the run is; one that goes on keeps its start and adds where it went on. what: its identity.

    resumed_from: "" for a run that begins. more: what else is known of it.
    """
    file = RunPaths(plan.run.output).run_json
    files = [str(path) for path in inputs.located.files()]
    now = datetime.now(UTC).isoformat(timespec="seconds")
    earlier = read_json(file) if resumed_from else {}
    write_json(
        file,
        {
            "schema_version": 1,
            "command": command,
            "config": asdict(plan.run),
            "effects": [asdict(effect) for effect in plan.effects],
            "defaults": [asdict(default) for default in plan.defaults],
            "init_adapter": provenance(plan.run),
            "model": {"name": inputs.source.name, "kind": inputs.source.kind, "sha256": inputs.source.sha256},
            "machine": asdict(machine),
            "started": earlier.get("started", now),
            "resumes": [*items(earlier, "resumes"), *([{"time": now, "from": resumed_from}] if resumed_from else [])],
            "identity": dict(what),
            **more,
            "data": {"files": dict(zip(files, what["data"], strict=False)), **part(more, "data")},
        },
    )


@contextmanager
def recorded(status: RunStatus, log: RunLog) -> Iterator[None]:
    """Write down the error that ends the block, and let it go on. Raises Interrupted for a signal that no loop waited for."""
    try:
        # Among several processes one may wait for the others in a call that no signal wakes.
        with raising_sigterm() if status.world_size == 1 else nullcontext():
            yield
    except KeyboardInterrupt as error:
        name, code = ("SIGTERM", TERMINATED) if isinstance(error, Terminated) else ("SIGINT", CTRL_C)
        lost = "what is not on disk yet" if status.stage else "what came after the last checkpoint"
        message = f"interrupted by {name} {status.how_far}; {lost} is lost"
        interrupted = Interrupted(message, f"go on: {status.go_on}", code)
        _write_down(status, log, interrupted)
        raise interrupted from error
    except BaseException as error:
        met = known(error)
        if met is None:
            log.write("".join(traceback.format_exception(error)))
        _write_down(status, log, met or ExpertError(f"{type(error).__name__}: {error}"))
        raise


def _write_down(status: RunStatus, log: RunLog, error: ExpertError) -> None:
    for line in failure_lines(error.message, error.hint):
        log.write(line)
    with suppress(
        OSError, ExpertError
    ):  # a disk that is full must not hide what filled it, nor who took the run what ended it
        status.broken_off(error)


def finish(
    paths: RunPaths, found: dict[str, Any], sha256: str, reason: str, max_forget: float | None, status: RunStatus
) -> RunResult:
    """Leave what every run leaves at its end, COMPLETE last. found: report.json. sha256: of the adapter's weights."""
    from expert_cli.artifacts.report import write_report

    write_json(paths.report_json, found)
    too_much = missed(found, max_forget)
    status.complete(too_much or reason, ThresholdNotMet.exit_code if too_much else 0)
    write_report([paths.output], paths.report_html)
    of_config = sha256_of(paths.adapter / CONFIG)
    write_text(paths.complete, f"{sha256}  adapter/{WEIGHTS}\n{of_config}  adapter/{CONFIG}\n")
    return RunResult(paths.output, found, too_much)
