"""Defines the commands, and turns an ExpertError into text and an exit code."""

from __future__ import annotations

import io
import re
import sys
from copy import copy
from functools import partial
from importlib import import_module
from inspect import Parameter, Signature, getdoc, signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.exceptions import TyperException

from expert_cli import __version__, api
from expert_cli.commands.options import Debug, Json, Quiet
from expert_cli.errors import CTRL_C, EnvironmentProblem, ExpertError, InputError, Interrupted, ThresholdNotMet

if TYPE_CHECKING:
    from expert_cli.console.terminal import Console

COMMANDS = {
    "train": "Train an expert from its manifest.",
    "pretokenize": "Tokenize an expert's data once; training then opens the result.",
    "evaluate": "Let an expert answer test cases, and judge its answers by running or comparing them.",
    "audit": "Check an expert's training rows and test cases, and report those that are wrong or useless.",
    "export": "Write an expert as an adapter, a merged model or a GGUF file, with its model card.",
    "chat": "Ask an expert a question, or have a conversation.",
    "find-datasets": "List the data sets on this machine: size, last change, the experts that use them, and what is missing.",
    "benchmark": "Find out what limits a training run, or compare the speed of two settings.",
    "report": "Write an HTML report of one or several runs, in a single file that needs no network.",
    "validate": "Check manifests, and show which keys are adjusted or not used on this machine.",
    "schema": "Print the JSON Schema of manifests, for editors and other programs.",
    "init": "Create a new expert's folder: a manifest with comments, and a few rows and test cases to replace.",
    "doctor": "Check whether this machine is ready for training, and how to fix what is not.",
}
"""The line of each command in the list of commands. A command is a function in the module of the same name in `commands`."""


class _Root(TyperGroup):
    """Knows only each command's name and line; its module is imported when the command is called, so that help is fast."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        for name, line in COMMANDS.items():
            self.add_command(TyperCommand(name, help=line))

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name, known, rest = super().resolve_command(ctx, args)
        return name, command(name) if name in COMMANDS else known, rest

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002  typer's signature
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def invoke(self, ctx: Any) -> Any:
        """Pass Ctrl-C on to `main`: typer would exit without a message."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as error:
            raise typer.Abort from error


# Without markup, because typer's panels would load rich, which takes longer than everything else here.
app = typer.Typer(
    name="expert-cli",
    cls=_Root,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120},
)


def command(name: str) -> Any:
    """Return the command of this name with its module imported and the common options added."""
    function = name.replace("-", "_")
    run = getattr(import_module(f"expert_cli.commands.{function}"), function)

    def with_console(as_json: Json = False, quiet: Quiet = False, debug: Debug = False, **asked: Any) -> None:
        del debug  # used by `main`
        try:
            Path.cwd()
        except FileNotFoundError as error:  # torch would exit without our message
            raise EnvironmentProblem("the current folder was removed", "change to another one") from error
        try:
            run(_console(name, as_json=as_json, quiet=quiet), **asked)
        except ThresholdNotMet as missed:  # the result (with --json one document) is written already
            raise typer.Exit(missed.exit_code) if as_json else missed from None

    (_, *own), (*common, _) = (signature(one, eval_str=True).parameters.values() for one in (run, with_console))
    said = _described(api.load_expert if name == "chat" else getattr(api, function, None))
    own = [_with_help(parameter, said.get(parameter.name)) for parameter in own]
    with_console.__signature__ = Signature([*own, *common])  # type: ignore[attr-defined]
    with_console.__doc__ = re.sub(r"(?<!\n)(\n +expert-cli )", r"\n\1", run.__doc__)  # a paragraph for each example
    alone = typer.Typer(pretty_exceptions_enable=False, rich_markup_mode=None, add_completion=False)
    alone.command(name)(with_console)
    return typer.main.get_command(alone)


def _with_help(parameter: Parameter, words: str | None) -> Parameter:
    """Return a parameter whose options have a help text; they are copied, because commands with other texts share them."""
    options = [copy(option) for option in getattr(parameter.annotation, "__metadata__", ())]
    for option in options:
        option.help = option.help or words
    return (
        parameter.replace(annotation=Annotated[(parameter.annotation.__origin__, *options)]) if options else parameter
    )


def _described(function: Any) -> dict[str, str]:
    """Return the argument descriptions in an API function's docstring, as help for the options of its command."""
    block = (getdoc(function) or "").partition("Args:\n")[2].partition("\n\n")[0]
    entries = dict(re.findall(r"^    (\w+): (.*(?:\n        .*)*)", block, re.MULTILINE))
    names = re.compile(f"`({'|'.join(entries)})`")
    as_option = partial(names.sub, lambda found: f"--{found[1].replace('_', '-')}")
    return {name: as_option(" ".join(words.split())) for name, words in entries.items()}


def _version(shown: bool) -> None:
    if shown:
        typer.echo(f"expert-cli {__version__}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def root(
    ctx: typer.Context,
    version: bool = typer.Option(False, "--version", callback=_version, is_eager=True, help="Print the version."),  # noqa: ARG001
) -> None:
    """Train small expert models from a manifest.json, and evaluate, export and ask them.

    Examples:

        expert-cli init expert-regex --folder .

        expert-cli validate expert-regex/manifest.json

        expert-cli train -m expert-regex/manifest.json --base-model smollm2
    """
    if ctx.invoked_subcommand is None:
        typer.echo(ctx.get_help())
        raise typer.Exit(2)


def main() -> None:
    """Run the command line, and exit with one of the exit codes in docs/INTERFACE.md."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # unprintable characters are never an error
    word = next((word for word in sys.argv[1:] if not word.startswith("-")), "")
    name = word if word in COMMANDS else ""
    try:
        sys.exit(app(standalone_mode=False, prog_name="expert-cli") or 0)
    except TyperException as error:
        hint = f"see expert-cli {name} --help" if name else f"commands: {', '.join(COMMANDS)}"
        failure: ExpertError = InputError(error.format_message().replace("Value error, ", ""), hint)
    except (KeyboardInterrupt, typer.Abort):
        failure = Interrupted("interrupted", "the same command continues" if name == "evaluate" else "", CTRL_C)
    except Exception as error:  # noqa: BLE001  the outermost boundary: a bug is reported as one
        from expert_cli.utils.disk_errors import known

        met = known(error)
        if met is None or "--debug" in sys.argv:
            _console(name).trace()
        hint = f"this is a bug in expert-cli {__version__}: report the lines above with the manifest"
        failure = met or ExpertError(f"{type(error).__name__}: {error}", hint)
    _console(name, as_json="--json" in sys.argv).fail(failure.message, failure.hint, failure.exit_code)
    sys.exit(failure.exit_code)


def _console(command: str, **asked: bool) -> Console:
    from expert_cli.console.terminal import Console  # loads rich

    return Console(command, **asked)
