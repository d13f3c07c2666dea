"""Creates a run directory, and writes its run.json, the result, and the error that ends the run."""

from __future__ import annotations

import json
import traceback
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from expert_cli.config.adapter_origin import CONFIG, WEIGHTS, provenance
from expert_cli.config.plan import Plan, require_free
from expert_cli.config.run_config import RunConfig
from expert_cli.config.run_identity import STORE, identity, require_goes_on, settings_of
from expert_cli.data.sources import Located, LocatedData, content_of, locate_data
from expert_cli.data.store.lookup import store_key
from expert_cli.errors import CTRL_C, TERMINATED, ExpertError, IntegrityError, Interrupted, ThresholdNotMet
from expert_cli.hardware.machine import Machine
from expert_cli.pipeline.forgetting import missed
from expert_cli.pipeline.options import RunOptions
from expert_cli.pipeline.training_data import DataInputs
from expert_cli.runs.lock import contents
from expert_cli.runs.log import RunLog
from expert_cli.runs.metrics import forgotten_in_words, items, mean_span, part, read_json
from expert_cli.runs.run_paths import RunPaths
from expert_cli.runs.signals import Terminated, raising_sigterm
from expert_cli.runs.status import RunStatus
from expert_cli.utils.disk_errors import known
from expert_cli.utils.files import FileHashCache, sha256_of, write_json, write_text
from expert_cli.utils.redaction import redact
from expert_cli.utils.reporter import NullReporter, Reporter
from expert_cli.utils.text import duration, failure_lines, quoted, shortened

if TYPE_CHECKING:
    from accelerate import PartialState


@dataclass(frozen=True)
class Work:
    """A run of this job and its reporters; only the first process has a status and a log."""

    plan: Plan
    machine: Machine
    report: Reporter
    options: RunOptions
    job: PartialState
    status: RunStatus = field(default_factory=RunStatus)
    log: RunLog = field(default_factory=RunLog)


def begin_run(work: Work) -> None:
    """Create the output folder, and begin status and log; an existing run is moved aside, or continued."""
    output, options = work.plan.run.output, work.options
    paths = RunPaths(output)
    require_free(output, overwrite=options.overwrite or bool(options.resume))
    if contents(output) and not options.resume:
        aside = output.with_name(f"{output.name}.{datetime.now():%Y%m%d-%H%M%S-%f}")
        output.rename(aside)
        work.report.info(f"moved the existing run to {aside}")
    output.mkdir(parents=True, exist_ok=True)
    paths.complete.unlink(missing_ok=True)  # a continued run has not ended
    work.status.begin()
    work.log.begin(paths.log)


def identity_of(work: Work, inputs: DataInputs, trusted: str = "", more_files: Sequence[str] = ()) -> dict[str, Any]:
    """Return the identity of a run, which equal runs share. more_files: hashes of other files that it reads."""
    more = {
        "data": [*(content_of(file, inputs.hashes.sha256) for file in inputs.located.files()), *more_files],
        "base model": inputs.source.sha256,
        "template": inputs.template.fingerprint,
        "versions": work.machine.versions,
        "processes": work.job.num_processes,
    }
    return identity(work.plan.run, dict(inputs.key(work.plan.run.data).parts), trusted, more)


def write_run_json(
    work: Work, inputs: DataInputs, what: Mapping[str, Any], *, resumed_from: str, more: Mapping[str, Any]
) -> None:
    """Write run.json: the identity and `more`; a continued run keeps its start time and records each resume."""
    plan = work.plan
    file = RunPaths(plan.run.output).run_json
    files = [str(path) for path in inputs.located.files()]
    now = datetime.now(UTC).isoformat(timespec="seconds")
    earlier = read_json(file) if resumed_from else {}
    resumes = [*items(earlier, "resumes"), *([{"time": now, "from": resumed_from}] if resumed_from else [])]
    write_json(
        file,
        {
            "schema_version": 1,
            "command": work.status.command,
            "config": asdict(plan.run),
            "effects": [asdict(effect) for effect in plan.effects],
            "defaults": [asdict(default) for default in plan.defaults],
            "init_adapter": provenance(plan.run),
            "model": {"name": inputs.source.name, "kind": inputs.source.kind, "sha256": inputs.source.sha256},
            "machine": asdict(work.machine),
            "started": earlier.get("started", now),
            "resumes": resumes,
            "identity": dict(what),
            **more,
            "data": {"files": dict(zip(files, what["data"], strict=False)), **part(more, "data")},
        },
    )


@contextmanager
def recorded(status: RunStatus, log: RunLog) -> Iterator[None]:
    """Record the error that ends the block, and raise it again. Raises Interrupted for a signal outside the training loop."""
    try:
        # With several processes, one may wait for the others in a call that no signal interrupts.
        with raising_sigterm() if status.world_size == 1 else nullcontext():
            yield
    except KeyboardInterrupt as error:
        name, code = ("SIGTERM", TERMINATED) if isinstance(error, Terminated) else ("SIGINT", CTRL_C)
        lost = "; what came after the last checkpoint is lost" if status.step else "; no checkpoint was written"
        lost = "; what is not on disk yet is lost" if status.stage else "" if status.steps is None else lost
        message = f"interrupted by {name} {status.how_far}{lost}"
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
    # a failure to write the status must not hide the error that ended the run
    with suppress(OSError, ExpertError):
        status.broken_off(error)


def finish(work: Work, found: dict[str, Any]) -> RunResult:
    """Write the files at the end of every run, COMPLETE last. found: the contents of report.json."""
    from expert_cli.artifacts.report import write_report

    paths = RunPaths(work.plan.run.output)
    write_json(paths.report_json, found)
    too_much = missed(found, work.options.max_forget)
    work.status.complete(too_much or found["stop_reason"], ThresholdNotMet.exit_code if too_much else 0)
    write_report([paths.output], paths.report_html)
    sealed = {WEIGHTS: found["adapter_sha256"], CONFIG: sha256_of(paths.adapter / CONFIG)}
    write_text(paths.complete, "".join(f"{sha256}  adapter/{name}\n" for name, sha256 in sealed.items()))
    return RunResult(paths.output, found, too_much)


LONGEST_ANSWER = 220
"""Largest number of characters of a text in the summary of a run."""


@dataclass(frozen=True)
class RunResult:
    """The result of `train`: the document of `train --json` (docs/INTERFACE.md), which is report.json of the run directory.

    missed: which threshold was missed, with both values; "" for none.
    """

    output: Path
    document: Mapping[str, Any]
    missed: str = ""

    def summary(self) -> str:
        """Return the lines shown at the end."""
        done = self.document
        loss = done["loss"]
        means = f"means of the first and last {mean_span(done['steps'])}"
        speed = f"{duration(done['seconds'])}, {done['tokens_per_s']:,.0f} real tokens/s"
        lines = [
            f"loss {loss['first_mean']:.3f} -> {loss['last_mean']:.3f} ({means} of {done['steps']} steps), {speed}, "
            f"peak memory {done['peak_memory_mb'] / 1024:.1f} GB"
        ]
        if done["eval_loss"] is not None:
            lines.append(f"evaluation loss {done['eval_loss']:.3f}")
        forgotten = forgotten_in_words(done.get("forgetting"))
        lines += [f"forgotten {forgotten}"] if forgotten else []
        lines += _sample_lines(done.get("samples", ()))
        asked = f"expert-cli evaluate, chat or export, each with --adapter {quoted(self.output)}"
        lines += [f"adapter   {self.output / 'adapter'}", f"next      {asked}", f"ended     {done['stop_reason']}"]
        return "\n".join(lines)


def finished(run: RunConfig, drift: Collection[str] | None, report: Reporter) -> RunResult | None:
    """Return the result of the run in the output folder if it is complete, else None. drift: keys that may differ in a stage.

    Raises IntegrityError if its adapter has changed, or if its settings or data were different. Missing data is not an error.
    """
    paths = RunPaths(run.output)
    if not paths.complete.is_file():
        return None
    document, weights = read_json(paths.report_json), paths.adapter / WEIGHTS
    if not weights.is_file() or sha256_of(weights) != document.get("adapter_sha256"):
        told = f"{weights} is not the adapter that {paths.report_json} of a complete run names"
        raise IntegrityError(told, "train again with --overwrite")
    if what := part(read_json(paths.run_json), "identity"):
        require_goes_on(paths.run_json, what, _set_now(run, what), drift, report)
    return RunResult(run.output, document)


def _set_now(run: RunConfig, recorded: Mapping[str, Any]) -> dict[str, Any]:
    """Return the identity of a run with the current settings, and with the current data if it exists; the rest as recorded."""
    as_recorded, hashes = {"rule", "tokenizer", "template"}, FileHashCache(run.store)
    offline = run.data.offline or all(spec.kind != "url" for spec in (*run.data.train, *run.data.validation))
    try:
        located = locate_data(replace(run.data, offline=offline), NullReporter())
        key = store_key(run.data, located, hashes, tokenizer="", template="")
    except (ExpertError, OSError):
        as_recorded |= {"train data", "validation data", "databases"}
        sources = (tuple(Located(spec, ()) for spec in specs) for specs in (run.data.train, run.data.validation))
        key = store_key(run.data, LocatedData(*sources), hashes, tokenizer="", template="")
    store = part(recorded, STORE) | {name: value for name, value in key.parts if name not in as_recorded}
    return {**recorded, **json.loads(redact(json.dumps(settings_of(run) | {STORE: store})))}


def _sample_lines(samples: Sequence[Mapping[str, Any]]) -> list[str]:
    marks, lines = {None: "", True: "right: ", False: "wrong: "}, list[str]()
    for one in samples:
        shown = {"prompt": one["prompt"], **({} if one["right_after"] else {"expected": one["expected"]})}
        shown |= {of: marks[one[f"right_{of}"]] + one[of] for of in ("before", "after")}
        lines += [f"{name:9} {shortened(' '.join(text.split()), LONGEST_ANSWER)}" for name, text in shown.items()]
    run = [one for one in samples if one["right_before"] is not None and one["right_after"] is not None]
    if run:
        before, after = (sum(bool(one[f"right_{of}"]) for one in run) for of in ("before", "after"))
        told = f"{len(run)} held-out cases, drawn by the seed and run: {before} right before training, {after} after"
        lines.append(f"answers   to {told}")
    return lines
