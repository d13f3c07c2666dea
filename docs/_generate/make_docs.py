"""Write CLI.md and EXPERT_FORMAT.md in docs/; --check says which are stale instead (exit code 1)."""

from __future__ import annotations

import argparse
import inspect
import sys
from collections.abc import Sequence
from enum import Enum
from pathlib import Path
from string import Template
from typing import Any, Literal, get_args, get_origin

from docs._generate.format_docs import expert_format
from expert_cli.cli import COMMANDS, command, root

DOCS = Path(__file__).parents[1]
NOTE = "<!-- Made by docs/_generate/make_docs.py. Do not edit. -->\n\n"
TEMPLATE = Path(__file__).with_name("CLI.template.md")
BAR = "\\|"
"""A bar inside a cell; as it is, it would begin the next one."""
TYPES = {int: "whole number", float: "number", str: "text", Path: "path", list[Path]: "paths"}


def main(words: Sequence[str] | None = None) -> int:
    """Write the files, or with --check name those that differ; return the exit code. words: the command line's."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; exit code 1 and the names of stale files")
    options = parser.parse_args(words)
    stale = []
    for name, text in {"CLI.md": command_line(), "EXPERT_FORMAT.md": expert_format()}.items():
        path, wanted = DOCS / name, (NOTE + text).encode("utf-8")
        if path.is_file() and path.read_bytes().replace(b"\r\n", b"\n") == wanted:
            continue
        stale.append(path)
        if not options.check:
            path.write_bytes(wanted)
    if not options.check:
        return 0
    for path in stale:
        print(f"{path} is stale: run python -m docs._generate.make_docs", file=sys.stderr)
    return int(bool(stale))


def command_line() -> str:
    """Return the text of docs/CLI.md: the template, and what each command's help says."""
    description, examples = _help(root)
    text = Template(TEMPLATE.read_text(encoding="utf-8")).substitute(
        description=description, examples=examples, commands="\n".join(map(_command, COMMANDS))
    )
    return text.rstrip("\n") + "\n"


def _command(name: str) -> str:
    parameters = command(name).params
    description, examples = _help(command(name).callback)
    arguments = [_argument(one) for one in parameters if one.param_type_name == "argument"]
    usage = " ".join([f"expert-cli {name}", "[OPTIONS]", *arguments])
    table = "| option | value | meaning |\n|---|---|---|\n" + "".join(map(_row, parameters))
    return f"## expert-cli {name}\n\n{description}\n\n    {usage}\n\n{table}\nExamples:\n\n{examples}\n"


def _help(function: Any) -> tuple[str, str]:
    """Return a command's description and its examples."""
    description, _, examples = (inspect.getdoc(function) or "").partition("Examples:")
    return description.strip(), "\n".join(f"    {line.strip()}" for line in examples.splitlines() if line.strip())


def _argument(parameter: Any) -> str:
    return f"{parameter.name.upper()}{'...' if parameter.nargs != 1 else ''}"


def _row(parameter: Any) -> str:
    is_argument = parameter.param_type_name == "argument"
    names = _argument(parameter) if is_argument else ", ".join(sorted(parameter.opts, key=len, reverse=True))
    meaning = " ".join((parameter.help or "").split())
    if parameter.required:
        meaning += " Required."
    elif parameter.show_default and parameter.default not in (None, False, ""):
        meaning += f" Default: {parameter.default}."
    cells = (f"`{names}`", parameter.metavar or _type_name(parameter), meaning)
    return f"| {' | '.join(cell.replace('|', BAR) for cell in cells)} |\n"


def _type_name(parameter: Any) -> str:
    if getattr(parameter, "is_flag", False):
        return ""
    annotation: Any = parameter.type_descriptor.annotation
    choices = get_args(annotation) if get_origin(annotation) is Literal else ()
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        choices = tuple(one.value for one in annotation)
    return ", ".join(choices) or TYPES[annotation]


if __name__ == "__main__":
    sys.exit(main())
