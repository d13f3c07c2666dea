"""Registers the commands, and turns an ExpertError into text and an exit code."""

from __future__ import annotations

import sys
import traceback

import typer
from typer.exceptions import TyperException

from expert_cli import __version__
from expert_cli.commands.init import init
from expert_cli.commands.pretokenize import pretokenize
from expert_cli.commands.schema import schema
from expert_cli.commands.train import train
from expert_cli.commands.validate import validate
from expert_cli.console import Console
from expert_cli.errors import ExpertError

app = typer.Typer(
    name="expert-cli",
    help="A manifest goes in, a trained expert comes out.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)
for command in (train, pretokenize, validate, schema, init):
    app.command()(command)


def _version(shown: bool) -> None:
    if shown:
        typer.echo(f"expert-cli {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: bool = typer.Option(False, "--version", callback=_version, is_eager=True, help="Print the version."),
) -> None:
    """A manifest goes in, a trained expert comes out."""


def main() -> None:
    """Run the command line; the process ends here with the exit code of INTERFACE."""
    words = [word for word in sys.argv[1:] if not word.startswith("-")]
    console = Console(words[0] if words else "", as_json="--json" in sys.argv, quiet=True)
    try:
        code = app(standalone_mode=False)
    except ExpertError as error:
        if "--debug" in sys.argv:
            traceback.print_exc()
        console.fail(error.message, error.hint, error.exit_code)
        code = error.exit_code
    except TyperException as error:
        console.fail(error.format_message(), "see expert-cli --help", 2)
        code = 2
    except (KeyboardInterrupt, typer.Abort):
        console.fail("interrupted", "", 130)
        code = 130
    except Exception as error:  # noqa: BLE001  the outermost boundary: a bug is reported as one
        traceback.print_exc()
        hint = f"this is a bug in expert-cli {__version__}: report the lines above with the manifest"
        console.fail(f"{type(error).__name__}: {error}", hint, 1)
        code = 1
    sys.exit(code or 0)
