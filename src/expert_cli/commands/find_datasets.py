"""`expert-cli find-datasets`."""

from __future__ import annotations

import os
from dataclasses import asdict
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from expert_cli.console.terminal import Console
from expert_cli.errors import ExpertError, InputError
from expert_cli.utils.reporter import NullReporter
from expert_cli.utils.text import plural, size_text

if TYPE_CHECKING:
    from expert_cli.inventory.datasets import DatasetEntry

_TITLES = {"hub": "hub cache {hub}", "arrow_cache": "Arrow cache {arrow}", "token_store": "token stores"}


def find_datasets(
    console: Console,
    experts: Annotated[
        Path | None,
        typer.Option(help="The experts' folder. Default: experts/ here or above."),
    ] = None,
    hf_cache: Annotated[
        Path | None,
        typer.Option(
            help="A folder like HF_HOME: hub/ and datasets/ in it. Default: where HF_HOME and its kind point."
        ),
    ] = None,
) -> None:
    """List the data on this machine: size, last change, which expert names it, and what is missing.

    Looks into the Hugging Face caches, datasets_optimized/ and the experts' manifests; parses no rows, changes nothing. What
    train --dataset takes is the name in the last column, but of token stores and of the Arrow cache.

    Examples:

        expert-cli find-datasets

        expert-cli find-datasets --experts experts --hf-cache /data/huggingface --json
    """
    from huggingface_hub import constants

    from expert_cli.inventory.datasets import find_datasets as listed

    if hf_cache is not None and not hf_cache.is_dir():
        console.warning(f"{hf_cache}: no such cache")
    if experts is not None and not experts.is_dir():
        raise InputError(f"{experts}: no such folder of experts", "name one: --experts DIR")
    here = Path.cwd()
    folder = experts or next((at / "experts" for at in (here, *here.parents) if (at / "experts").is_dir()), None)
    if folder is None:
        console.info("no folder experts/ here or above; --experts DIR names another")
    home = (hf_cache or Path(constants.HF_HOME)).absolute()
    hub, arrow = home / "hub", home / "datasets"
    if hf_cache is None:  # the hub client's own answer: what is listed is then what training reads
        hub, arrow = Path(constants.HF_HUB_CACHE), Path(os.environ.get("HF_DATASETS_CACHE", arrow))
    rows = listed(folder and folder.absolute(), hub, arrow, console, cache(_current_key))
    if console.as_json:
        console.document({"hf_cache": str(home), "datasets": [asdict(row) for row in rows]})
        return
    columns = ["state", "size", "files", "rows", "changed", "data set"]
    for kind, group in groupby(rows, lambda row: row.kind if row.kind in _TITLES else "named"):
        title = _TITLES.get(kind, "named by manifests").format(hub=hub, arrow=arrow)
        console.table(title, columns, [_cells(row) for row in group])
        console.text("")
    console.text(f"{plural(len(rows), 'data set')}, {size_text(sum(row.bytes for row in rows))}")


def _current_key(manifest: Path, base_model: str) -> str | None:
    """Return the key that a token store must have now; None where data or tokenizer are not on this machine."""
    from expert_cli.utils.process_setup import prepare_process

    prepare_process()
    from expert_cli.config.plan import make_plan
    from expert_cli.config.resolve import Overrides
    from expert_cli.hardware.machine import inspect
    from expert_cli.pipeline.pretokenize import explain, resolve_inputs

    try:
        run = make_plan(manifest, inspect(), Overrides(base_model=base_model, offline=True)).run
        return explain(run, resolve_inputs(run, NullReporter())).key.sha256
    except ExpertError:
        return None


def _cells(row: DatasetEntry) -> list[str]:
    there = row.status != "missing"
    named = f"{row.name} ({', '.join(row.experts)})" if row.experts else row.name
    return [
        row.status,
        size_text(row.bytes) if there else "",
        f"{row.files:,}" if there else "",
        "" if row.rows is None else f"{row.rows:,}",
        (row.last_used or "").replace("T", " ")[:16],
        f"{named}: {row.note}" if row.note else named,
    ]
