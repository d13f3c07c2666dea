"""`expert-cli init`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import typer

from expert_cli.console.terminal import Console
from expert_cli.errors import EnvironmentProblem, InputError
from expert_cli.utils.files import write_text
from expert_cli.utils.text import shortened


def init(
    console: Console,
    name: Annotated[str, typer.Argument(help="Name of the expert; its folder is made.")],
    folder: Annotated[
        Path | None, typer.Option(help="Where the folder is made. Default: experts/ if there is one, else here.")
    ] = None,
) -> None:
    """Make a new expert's folder: a commented manifest, a few rows and a few test cases to replace.

    Examples:

        expert-cli init expert-regex

        expert-cli init expert-regex --folder work
    """
    from expert_cli.manifest.starter import EXAMPLE_CASES, EXAMPLE_ROWS, SMOLLM2, starter_manifest
    from expert_cli.manifest.types import LONGEST_NAME
    from expert_cli.utils.paths import slug

    if not re.fullmatch(r"\w([\w.-]*\w)?", name) or len(name) > LONGEST_NAME:
        hint = f"use at most {LONGEST_NAME} letters, digits, - and _; --folder says where"
        raise InputError(f'"{shortened(name)}" cannot be the name of an expert', hint)
    parent = folder or (Path("experts") if Path("experts").is_dir() else Path())
    if parent.exists() and not parent.is_dir():
        raise InputError(f"{parent} is a file, not a folder", "give another folder with --folder")
    home = parent / name
    if home.exists():
        raise InputError(f"{home} exists already", "choose another name, or remove it")
    manifest = home / "manifest.json"
    try:
        write_text(home / "datasets" / "train.jsonl", EXAMPLE_ROWS)
        write_text(home / "tests" / "cases.jsonl", EXAMPLE_CASES)
        write_text(manifest, starter_manifest(name))
    except OSError as error:
        raise EnvironmentProblem(
            f"{home} cannot be made: {error.strerror}", "give another folder with --folder"
        ) from error
    if console.as_json:
        console.document({"manifest": str(manifest)})
    else:
        run = home / "weights" / slug(str(SMOLLM2["name"]))
        console.text(f"{manifest} made. Put your rows into {home / 'datasets' / 'train.jsonl'}, then:")
        console.text(f"  expert-cli validate {manifest}\n  expert-cli train --manifest {manifest} --base-model smollm2")
        console.text(f"  expert-cli evaluate --adapter {run}    # the cases in {home / 'tests' / 'cases.jsonl'}")
        console.text(f"  expert-cli chat --adapter {run}")
