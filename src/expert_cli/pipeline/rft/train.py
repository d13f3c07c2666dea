"""The main path of a run in rounds (`method` rft): top to bottom, one line a stage."""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from expert_cli.artifacts.model_card import put_section
from expert_cli.config.adapter_origin import WEIGHTS, find_adapter
from expert_cli.config.plan import Plan
from expert_cli.config.run_identity import (
    begun_as,
    identity,
    require_goes_on,
    require_same,
)
from expert_cli.data.columns import Columns
from expert_cli.data.overlap import HeldOut
from expert_cli.data.select import select_rows
from expert_cli.data.sources import content_of
from expert_cli.errors import InputError
from expert_cli.evaluation.cases import asked_by_cases
from expert_cli.hardware.devices import DEVICES
from expert_cli.hardware.machine import Machine
from expert_cli.pipeline.beginning import begin_run
from expert_cli.pipeline.ending import finish
from expert_cli.pipeline.forgetting import choose_texts
from expert_cli.pipeline.options import RunOptions, require_folders_apart
from expert_cli.pipeline.pretokenize import DataInputs, resolve_inputs
from expert_cli.pipeline.result import RunResult
from expert_cli.pipeline.rft.prompts import Prompts, read_prompts
from expert_cli.pipeline.rft.rounds import Rounds, make_rounds
from expert_cli.pipeline.rft.select import RowForm
from expert_cli.pipeline.rft.work import Work
from expert_cli.pipeline.run_json import run_facts
from expert_cli.runs.log import RunLog
from expert_cli.runs.metrics import items, part, read_json
from expert_cli.runs.paths import RunPaths
from expert_cli.runs.status import RunStatus
from expert_cli.utils.distributed import barrier, broadcast_rank0
from expert_cli.utils.files import remove, sha256_of, sync_folder, write_bytes, write_json
from expert_cli.utils.reporter import NullReporter, Reporter

if TYPE_CHECKING:
    from accelerate import PartialState

SECTION = "Learned from answers that were run"


def train_in_rounds(
    plan: Plan,
    machine: Machine,
    report: Reporter,
    options: RunOptions,
    job: PartialState,
    status: RunStatus,
    log: RunLog,
) -> RunResult:
    """Train, then draw answers, run them and train on the right ones, round by round; leave a run directory of the best.

    What is there and whole of an earlier start is kept. Raises what one training raises, and what judging raises.
    """
    started = time.monotonic()
    settings = plan.run.rft
    if settings is None:
        raise ValueError("a run of one training has no rounds")
    require_folders_apart(plan.run, options)
    if options.resume not in ("", "auto"):
        raise InputError(f"--resume {options.resume}: a run in rounds has no checkpoints of its own", "--resume auto")
    choose_texts(plan.run, options.max_forget, NullReporter())  # each training says which; here what cannot be measured
    begun_from = _run_of(plan.run.adapter.init_adapter) if plan.run.adapter.init_adapter is not None else None
    work = Work(plan, settings, machine, report, options, job, status)
    goes_on = bool(options.resume) and RunPaths(plan.run.output).run_json.is_file()
    prompts = read_prompts(plan, settings, options.permissions, report, were_judged=goes_on)
    inputs = resolve_inputs(plan.run, report)
    form = RowForm(_columns(plan, inputs, prompts, report), inputs.template, plan.run.data.schema_prompt)
    form.require_shown(prompts.sampled)
    work = replace(work, hashes={name: sha256_of(Path(name)) for name in prompts.files})
    what = _identity(work, inputs)
    what = broadcast_rank0(partial(_same_run, work, what))
    work = replace(work, begun_with=what["processes"])
    if job.is_main_process:
        begin_run(plan.run, report, options, status, log)
        _write_run_json(work, inputs, what)
    barrier()
    DEVICES[plan.run.compute.device].set_flags(tf32=plan.run.compute.tf32)  # a run that goes on may begin by answering
    rounds = make_rounds(work, prompts, form, begun_from or first_adapter(work))
    if not job.is_main_process:
        return RunResult(plan.run.output, {})
    return _finish(work, rounds, prompts, started)


def first_adapter(work: Work) -> Path:
    """Train the adapter that the first round draws with; return its run directory."""
    work.at("first training")
    return work.train(replace(work.run, output=work.run.output / "sft"), is_first=True).output


def _run_of(adapter: Path) -> Path:
    """Return the run directory that an adapter is the result of. Raises InputError: there is none, or it is a checkpoint."""
    origin = find_adapter(adapter)
    run = origin.run
    if run is None or not RunPaths(run).complete.is_file() or origin.adapter != RunPaths(run).adapter:
        raise InputError(
            f"{adapter}: is not the adapter of a complete run", "rounds begin with one: --from RUN_DIRECTORY"
        )
    return run


def _columns(plan: Plan, inputs: DataInputs, prompts: Prompts, report: Reporter) -> Columns:
    """Return the columns that the rounds' rows have: those of the first training's rows.

    Rows of training that ask what was held back are told. Raises InputError where rows are whole documents.
    """
    data = replace(plan.run.data, validation=(), validation_share=0.0, schema_prompt=None)  # as the rows stand
    selected = select_rows(data, inputs.located, NullReporter())
    columns = selected.train[0].columns
    if not (columns.response or columns.messages):
        told = f"rounds train rows of prompt and answer, those of {selected.train[0].located} are whole documents"
        raise InputError(told, "give rows of prompt and answer, or of messages")
    held = HeldOut(asked_by_cases(prompts.held_back))
    known = len({number for row in selected.rows() for number in held.find(*row.question)})
    if known:
        report.warning(
            f"{known} of {len(prompts.held_back)} held-back prompts stand in the training rows: of these, the figures tell "
            "what was remembered"
        )
    return columns


def _identity(work: Work, inputs: DataInputs) -> dict[str, Any]:
    """Return what two equal runs have in common: prompts, and what they are judged on, are data."""
    run, key = work.run, inputs.key(work.run.data)
    files = [content_of(file, inputs.hashes.sha256) for file in inputs.located.files()]
    named = (work.settings.prompts, work.settings.held_back_cases)
    files += [*(sha256_of(path) for path in named if path is not None), *work.hashes.values()]
    return identity(
        run,
        files=files,
        store=dict(key.parts),
        trusted="",
        base=inputs.source.sha256,
        template=inputs.template.fingerprint,
        processes=work.job.num_processes,
        versions=work.machine.versions,
    )


def _same_run(work: Work, what: Mapping[str, Any]) -> dict[str, Any]:
    """Return the identity of the run that begins or goes on. Raises IntegrityError where it, or --locked, is of another."""
    options, file = work.options, RunPaths(work.run.output).run_json
    before = part(read_json(file), "identity") if options.resume else {}
    if before:
        require_goes_on(file, before, what, options.drift, work.report)
    begun = begun_as(before, what, options.drift)
    if options.locked is not None:
        require_same(options.locked, begun, work.report)
    return begun


def _write_run_json(work: Work, inputs: DataInputs, what: Mapping[str, Any]) -> None:
    """Write what the run is; one that goes on keeps its start."""
    paths = RunPaths(work.run.output)
    earlier = read_json(paths.run_json)
    now = datetime.now(UTC).isoformat(timespec="seconds")
    files = [str(path) for path in inputs.located.files()]
    write_json(
        paths.run_json,
        {
            **run_facts(work.plan, work.machine, inputs.source, work.status.command),
            "started": earlier.get("started", now),
            "resumes": [*items(earlier, "resumes"), *([{"time": now, "from": str(paths.output)}] if earlier else [])],
            "identity": dict(what),
            "data": {"files": dict(zip(files, what["data"], strict=False))},
        },
    )


def _finish(work: Work, rounds: Rounds, prompts: Prompts, started: float) -> RunResult:
    """Leave the best adapter, and what was made, as every run leaves them."""
    paths, best = RunPaths(work.run.output), RunPaths(rounds.best.folder)
    told = _document(rounds, prompts)
    sha256 = _copy_adapter(rounds, paths)
    if best.metrics.is_file():
        write_bytes(paths.metrics, best.metrics.read_bytes())
    own, of_best = read_json(paths.run_json), read_json(best.run_json)
    files = part(own, "data") | {name: value for name, value in part(of_best, "data").items() if name != "files"}
    of_best = {name: of_best[name] for name in of_best if name in ("kernels", "template", "store", "torch_threads")}
    write_json(paths.run_json, {**of_best, **own, "data": files, "rft": told})
    seconds = time.monotonic() - started
    is_first = rounds.best.number == 0
    reason = (
        f"{rounds.ended}; the adapter is that of {'before the rounds' if is_first else f'round {rounds.best.number}'}"
    )
    found = read_json(best.report_json) | {
        "output": str(paths.output),
        "adapter_sha256": sha256,
        "resumed_from": None,
        "seconds": seconds,
        "stop_reason": reason,
        "rft": told,
    }
    return finish(paths, found, sha256, reason, work.options.max_forget, work.status)


def _document(rounds: Rounds, prompts: Prompts) -> dict[str, Any]:
    """Return the value under "rft"."""
    held = {"prompts": len(prompts.held_back), "parts": prompts.held_parts, "of": prompts.parts, "by": prompts.by}
    return {
        "held_back": held,
        "before": rounds.first.accuracy,
        "rounds": list(rounds.records),
        "best_round": rounds.best.number,
        "ended": rounds.ended,
    }


def _copy_adapter(rounds: Rounds, paths: RunPaths) -> str:
    """Copy the best adapter to its place, with a section of its card; return the hash of its weights."""
    beside = paths.adapter.with_name(".adapter.tmp")
    if beside.exists():  # of a run that was killed here
        remove(beside)
    shutil.copytree(find_adapter(rounds.best.folder).adapter, beside)
    if (beside / "README.md").is_file():
        put_section(beside / "README.md", SECTION, _card_lines(rounds))
    sync_folder(beside)
    if paths.adapter.exists():
        remove(paths.adapter)
    beside.rename(paths.adapter)
    return sha256_of(paths.adapter / WEIGHTS)


def _card_lines(rounds: Rounds) -> list[str]:
    share = rounds.first.accuracy
    lines = [
        "Accuracy on prompts to which no answers were drawn, with its 95 % interval.",
        "",
        "| round | answers | right | trained | accuracy | 95 % interval | kept |",
        "|---|---|---|---|---|---|---|",
        f"| before | | | | {share['accuracy']:.1%} | {share['ci95'][0]:.1%} to {share['ci95'][1]:.1%} | |",
    ]
    for one in rounds.records:
        judged = "| |"
        if "accuracy" in one:
            judged = f"| {one['accuracy']:.1%} | {one['ci95'][0]:.1%} to {one['ci95'][1]:.1%} |"
        kept = "yes" if one["is_kept"] else "no"
        lines.append(
            f"| {one['round']} | {one['asked']:,} | {one['right']:,} | {one['kept'] + one['expected']:,} {judged} {kept} |"
        )
    return [*lines, "", f"The adapter is that of round {rounds.best.number} (0: before the first)."]
