"""`expert-cli chat`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from expert_cli import api
from expert_cli.commands import passed_on
from expert_cli.commands.options import AdapterFolder, MaxNewTokens, Offline, Sample, TrainedBase, TrainedManifest
from expert_cli.console.terminal import Console

if TYPE_CHECKING:
    from expert_cli.inference.chat import Chat


def chat(
    console: Console,
    adapter: AdapterFolder,
    manifest: TrainedManifest = None,
    prompt: Annotated[str, typer.Option(help="One prompt; without it, a conversation.", show_default=False)] = "",
    input_: Annotated[
        str,
        typer.Option("--input", help="What stands below the prompt in training rows: a schema.", show_default=False),
    ] = "",
    compare: Annotated[
        bool, typer.Option("--compare", help="Let the base model answer as well, asked in its own chat template.")
    ] = False,
    sample: Sample = False,
    max_new_tokens: MaxNewTokens = 256,
    base_model: TrainedBase = None,
    offline: Offline = False,
) -> None:
    """Ask an expert.

    Answers appear as they are written. In a conversation the expert sees what was said before; an empty line or Ctrl-D ends
    it, /new starts another. Its prompts are written down as in training.

    Examples:

        expert-cli chat --adapter runs/sql --prompt "How many boats are there?" --input "CREATE TABLE boats (id INT)"

        expert-cli chat --adapter runs/sql --compare

        expert-cli chat --adapter runs/sql --prompt "List the boats" --json
    """
    asked = locals()
    if console.as_json and not prompt:
        raise typer.BadParameter("--json needs --prompt")
    said = passed_on(asked, "manifest base_model sample max_new_tokens offline")
    talk = api.load_expert(adapter, **said, reporter=console)
    if not prompt:
        _converse(talk, console, input_, compare=compare)
    elif console.as_json:
        base = "".join(talk.base(prompt, input_)) if compare else None
        expert = talk.ask(prompt, input_)
        console.document({"prompt": prompt, "input": input_, "expert": expert, "base_model": base})
    else:
        _show(talk, console, prompt, input_, compare=compare)


def _show(talk: Chat, console: Console, prompt: str, input_: str = "", *, compare: bool) -> None:
    """Write the answers as they come, that of the base model first."""
    if compare:
        console.heading("base model")
        console.stream(talk.base(prompt, input_))
        console.heading("expert")
    console.stream(talk.answer(prompt, input_))


def _converse(talk: Chat, console: Console, input_: str, *, compare: bool) -> None:
    """Read prompts until an empty line or the end of the input; the first of a conversation gets `input_`."""
    given = input_
    while True:
        if sys.stdin.isatty():
            console.ask("> ")
        line = sys.stdin.readline().strip()
        if not line:
            return
        if line == "/new":
            talk.forget()
            given = input_
        else:
            _show(talk, console, line, given, compare=compare)
            given = ""
