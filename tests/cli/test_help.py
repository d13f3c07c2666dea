"""Every command explains itself, quickly, and its examples are true."""

from __future__ import annotations

import inspect
import json
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import pytest

import expert_cli
from expert_cli import cli as command_line
from expert_cli.cli import COMMANDS, root
from expert_cli.manifest.keys.compute import DeviceChoice
from tests import manifests
from tests.configs import AXOLOTL

STORAGE = {"fsspec", "s3fs", "aiobotocore", "botocore", "aiohttp", "gcsfs"}
HEAVY = {"torch", "transformers", "datasets", "peft", "bitsandbytes", "accelerate", "pyarrow", "tokenizers", "numpy"}
HEAVY |= STORAGE
MODULES = {name: f"expert_cli.commands.{name.replace('-', '_')}" for name in COMMANDS}
# Typer itself imports pydantic once it has values to convert, so a command's --help may; our schema still must not be built.
LOADED = """
import atexit, json, sys
atexit.register(lambda: print(json.dumps(sorted(sys.modules)), file=sys.stderr))
from expert_cli.cli import main
main()
"""


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_with_an_example(cli: Callable[..., Any], command: str) -> None:
    done = cli(command, "--help")
    assert done.code == 0
    assert done.err == ""
    assert f"Usage: expert-cli {command}" in done.out
    assert COMMANDS[command] in " ".join(done.out.split())
    assert f"expert-cli {command}" in done.out.partition("Examples:")[2]
    assert all(f" {option} " in done.out for option in ("--json", "--quiet", "--debug", "--help"))
    assert "<bool>" not in done.out


def test_the_root_help_lists_every_command_and_its_line(cli: Callable[..., Any]) -> None:
    done = cli("-h")
    assert (done.code, done.err) == (0, "")
    listed = " ".join(done.out.partition("\nCommands:\n")[2].split())
    assert listed == " ".join(f"{command} {line}" for command, line in COMMANDS.items())


def test_version(cli: Callable[..., Any]) -> None:
    done = cli("--version")
    assert (done.code, done.out, done.err) == (0, f"expert-cli {expert_cli.__version__}\n", "")


def examples() -> list[str]:
    functions = (root, *(command_line.command(name).callback for name in COMMANDS))
    texts = [inspect.getdoc(function) or "" for function in functions]
    lines = [line.strip() for text in texts for line in text.partition("Examples:")[2].splitlines()]
    return [line for line in lines if line]


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_is_explained(name: str) -> None:
    """Those that a function of the API has, by its docstring."""
    assert [option.name for option in command_line.command(name).params if not option.help] == []


@pytest.mark.parametrize("line", examples())
def test_examples_are_commands_that_can_be_typed(line: str) -> None:
    program, name, *args = shlex.split(line.partition(" > ")[0])
    assert program == "expert-cli"
    command_line.command(name).make_context(name, args)  # raises for an option that is not there


@pytest.mark.parametrize(
    ("args", "absent"),
    [
        pytest.param(["--help"], HEAVY | {"pydantic", "rich"} | {*MODULES.values()}, id="--help"),
        pytest.param(
            ["train", "--help"],
            HEAVY | {"expert_cli.manifest.schema"} | {*MODULES.values()} - {MODULES["train"]},
            id="train --help",
        ),
        pytest.param(["validate", "manifest.json"], HEAVY, id="validate"),
        pytest.param(["evaluate", "--answers", "answers.jsonl"], HEAVY, id="evaluate"),
        pytest.param(["init", "expert-x", "--from-config", "axolotl.yml"], HEAVY, id="init --from-config"),
        pytest.param(["report", "."], HEAVY, id="report refused"),
        pytest.param(
            ["train", "-m", "manifest.json", "--output", "hf://datasets/a/b"], HEAVY, id="train to a URL refused"
        ),
    ],
)
def test_the_light_side_stays_light(tmp_path: Path, args: list[str], absent: set[str]) -> None:
    manifests.write(tmp_path, manifests.small())
    row = '{"verifier": "json", "schema": null, "expected": 1, "rule": "exact", "answer": "1"}'
    (tmp_path / "answers.jsonl").write_text(row, encoding="utf-8")
    (tmp_path / "axolotl.yml").write_text(AXOLOTL.replace("chat_template", "alpaca"), encoding="utf-8")
    command = [sys.executable, "-c", LOADED, *args]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, encoding="utf-8", timeout=600, check=False)
    loaded = set(json.loads(ran.stderr.splitlines()[-1]))
    assert "expert_cli" in loaded
    assert loaded & absent == set()


def test_values_of_options_are_named_as_they_are_taken(cli: Callable[..., Any]) -> None:
    options = {one.name: one for one in command_line.command("train").params}
    assert all(name in options["device"].help for name in get_args(DeviceChoice))
    told = "Repeatable. [training.config.]KEY, training.rft.KEY or evaluation.KEY."
    assert (options["settings"].metavar, options["settings"].help) == ("KEY=VALUE", told)
    assert "[x>=0]" not in cli("train", "--help").out.partition("--epochs")[2].partition("--max-steps")[0]


def test_an_option_that_two_commands_share_says_what_it_does_in_each() -> None:
    told = {
        name: {one.name: one.help for one in command_line.command(name).params} for name in ("pretokenize", "train")
    }
    assert [told[name]["stage"].split(" to ")[0] for name in told] == [
        "First copy the data",
        "First copy the token store",
    ]
