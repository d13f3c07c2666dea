"""`expert-cli init`."""

from __future__ import annotations

import re
import sqlite3
from pathlib import Path
from typing import Annotated

import typer

from expert_cli.console.terminal import Console
from expert_cli.errors import EnvironmentProblem, InputError
from expert_cli.manifest.starter_tasks import StarterKind
from expert_cli.utils.text import shortened


def init(
    console: Console,
    name: Annotated[str, typer.Argument(help="Name of the expert; its folder is made.")],
    folder: Annotated[
        Path | None, typer.Option(help="Where the folder is made. Default: experts/ if there is one, else here.")
    ] = None,
    kind: Annotated[StarterKind, typer.Option(help="What its answers are.")] = "json",
) -> None:
    """Make a new expert's folder: a commented manifest, a few rows and a few test cases to replace.

    Rows and cases fit the kind of its answers: sql and cypher come with a small database or graph in which queries are run,
    typescript and python with tests that run the code, choice with labels, number with a unit, text with the one right text,
    json, the default, with a schema and values, which need no engine to be compared.

    Examples:

        expert-cli init expert-regex

        expert-cli init expert-tickets --kind choice

        expert-cli init expert-shop --kind sql --folder work
    """
    from expert_cli.manifest.starter import SMOLLM2, write_starter
    from expert_cli.manifest.starter_tasks import STARTERS
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
    try:
        paths = write_starter(home, name, kind)
    except (OSError, sqlite3.Error) as error:
        why = getattr(error, "strerror", error)
        raise EnvironmentProblem(f"{home} cannot be made: {why}", "give another folder with --folder") from error
    if console.as_json:
        console.document({"kind": kind, **{what: str(path) for what, path in paths.items()}})
        return
    manifest, run = paths["manifest"], home / "weights" / slug(str(SMOLLM2["name"]))
    console.text(f"{manifest} made. Put your rows into {paths['rows']}, your cases into {paths['cases']}, then:")
    console.text(f"  expert-cli validate {manifest}\n  expert-cli train --manifest {manifest} --base-model smollm2")
    console.text(f"  expert-cli evaluate --adapter {run}    # judged by the verifier {STARTERS[kind].verifier}")
    console.text(f"  expert-cli chat --adapter {run}")
