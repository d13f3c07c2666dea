"""`expert-cli pretokenize`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from expert_cli.commands.options.common import BaseModel, Debug, Json, Offline, Quiet
from expert_cli.console.terminal import Console
from expert_cli.data.templates.whole_text import describe_forms
from expert_cli.errors import ExpertError, InputError

if TYPE_CHECKING:
    from expert_cli.config.plan import Plan
    from expert_cli.pipeline.pretokenize import DataInputs, StoreReport


def pretokenize(
    manifest: Annotated[
        list[Path] | None,
        typer.Option("--manifest", "-m", help="An expert's manifest.json; repeatable.", show_default=False),
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="Every expert in ./experts (or in EXPERTS).")] = False,
    experts: Annotated[Path, typer.Argument(help="Folder of experts for --all.")] = Path("experts"),
    dataset: Annotated[str | None, typer.Option(help="This file, folder or hub id instead of the manifest's.")] = None,
    base_model: BaseModel = None,
    output: Annotated[
        Path | None, typer.Option(help="Folder above the key; of several experts, one folder each.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Build anew even if the store fits.")] = False,
    verify: Annotated[bool, typer.Option("--verify", help="Hash every file of the store again.")] = False,
    explain: Annotated[
        bool, typer.Option("--explain", help="Say hit, missing, stale or damaged, and what changed; build nothing.")
    ] = False,
    show: Annotated[int, typer.Option(min=0, help="Print this many documents, trained tokens marked.")] = 0,
    threads: Annotated[int, typer.Option(min=0, help="Threads that tokenize; 0: one a core.")] = 0,
    stage: Annotated[Path | None, typer.Option(help="Copy the data to this folder (a faster disk) first.")] = None,
    prune: Annotated[
        bool, typer.Option("--prune", help="Delete this expert's other stores, those of other base models too.")
    ] = False,
    offline: Offline = False,
    as_json: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Tokenize an expert's data once; training opens the result.

    Of several experts, one that fails does not stop the others; the exit code is then that of the first failure.

    Examples:

        expert-cli pretokenize --manifest experts/expert-sql/manifest.json

        expert-cli pretokenize --all --base-model smollm2

        expert-cli pretokenize -m experts/expert-sql/manifest.json --explain
    """
    console = Console("pretokenize", as_json=as_json, quiet=quiet)
    if every:
        manifests = sorted(experts.glob("*/manifest.json"))
        if not manifests:
            raise InputError(f"--all: no */manifest.json in {experts}", "name the folder that holds the experts")
    else:
        manifests = manifest or []
    if not manifests:
        raise typer.BadParameter("give --manifest PATH, or --all")
    from expert_cli._compat import quiet_imports
    from expert_cli.config.plan import make_plan
    from expert_cli.config.resolve import Overrides
    from expert_cli.hardware import machine
    from expert_cli.utils.paths import folder_name

    overrides = Overrides(dataset=dataset, base_model=base_model, offline=offline)
    facts = machine.inspect()
    rows: list[dict[str, object]] = []
    failed: list[tuple[Path, ExpertError]] = []
    for path in manifests:
        try:
            plan = make_plan(path, facts, overrides)
            quiet_imports()
            from expert_cli.data.tokenize.backends import limit_threads

            limit_threads(threads)
            folder = output / folder_name(plan.run.expert) if output and (every or len(manifests) > 1) else output
            rows.append(
                _one(
                    console,
                    plan,
                    folder,
                    force=force,
                    verify=verify,
                    explain=explain,
                    show=show,
                    prune=prune,
                    stage=stage,
                )
            )
        except ExpertError as error:
            if len(manifests) == 1:
                raise
            if debug:
                console.trace()
            failed.append((path, error))
            console.info(f"failed    {path}")
    if as_json:
        console.document({"stores": rows} | ({"failed": [_failure(*one) for one in failed]} if failed else {}))
    _end(console, failed, len(manifests))


def _failure(manifest: Path, error: ExpertError) -> dict[str, object]:
    return {
        "manifest": str(manifest),
        "exit_code": error.exit_code,
        "message": error.message,
        "hint": error.hint,
    }


def _end(console: Console, failed: list[tuple[Path, ExpertError]], count: int) -> None:
    """Say which of several experts failed and why, and leave with the first one's exit code."""
    if not failed:
        return
    if not console.as_json:
        console.warning(f"{len(failed)} of {count} experts failed")
        for path, error in failed:
            where = "" if error.message.startswith(str(path)) else f"{path}: "
            console.fail(f"{where}{error.message}", error.hint, error.exit_code)
    raise typer.Exit(failed[0][1].exit_code)


def _one(
    console: Console,
    plan: Plan,
    folder: Path | None,
    *,
    force: bool,
    verify: bool,
    explain: bool,
    show: int,
    prune: bool,
    stage: Path | None,
) -> dict[str, object]:
    from dataclasses import replace

    from expert_cli.data.store.prune import prune as remove_others
    from expert_cli.pipeline.pretokenize import describe, resolve_inputs, staged_inputs, store_for
    from expert_cli.pipeline.pretokenize import explain as explain_store

    run = replace(plan.run, store=folder.resolve()) if folder else plan.run
    inputs = resolve_inputs(run, console)
    if stage is not None:
        inputs = staged_inputs(inputs, run, stage, console)
    if explain:
        key, state = explain_store(run, inputs)
        if not console.as_json:
            console.text(
                "\n".join([f"{run.expert}: {state.state}: {state.reason}", *(f"  {c}" for c in state.changes)])
            )
        return {"expert": run.expert, "path": str(run.store / key.sha256[:12]), "status": state.state} | {
            "reason": state.reason,
            "key": key.sha256,
            "changes": list(state.changes),
        }
    report = describe(run, store_for(run, inputs, console, verify=verify, force=force))
    if prune:
        remove_others(run.store, report.store.key.sha256, run.expert, console)
    if not console.as_json:
        _show_report(console, report)
        _show_documents(console, inputs, report, show)
    return report.as_json()


def _show_report(console: Console, report: StoreReport) -> None:
    row = report.as_json()
    speed = f" in {row['seconds']:.1f} s, {row['mb_per_s']:.1f} MB/s, {row['encoder']}" if row["mb_per_s"] else ""
    cut = f"{report.truncated_rows:,} documents shortened by {report.truncated_tokens:,} tokens"
    length = ", ".join(f"{name} {value:,}" for name, value in row["length"].items())
    dropped = ", ".join(f"{count:,} {reason}" for reason, count in row["dropped"].items()) or "none"
    lines = [
        f"{report.expert}: {report.store.status}{speed}",
        f"  store     {report.store.home}",
        f"  rows      {row['rows']:,}, {row['tokens']:,} tokens, {row['trained_tokens']:,} trained; dropped: {dropped}",
        *([f"  forms     {describe_forms(row['forms'])}"] if row["forms"] else []),
        *([f"  not read  {', '.join(row['ignored'])}"] if row["ignored"] else []),
        f"  length    {length}",
        *_histogram(report),
        f"  packing   {report.sequences:,} packs of {report.max_seq_length:,}, {report.fill:.2%} full; "
        f"{cut if report.truncated_rows else 'nothing is cut'}",
    ]
    console.text("\n".join(lines))
    console.table(
        f"  right size: {report.recommended:,} is the smallest here that cuts nothing, or under 0.1 % of the trained tokens"
        + _wasted(report),
        ["max_seq_length", "rows", "full", "documents cut", "tokens cut"],
        [
            [
                f"{s.max_seq_length:,}",
                f"{s.sequences:,}",
                f"{s.fill:.2%}",
                f"{s.truncated_rows:,}",
                f"{s.truncated_tokens:,}",
            ]
            for s in report.sizes
        ],
    )


def _wasted(report: StoreReport) -> str:
    """What the present length costs where another one is recommended."""
    now = f"\n  max_seq_length is {report.max_seq_length:,} now"
    if report.max_seq_length < report.recommended:
        return f"{now}, which cuts {report.truncated_tokens:,} tokens"
    return (
        f"{now}: {1 - report.fill:.2%} of the places stay empty" if report.max_seq_length > report.recommended else ""
    )


def _histogram(report: StoreReport, width: int = 32) -> list[str]:
    histogram = report.store.stats["train"]["histogram"]
    top = max(histogram["counts"])
    return [
        f"    {edge:7,.0f}+  {'#' * round(width * count / top):{width}} {count:,}"
        for edge, count in zip(histogram["edges"], histogram["counts"], strict=False)
        if count
    ]


def _show_documents(console: Console, inputs: DataInputs, report: StoreReport, count: int) -> None:
    from expert_cli.pipeline.pretokenize import shown_documents

    for number, runs in enumerate(shown_documents(report.store, inputs, count)):
        console.text(f"document {number}")
        console.marked(runs)
