"""`expert-cli pretokenize`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option

from expert_cli import api
from expert_cli.commands.options import BaseModel, Dataset, Offline, Stage, arguments, refuse_idle
from expert_cli.console.terminal import Console
from expert_cli.errors import ExpertError, InputError
from expert_cli.utils.text import plural

if TYPE_CHECKING:
    from expert_cli.pipeline.pretokenize import ShownDocument, StoreReport

_MARKS = {True: "»", False: "|"}


def pretokenize(
    console: Console,
    manifest: Annotated[list[Path] | None, Option("--manifest", "-m")] = None,
    every: Annotated[bool, Option("--all", help="All experts in ./experts (or in EXPERTS).")] = False,
    experts: Annotated[Path, Argument(help="Folder of experts for --all.")] = Path("experts"),
    dataset: Dataset = None,
    base_model: BaseModel = None,
    output: Annotated[str | None, Option(metavar="DIR|URL")] = None,
    force: Annotated[bool, Option("--force")] = False,
    verify: Annotated[bool, Option("--verify")] = False,
    explain: Annotated[bool, Option("--explain", help="Only show the state of the store and what changed.")] = False,
    documents: Annotated[int, Option("--show", min=0)] = 0,
    threads: Annotated[int, Option(min=0)] = 0,
    stage: Stage = None,
    prune: Annotated[bool, Option("--prune")] = False,
    ray: Annotated[str, Option(metavar="ADDRESS")] = "",
    offline: Offline = False,
) -> None:
    """Tokenize an expert's data once; training then opens the result.

    With several experts, a failure does not stop the others. The exit code is that of the first failure.

    Examples:

        expert-cli pretokenize --manifest experts/expert-sql/manifest.json
        expert-cli pretokenize --all --base-model smollm2
        expert-cli pretokenize -m experts/expert-sql/manifest.json --explain
        expert-cli pretokenize -m experts/expert-sql/manifest.json --show 5
        expert-cli pretokenize -m experts/expert-sql/manifest.json --output s3://bucket/stores
    """
    asked = locals()
    if (every or experts != Path("experts")) and manifest:
        raise InputError("give --all (and EXPERTS) or --manifest, not both")
    if explain:
        refuse_idle(pretokenize, asked, "force verify documents threads prune ray", "does not go with --explain")
    manifests = sorted(experts.glob("*/manifest.json")) if every else manifest or []
    if not manifests:
        raise InputError(f"--all: no */manifest.json in {experts}" if every else "give --manifest PATH, or --all")
    function: Callable[..., StoreReport | dict[str, Any]] = api.explain_store if explain else api.pretokenize
    rows: list[dict[str, Any]] = []
    failed: list[dict[str, str | int]] = []
    for path in manifests:
        own = {**asked, "manifest": path, "own_folder": every or len(manifests) > 1}
        try:
            found = function(**arguments(api.pretokenize, own))
        except ExpertError as error:
            if len(manifests) == 1:
                raise
            console.warning(f"{path}: {error.message}; {error.hint}")
            failed.append({"manifest": str(path), **error.as_json()})
            continue
        rows.append(found if isinstance(found, dict) else found.as_json())
        if not console.as_json:
            _show(console, rows[-1], () if isinstance(found, dict) else found.shown)
    if console.as_json:
        console.document({"stores": rows, **({"failed": failed} if failed else {})})
    if failed:
        raise typer.Exit(int(failed[0]["exit_code"]))


def _show(console: Console, row: dict[str, Any], shown: Sequence[ShownDocument]) -> None:
    if "changes" in row:
        console.text("\n  ".join([f"{row['expert']}: {row['status']}: {row['reason']}", *row["changes"]]))
        return
    several = row["split_conversations"]
    lines = {
        "store": row["path"],
        "rows": f"{row['rows']:,}, {row['tokens']:,} tokens, {row['trained_tokens']:,} trained",
        "split": f"{plural(several, 'conversation')} into more than one document each" if several else "",
        "dropped": ", ".join(f"{count:,} {reason}" for reason, count in row["dropped"].items()),
        "not read": ", ".join(row["ignored"]),
        "length": ", ".join(f"{name} {value:,}" for name, value in row["length"].items()),
        "packing": f"{plural(row['packing']['sequences'], 'pack')} of "
        "{max_seq_length:,}, {fill:.2%} full; {truncated_rows:,} documents shortened by {truncated_tokens:,} tokens".format(
            **row["packing"]
        ),
    }
    speed = " in {seconds:.1f} s, {mb_per_s:.1f} MB/s, {encoder}".format(**row) if row["mb_per_s"] else ""
    console.text(f"{row['expert']}: {row['status']}{speed}")
    console.text("\n".join(f"  {name:9} {words}" for name, words in lines.items() if words))
    forms = {"fill": "{:.2%}"}
    sizes = [[forms.get(name, "{:,}").format(one) for name, one in size.items()] for size in row["right_size"]]
    best = row["recommended_max_seq_length"]
    title = f"  right size: {best:,} is the smallest here that cuts nothing, or under 0.1 % of the trained tokens"
    console.table(title, ["max_seq_length", "rows", "full", "documents cut", "tokens cut"], sizes)
    if shown:
        console.text("» trained, | not trained; ¦ between tokens, ¶ a line feed")
    for number, document in enumerate(shown, 1):
        console.text(f"document {number}: {len(document.ids):,} tokens, {sum(document.trained):,} trained")
        for trained, tokens in document.runs():
            text = "¦".join(token.replace("\n", "¶\n") for token in tokens if token).removesuffix("\n")
            console.text("\n".join(f"{_MARKS[trained]} {line}" for line in text.split("\n")))
