"""`expert-cli pretokenize`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from expert_cli import api
from expert_cli.commands.options import BaseModel, Offline, arguments
from expert_cli.console.terminal import Console
from expert_cli.errors import ExpertError, InputError

if TYPE_CHECKING:
    from expert_cli.pipeline.pretokenize import ShownDocuments, StoreExplanation, StoreReport


def pretokenize(
    console: Console,
    manifest: Annotated[
        list[Path] | None,
        typer.Option("--manifest", "-m", help="An expert's manifest.json; repeatable."),
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="Every expert in ./experts (or in EXPERTS).")] = False,
    experts: Annotated[Path, typer.Argument(help="Folder of experts for --all.")] = Path("experts"),
    dataset: Annotated[
        str | None, typer.Option(help="This file, folder, URL or hub id instead of the manifest's.")
    ] = None,
    base_model: BaseModel = None,
    output: Annotated[
        str | None,
        typer.Option(
            metavar="DIR|URL", help="Folder above the key, also s3:// or gs://; of several experts, one each."
        ),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Build anew even if the store fits.")] = False,
    verify: Annotated[bool, typer.Option("--verify", help="Hash every file of the store again.")] = False,
    explain: Annotated[
        bool, typer.Option("--explain", help="Say hit, missing, stale or damaged, and what changed; build nothing.")
    ] = False,
    documents: Annotated[
        int, typer.Option("--show", min=0, help="Show this many documents, and which tokens of them are trained.")
    ] = 0,
    threads: Annotated[int, typer.Option(min=0, help="Threads that tokenize; 0: one a core.")] = 0,
    stage: Annotated[Path | None, typer.Option(help="Copy the data to this folder (a faster disk) first.")] = None,
    prune: Annotated[
        bool, typer.Option("--prune", help="Delete this expert's other stores, those of other base models too.")
    ] = False,
    ray: Annotated[
        str,
        typer.Option(
            metavar="ADDRESS", help="Tokenize on this Ray cluster (HOST:6379, ray://HOST:10001, auto, local)."
        ),
    ] = "",
    offline: Offline = False,
) -> None:
    """Tokenize an expert's data once; training opens the result.

    Of several experts, one that fails does not stop the others; the exit code is then that of the first failure.

    Examples:

        expert-cli pretokenize --manifest experts/expert-sql/manifest.json

        expert-cli pretokenize --all --base-model smollm2

        expert-cli pretokenize -m experts/expert-sql/manifest.json --explain

        expert-cli pretokenize -m experts/expert-sql/manifest.json --show 5

        expert-cli pretokenize -m experts/expert-sql/manifest.json --output s3://bucket/stores
    """
    asked = locals()
    manifests = sorted(experts.glob("*/manifest.json")) if every else manifest or []
    if not manifests:
        hint = "name the folder that holds the experts" if every else ""
        raise InputError(f"--all: no */manifest.json in {experts}" if every else "give --manifest PATH, or --all", hint)
    rows: list[dict[str, object]] = []
    failed: list[tuple[Path, ExpertError]] = []
    asked["own_folder"] = every or len(manifests) > 1
    for path in manifests:
        asked["manifest"] = path
        try:
            if explain:
                explanation = api.explain_store(**arguments(api.explain_store, asked))
                rows.append(explanation.as_json())
                _show_explanation(console, explanation)
            else:
                report = api.pretokenize(**arguments(api.pretokenize, asked))
                rows.append(report.as_json())
                _show_report(console, report)
        except ExpertError as error:
            if len(manifests) == 1:
                raise
            if console.debug:
                console.trace()
            failed.append((path, error))
            console.info(f"failed    {path}")
    if console.as_json:
        told = [{"manifest": str(path), **error.as_json()} for path, error in failed]
        console.document({"stores": rows, **({"failed": told} if failed else {})})
    if failed:
        _end(console, failed, len(manifests))


def _end(console: Console, failed: Sequence[tuple[Path, ExpertError]], count: int) -> None:
    """Say which of several experts failed and why, and leave with the first one's exit code."""
    if not console.as_json:
        console.warning(f"{len(failed)} of {count} experts failed")
        for path, error in failed:
            where = "" if error.message.startswith(str(path)) else f"{path}: "
            console.fail(f"{where}{error.message}", error.hint, error.exit_code)
    raise typer.Exit(failed[0][1].exit_code)


def _show_explanation(console: Console, found: StoreExplanation) -> None:
    if not console.as_json:
        head = f"{found.expert}: {found.state.state}: {found.state.reason}"
        console.text("\n  ".join([head, *found.state.changes]))


def _show_report(console: Console, report: StoreReport) -> None:
    if console.as_json:
        return
    from expert_cli.data.templates.mask import describe_forms

    row, packing = report.as_json(), report.packing
    speed = f" in {row['seconds']:.1f} s, {row['mb_per_s']:.1f} MB/s, {row['encoder']}" if row["mb_per_s"] else ""
    cut = f"{packing.truncated_rows:,} documents shortened by {packing.truncated_tokens:,} tokens"
    length = ", ".join(f"{name} {value:,}" for name, value in row["length"].items())
    dropped = ", ".join(f"{count:,} {reason}" for reason, count in row["dropped"].items()) or "none"
    lines = [
        f"{report.expert}: {report.store.status}{speed}",
        f"  store     {report.store.place}",
        f"  rows      {row['rows']:,}, {row['tokens']:,} tokens, {row['trained_tokens']:,} trained; dropped: {dropped}",
        *(_filtered(reason, told) for reason, told in row["filtered"].items() if told["examples"]),
        *([f"  forms     {describe_forms(row['forms'])}"] if row["forms"] else []),
        *(
            [f"  split     {row['split_conversations']:,} conversations: a document an answer"]
            * bool(row["split_conversations"])
        ),
        *([f"  not read  {', '.join(row['ignored'])}"] if row["ignored"] else []),
        f"  length    {length}",
        *_histogram(report),
        f"  packing   {packing.sequences:,} packs of {packing.max_seq_length:,}, {packing.fill:.2%} full; "
        f"{cut if packing.truncated_rows else 'nothing is cut'}",
    ]
    console.text("\n".join(lines))
    console.table(
        f"  right size: {report.recommended:,} is the smallest here that cuts nothing, or under 0.1 % of the trained tokens"
        + _wasted(report),
        ["max_seq_length", "rows", "full", "documents cut", "tokens cut"],
        [
            [f"{value:.2%}" if name == "fill" else f"{value:,}" for name, value in vars(size).items()]
            for size in report.sizes
        ],
    )
    if report.shown:
        _show_documents(console, report.shown, row["trained_tokens"] / row["tokens"])


def _show_documents(console: Console, shown: ShownDocuments, share: float) -> None:
    console.text(
        f"documents {len(shown.documents):,} of {shown.total:,}; {share:.1%} of all tokens are trained\n"
        f"  manifest  {shown.manifest}\n"
        f"  template  {shown.template}, tokenizer of {shown.base_model}\n"
        "  marks     » trained, | not trained, × left out by max_seq_length; ¦ between tokens, ¶ a line feed"
    )
    for number, document in enumerate(shown.documents, 1):
        left_out = document.kept.count(False)
        more = f", {left_out:,} left out" if left_out else ""
        console.heading(f"document {number}: {len(document.ids):,} tokens, {sum(document.trained):,} trained{more}")
        console.tokens(document.runs())


def _filtered(reason: str, told: Mapping[str, Any]) -> str:
    """A filter, how many rows it leaves out, and the first of them."""
    examples = "; ".join(f'{one["where"]} "{one["text"]}"' for one in told["examples"])
    return f"  left out  {told['rows']:,} {reason}: {examples}"


def _wasted(report: StoreReport) -> str:
    """What the present length costs where another one is recommended."""
    length = report.packing.max_seq_length
    now = f"\n  max_seq_length is {length:,} now"
    if length < report.recommended:
        return f"{now}, which cuts {report.packing.truncated_tokens:,} tokens"
    return f"{now}: {1 - report.packing.fill:.2%} of the places stay empty" if length > report.recommended else ""


def _histogram(report: StoreReport, width: int = 32) -> list[str]:
    histogram = report.store.stats["train"]["histogram"]
    top = max(histogram["counts"])
    return [
        f"    {edge:7,.0f}+  {'#' * round(width * count / top):{width}} {count:,}"
        for edge, count in zip(histogram["edges"], histogram["counts"], strict=False)
        if count
    ]
