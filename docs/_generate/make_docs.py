"""Write CLI.md and EXPERT_FORMAT.md in docs/; --check says which are stale instead (exit code 1)."""

from __future__ import annotations

import argparse
import inspect
import sys
from enum import Enum
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from docs._generate.format_docs import expert_format
from expert_cli.cli import COMMANDS, command, root
from expert_cli.errors import ExpertError

DOCS = Path(__file__).parents[1]
NOTE = "<!-- Made by docs/_generate/make_docs.py. Do not edit. -->\n\n"
BAR = "\\|"
"""A bar inside a cell; as it is, it would begin the next one."""
EXIT_CODES = (
    ("0", "done"),
    ("1", "an error inside expert-cli; the traceback is shown, please report it"),
    ("2", "what was written cannot be used: command line, manifest, data"),
    ("3", "the machine lacks something: model, package, GPU, network, disk space, another process of the job"),
    ("4", "training failed: not finite, out of memory"),
    ("5", "a threshold that was asked for was missed"),
    ("6", "the place is taken by another run, or files are damaged"),
    ("130, 143", "interrupted"),
)
SHARED = """\
## What all commands share

Results go to stdout; progress, warnings and errors go to stderr. An error says what is wrong and where, then what to do.

`--json` prints one JSON document on stdout and nothing else there. It has `"schema_version": 1` and `"command"`. A failure
prints `"error"` with `exit_code`, `message` and `hint`; `validate` prints the faults of manifests in its own document.
[Interface](INTERFACE.md) says what each holds.

With the environment variable `NO_COLOR`, or without a terminal, there are no colors and no moving bars, only lines.

"""


def main() -> int:
    """Write the files, or with --check name those that differ."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; exit code 1 and the names of stale files")
    parser.add_argument("--docs", type=Path, default=DOCS, help="the folder of the files")
    options = parser.parse_args()
    stale = 0
    for name, text in {"CLI.md": command_line(), "EXPERT_FORMAT.md": expert_format()}.items():
        path = options.docs / name
        wanted = (NOTE + text).encode("utf-8")
        if path.is_file() and path.read_bytes().replace(b"\r\n", b"\n") == wanted:
            continue
        stale += 1
        if options.check:
            print(f"{path} is stale: run python -m docs._generate.make_docs", file=sys.stderr)
        else:
            path.write_bytes(wanted)
    return 1 if options.check and stale else 0


def command_line() -> str:
    """Return the text of docs/CLI.md."""
    description, examples = _help(root)
    parts = [f"# The commands\n\n{description}\n\n{_code(examples)}", SHARED, _exit_codes()]
    for name in COMMANDS:
        its = command(name)
        description, examples = _help(its.callback)
        usage = " ".join(
            [
                f"expert-cli {name}",
                "[OPTIONS]",
                *(_argument(p) for p in its.params if p.param_type_name == "argument"),
            ]
        )
        parts.append(
            f"## expert-cli {name}\n\n{description}\n\n{_code([usage])}{_parameters(its)}Examples:\n\n{_code(examples)}"
        )
    return "".join(parts).rstrip("\n") + "\n"


def _help(function: Any) -> tuple[str, list[str]]:
    """Return a command's description and its examples."""
    description, _, examples = (inspect.getdoc(function) or "").partition("Examples:")
    return description.strip(), [line.strip() for line in examples.splitlines() if line.strip()]


def _argument(parameter: Any) -> str:
    return f"{parameter.name.upper()}{'...' if parameter.nargs != 1 else ''}"


def _parameters(command: Any) -> str:
    rows = []
    for parameter in command.params:
        is_argument = parameter.param_type_name == "argument"
        names = _argument(parameter) if is_argument else ", ".join(sorted(parameter.opts, key=len, reverse=True))
        value = parameter.metavar or _type_name(parameter)
        meaning = " ".join((parameter.help or "").split())
        if parameter.required:
            meaning += " Required."
        elif parameter.show_default and parameter.default not in (None, False, ""):
            meaning += f" Default: {parameter.default}."
        cells = (f"`{names}`", value, meaning)
        rows.append(f"| {' | '.join(cell.replace('|', BAR) for cell in cells)} |\n")
    return "| option | value | meaning |\n|---|---|---|\n" + "".join(rows) + "\n"


def _type_name(parameter: Any) -> str:
    if getattr(parameter, "is_flag", False):
        return ""
    annotation: Any = parameter.type_descriptor.annotation
    choices = get_args(annotation) if get_origin(annotation) is Literal else ()
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        choices = tuple(one.value for one in annotation)
    words = {int: "whole number", float: "number", str: "text", Path: "path", list[Path]: "paths"}
    return ", ".join(choices) or words[annotation]


def _exit_codes() -> str:
    kinds: list[type[ExpertError]] = [ExpertError, *ExpertError.__subclasses__()]
    known = {str(kind.exit_code) for kind in kinds}
    missing = known - {code for code, _ in EXIT_CODES}
    if missing:
        raise SystemExit(f"EXIT_CODES of {__file__} lacks {', '.join(sorted(missing))}")
    return (
        "## Exit codes\n\n| code | meaning |\n|---|---|\n" + "".join(f"| {c} | {m} |\n" for c, m in EXIT_CODES) + "\n"
    )


def _code(lines: list[str]) -> str:
    return "".join(f"    {line}\n" for line in lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
