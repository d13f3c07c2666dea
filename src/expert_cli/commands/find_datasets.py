"""`expert-cli find-datasets`."""

from __future__ import annotations

import time
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from expert_cli.console.terminal import Console
from expert_cli.errors import ExpertError
from expert_cli.utils.reporter import NullReporter
from expert_cli.utils.text import plural, size_text

if TYPE_CHECKING:
    from expert_cli.config.plan import Plan
    from expert_cli.inventory.dataset import DatasetEntry

_AGES = ((60.0, "minute"), (3600.0, "hour"), (86400.0, "day"), (30.4 * 86400, "month"), (365.25 * 86400, "year"))


def find_datasets(
    console: Console,
    experts: Annotated[
        Path | None,
        typer.Option(help="The experts' folder. Default: experts/ here or above."),
    ] = None,
    hf_cache: Annotated[
        Path | None,
        typer.Option(help="A Hugging Face cache. Default: where HF_HOME and its kind point."),
    ] = None,
) -> None:
    """List the data on this machine: size, last use, which expert names it, and what is missing.

    Looks into the Hugging Face caches, datasets_optimized/ and the experts' folders; parses no rows, changes nothing. The last
    column is what train --dataset takes to read it. Lines of JSONL count as rows, for as long as two seconds a data set.

    Examples:

        expert-cli find-datasets

        expert-cli find-datasets --experts experts --hf-cache /data/huggingface --json
    """
    from expert_cli.inventory.catalog import take_inventory
    from expert_cli.inventory.hf_cache import hf_caches
    from expert_cli.inventory.manifest_references import default_experts

    if hf_cache is not None and not hf_cache.is_dir():
        console.warning(f"{hf_cache}: no such cache")
    home = experts or default_experts(Path.cwd())
    if home is None:
        console.info("no folder experts/ here or above; --experts DIR names another")
    inventory = take_inventory(home, hf_caches(hf_cache), console, _current_key)
    if console.as_json:
        console.document(inventory.as_json())
        return
    now = time.time()
    columns = ["state", "size", "files", "rows", "last use", "data set", "--dataset"]
    for place, group in groupby(inventory.datasets, lambda row: row.place):
        console.table(f"{place}", columns, [_cells(row, now) for row in group])
        console.text("")
    console.text(f"{len(inventory.datasets)} data sets, {size_text(inventory.bytes)}")


def _current_key(plan: Plan) -> str | None:
    """Return the key that a plan's token store must have now; None where data or tokenizer are not on this machine.

    Only asked where there is a store to compare with: it loads the tokenizer.
    """
    from expert_cli.data.store.inspect import has_stores
    from expert_cli.utils.process_setup import prepare_process

    if not has_stores(plan.run.store):
        return None
    prepare_process()
    from expert_cli.pipeline.pretokenize import explain, resolve_inputs

    run = replace(plan.run, data=replace(plan.run.data, offline=True))
    try:
        return explain(run, resolve_inputs(run, NullReporter())).key.sha256
    except ExpertError:
        return None


def _cells(row: DatasetEntry, now: float) -> list[str]:
    there = row.status != "missing"
    named = f"{row.name} ({', '.join(row.experts)})" if row.experts else row.name
    last_used, told_by = row.tree.last_use
    verb = "read" if told_by == "atime" else "written"
    return [
        row.status,
        size_text(row.tree.bytes) if there else "",
        f"{len(row.tree.inodes):,}" if there else "",
        "" if row.rows is None else f"{row.rows:,}",
        "" if last_used is None else f"{verb} {age_text(now - last_used)}",
        f"{named}: {row.note}" if row.note else named,
        row.option,
    ]


def age_text(seconds: float) -> str:
    """Return an age as a person says it, in whole units rounded down: "now", "1 hour ago", "3 days ago"."""
    length, unit = next(((length, unit) for length, unit in reversed(_AGES) if seconds >= length), (0.0, ""))
    if not unit:
        return "now"
    return f"{plural(int(seconds // length), unit)} ago"
