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
    prompt: Annotated[str, Option(help="Ask this one prompt. Default: a conversation.")] = "",
    input_: Annotated[str, Option("--input", help="The input of a prompt, as in training rows: a schema.")] = "",
    samples: Annotated[int, Option(min=0, metavar="K", help="Draw K answers and vote on them.")] = 0,
    database: Annotated[Path | None, Option()] = None,
    max_new_tokens: MaxNewTokens = None,
    base_model: TrainedBase = None,
    offline: Offline = False,
) -> None:
    """Ask an expert a question, or have a conversation.

    In a conversation the expert sees the earlier turns. An empty line or Ctrl-D ends it, /new starts a new one. If the
    manifest's training.decoding sets use_grammar, answers follow the grammar of the schema in the question.

    With --database the tables, columns and values that fit a question are shown to the model, as in its training rows. The
    file is not changed.

    With --samples the most frequent answer comes first, and the conversation continues with it. Answers are equal if they
    return the same rows (with --database), are the same JSON value, or have the same text apart from white space.

    Examples:

        expert-cli chat --adapter runs/sql --prompt "How many boats are there?" --input "CREATE TABLE boats (id INT)"
        expert-cli chat --adapter runs/sql --database app.sqlite
        expert-cli chat --adapter runs/sql --prompt "List the boats" --samples 8 --json
    """
    if database and input_:
        raise typer.BadParameter("--database replaces --input: give one of them")
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
    """Write the answer while it is generated; for several samples, write the votes."""
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
    lines.reconfigure(errors="surrogateescape")  # as for the command line
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
