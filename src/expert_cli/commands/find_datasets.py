"""`expert-cli find-datasets`."""

from __future__ import annotations

import os
from dataclasses import asdict
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Option

from expert_cli.console.terminal import Console
from expert_cli.errors import ExpertError, InputError
from expert_cli.utils.reporter import NullReporter
from expert_cli.utils.text import plural, size_text

if TYPE_CHECKING:
    from expert_cli.inventory.datasets import DatasetEntry


def find_datasets(
    console: Console,
    experts: Annotated[
        Path | None, Option(help="Folder of experts. Default: experts/ here or in a parent folder.")
    ] = None,
    hf_cache: Annotated[Path | None, Option(help="Folder of the Hugging Face caches. Default: HF_HOME.")] = None,
) -> None:
    """List the data sets on this machine: size, last change, the experts that use them, and what is missing.

    Searches the Hugging Face caches, datasets_optimized/ and the experts' manifests. Reads no rows and changes nothing.
    The name in the last column works as train --dataset, except for token stores and the Arrow cache.

    Examples:

        expert-cli find-datasets
        expert-cli find-datasets --experts experts --hf-cache /data/huggingface --json
    """
    from huggingface_hub import constants

    from expert_cli.inventory.datasets import find_datasets as datasets_here

    for option, named, of in (("experts", experts, "experts"), ("hf-cache", hf_cache, "Hugging Face caches")):
        if named is not None and not named.is_dir():
            raise InputError(f"{named}: no such folder of {of}", f"name one: --{option} DIR")
    here = Path.cwd()
    above = (at / "experts" for at in (here, *here.parents) if (at / "experts").is_dir())
    folder = (experts or next(above, here / "experts")).absolute()
    home = (hf_cache or Path(constants.HF_HOME)).absolute()
    hub, arrow = home / "hub", home / "datasets"
    if hf_cache is None:  # as the hub client does, so that the list shows what training reads
        hub, arrow = Path(constants.HF_HUB_CACHE), Path(os.environ.get("HF_DATASETS_CACHE", arrow)).absolute()
    rows = list(datasets_here(folder, hub, arrow, console, _current_key))

    def show() -> None:
        titles = {"hub": f"Hub cache {hub}", "arrow_cache": f"Arrow cache {arrow}", "token_store": "Token stores"}
        for title, group in groupby(rows, lambda row: titles.get(row.kind, "Files that manifests name")):
            console.table(title, ["state", "size", "rows", "written", "experts", "data set"], [*map(_cells, group)])
        console.text(f"{plural(len(rows), 'data set')}, {size_text(sum(row.bytes for row in rows))}")

    console.result({"hf_cache": str(home), "datasets": [asdict(row) for row in rows]}, show)


def _current_key(manifest: Path, base_model: str) -> str | None:
    """Return the key that a token store must have now; None if data or tokenizer are not on this machine."""
    from expert_cli.config.plan import make_plan
    from expert_cli.config.resolve import Overrides
    from expert_cli.hardware.machine import inspect
    from expert_cli.utils.process_setup import prepare_process

    prepare_process()
    from expert_cli.pipeline.training_data import resolve_inputs

    try:
        run = make_plan(manifest, inspect(), Overrides(base_model=base_model, offline=True)).run
        return resolve_inputs(run, NullReporter()).key(run.data).sha256
    except ExpertError:
        return None


def _cells(row: DatasetEntry) -> list[str]:
    size, rows = size_text(row.bytes) if row.files else "", "" if row.rows is None else f"{row.rows:,}"
    name = f"{row.name}: {row.note}" if row.note else row.name
    return [row.status, size, rows, (row.last_used or "")[:10], ", ".join(row.experts), name]
