"""`expert-cli chat`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Option

from expert_cli import api
from expert_cli.commands.options import AdapterFolder, MaxNewTokens, Offline, TrainedBase, TrainedManifest, arguments
from expert_cli.console.terminal import Console
from expert_cli.errors import InputError

if TYPE_CHECKING:
    from expert_cli.inference.chat_session import Chat


def chat(
    console: Console,
    adapter: AdapterFolder,
    manifest: TrainedManifest = None,
    prompt: Annotated[str, Option(help="One prompt; without it, a conversation.")] = "",
    input_: Annotated[str, Option("--input", help="What stands below prompts in training rows: a schema.")] = "",
    samples: Annotated[int, Option(min=0, metavar="K", help="Draw K answers, and put them to the vote.")] = 0,
    database: Annotated[Path | None, Option()] = None,
    max_new_tokens: MaxNewTokens = None,
    base_model: TrainedBase = None,
    offline: Offline = False,
) -> None:
    """Ask an expert, once or in a conversation.

    In a conversation the expert sees what was said before; an empty line or Ctrl-D ends it, /new starts another. Where
    training.decoding says use_grammar, answers are held to that, by the schema that stands in what was asked.

    With --database each question is shown the tables, columns and values of that file that fit it, as its training rows were.
    The file is not changed.

    With --samples the answer that most agree with comes first, and is remembered. With --database the same rows are one answer;
    else JSON is the same by its value, anything else by its text without spacing.

    Examples:

        expert-cli chat --adapter runs/sql --prompt "How many boats are there?" --input "CREATE TABLE boats (id INT)"
        expert-cli chat --adapter runs/sql --database app.sqlite
        expert-cli chat --adapter runs/sql --prompt "List the boats" --samples 8 --json
    """
    if database and input_:
        raise typer.BadParameter("--database stands in the place of --input: give one of the two")
    if console.as_json and not prompt:
        raise typer.BadParameter("--json needs --prompt")
    _require_utf_8(prompt + input_)
    talk = api.load_expert(**arguments(api.load_expert, {**locals(), "run": adapter}))
    if not prompt:
        _converse(talk, console, input_, samples=samples)
    elif console.as_json:
        vote = talk.vote(prompt, input_, samples=samples) if samples else None
        expert = vote["votes"][0]["answer"] if vote else talk.ask(prompt, input_)
        document = {"prompt": prompt, "input": talk.shown(prompt, input_), "expert": expert}
        console.document({**document, **(vote or {"samples": None, "votes": None})})
    else:
        _show(talk, console, prompt, input_, samples=samples)


def _show(talk: Chat, console: Console, prompt: str, input_: str, *, samples: int) -> None:
    """Write the answers as they come; of several samples the vote."""
    if samples <= 1:
        console.stream(talk.answer(prompt, input_))
        return
    vote = talk.vote(prompt, input_, samples=samples)
    first, *others = vote["votes"]
    console.text(first["answer"])
    console.text(f"{first['count']} of {len(vote['samples'])} answers agree")
    for other in others:
        console.text(f"{other['count']} x {other['answer']}")


def _converse(talk: Chat, console: Console, input_: str, *, samples: int) -> None:
    """Read prompts until an empty line or the end of the input; the first of a conversation gets `input_`."""
    given = input_
    lines: Any = sys.stdin
    lines.reconfigure(errors="surrogateescape")  # as the command line is read
    while True:
        if sys.stdin.isatty():
            console.ask("> ")
        line = lines.readline().strip()
        if not line:
            return
        _require_utf_8(line)
        if line == "/new":
            talk.forget()
            given = input_
        else:
            _show(talk, console, line, given, samples=samples)
            given = ""


def _require_utf_8(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InputError(f"not valid UTF-8: {text!a}", "convert it: iconv -f cp1252 -t utf-8") from error
