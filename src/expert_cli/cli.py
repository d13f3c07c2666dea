"""Registers the commands, and turns an ExpertError into text and an exit code."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.exceptions import TyperException

from expert_cli import __version__
from expert_cli._compat import plain_help
from expert_cli.commands.benchmark import benchmark
from expert_cli.commands.chat import chat
from expert_cli.commands.doctor import doctor
from expert_cli.commands.evaluate import evaluate
from expert_cli.commands.export import export
from expert_cli.commands.find_datasets import find_datasets
from expert_cli.commands.init import init
from expert_cli.commands.pretokenize import pretokenize
from expert_cli.commands.report import report
from expert_cli.commands.schema import schema
from expert_cli.commands.train import train
from expert_cli.commands.validate import validate
from expert_cli.console.terminal import Console, wants_style
from expert_cli.errors import CTRL_C, ExpertError

COMMANDS: dict[str, Callable[..., None]] = {
    "train": train,
    "pretokenize": pretokenize,
    "evaluate": evaluate,
    "export": export,
    "chat": chat,
    "find-datasets": find_datasets,
    "benchmark": benchmark,
    "report": report,
    "validate": validate,
    "schema": schema,
    "init": init,
    "doctor": doctor,
}


class _Command(TyperCommand):
    def format_help(self, ctx: Any, formatter: Any) -> None:
        _tidy_help(self.get_params(ctx))
        super().format_help(ctx, formatter)


class _Root(TyperGroup):
    def format_help(self, ctx: Any, formatter: Any) -> None:
        _tidy_help(self.get_params(ctx))
        super().format_help(ctx, formatter)

    def invoke(self, ctx: Any) -> Any:
        """Hand Ctrl-C on to `main`: typer would end the process without a word."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as error:
            raise typer.Abort from error


def _tidy_help(options: Iterable[Any]) -> None:
    """Keep "<bool>" behind options without a value out of the help, and escape sequences where none are wanted."""
    if not wants_style(sys.stdout):
        plain_help()
    for option in options:
        if getattr(option, "is_flag", False):
            option.metavar = ""


app = typer.Typer(
    name="expert-cli",
    cls=_Root,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)
for name, command in COMMANDS.items():
    app.command(name, cls=_Command)(command)


def _version(shown: bool) -> None:
    if shown:
        typer.echo(f"expert-cli {__version__}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def root(
    ctx: typer.Context,
    version: bool = typer.Option(False, "--version", callback=_version, is_eager=True, help="Print the version."),  # noqa: ARG001
) -> None:
    """A manifest goes in, a trained expert comes out.

    Examples:

        expert-cli init expert-regex

        expert-cli validate experts/expert-sql/manifest.json

        expert-cli train --manifest experts/expert-sql/manifest.json --base-model smollm2
    """
    if ctx.invoked_subcommand is None:
        ctx.get_help()
        raise typer.Exit(2)


def main() -> None:
    """Run the command line; the process ends here with an exit code of docs/INTERFACE.md."""
    word = next((word for word in sys.argv[1:] if not word.startswith("-")), "")
    console = Console(word if word in COMMANDS else "", as_json="--json" in sys.argv, quiet=True)
    try:
        code = app(standalone_mode=False, prog_name="expert-cli")
    except ExpertError as error:
        code = _failed(console, error)
    except TyperException as error:
        code = 2
        help_ = f"see expert-cli {word} --help" if word in COMMANDS else f"commands: {', '.join(COMMANDS)}"
        console.fail(error.format_message(), help_, code)
    except (KeyboardInterrupt, typer.Abort):
        code = CTRL_C
        console.fail("interrupted", "", code)
    except Exception as error:  # noqa: BLE001  the outermost boundary: a bug is reported as one
        from expert_cli.utils.disk_errors import known

        if met := known(error):
            code = _failed(console, met)
        else:
            console.trace()
            hint = f"this is a bug in expert-cli {__version__}: report the lines above with the manifest"
            console.fail(f"{type(error).__name__}: {error}", hint, 1)
            code = 1
    sys.exit(code or 0)


def _failed(console: Console, error: ExpertError) -> int:
    if "--debug" in sys.argv:
        console.trace()
    console.fail(error.message, error.hint, error.exit_code)
    return error.exit_code
