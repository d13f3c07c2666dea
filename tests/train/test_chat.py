"""Chat: what the expert and its base model answer, in pieces, with what was said before."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from expert_cli.cli import app
from expert_cli.config.plan import trained_adapter
from expert_cli.errors import InputError
from expert_cli.inference.chat_session import Chat, open_chat
from expert_cli.utils.reporter import NullReporter
from tests.train.projects import manifest_with, valid

PROMPT = "Which number is 3?"


def talk(expert: Path, tokens: int = 8, *, manifest: Path | None = None, sample: bool = False) -> Chat:
    return open_chat(
        trained_adapter(expert, manifest, None, offline=True), NullReporter(), max_new_tokens=tokens, sample=sample
    )


def test_the_base_model_is_asked_the_same_and_does_not_answer_so(expert: Path) -> None:
    chat = talk(expert)
    base = "".join(chat.base(PROMPT))
    assert "".join(chat.answer(PROMPT)) == "7" != base
    assert chat._said == [{"role": "user", "content": PROMPT}, {"role": "assistant", "content": "7"}]
    assert "".join(chat.answer(PROMPT, "below")) == "7"
    assert chat._said[2] == {"role": "user", "content": f"{PROMPT}\n\nbelow"}
    chat.forget()
    assert "".join(chat.base(PROMPT)) == base, "the first answer does not depend on what was said before it"


def test_one_prompt(expert: Path) -> None:
    args = ["chat", "--adapter", str(expert), "--prompt", PROMPT, "--compare", "--max-new-tokens", "4"]
    document = answered([*args, "--json"])
    assert (document["expert"], document["base_model"]) == ("7", "".join(talk(expert, 4).base(PROMPT)))
    assert document["samples"] is document["votes"] is None
    words = CliRunner().invoke(app, args).stdout
    assert words.startswith("base model\n")
    assert words.endswith("\nexpert\n7\n")


def answered(args: list[str]) -> dict[str, Any]:
    """Return what the command prints, which its schema holds."""
    document: dict[str, Any] = json.loads(CliRunner().invoke(app, args).stdout)
    valid(document, "chat")
    return document


def test_many_answers_are_put_to_the_vote(expert: Path) -> None:
    """Each is drawn by its own seed, the first by that of one alone, whatever the number of samples and their batches."""
    two = manifest_with(expert, top_k=2, top_p=1.0)
    chat = talk(expert, 1, manifest=two)
    vote = chat.vote(PROMPT, samples=20)
    assert len(vote.answers) == 20
    assert vote.counts == tuple(Counter(vote.answers).most_common())
    assert [answer == "7" for answer, _ in vote.counts] == [True, False]
    assert chat._said == [{"role": "user", "content": PROMPT}, {"role": "assistant", "content": "7"}]
    assert talk(expert, 1, manifest=two).vote(PROMPT, samples=3).answers == vote.answers[:3]
    assert talk(expert, 1, manifest=two, sample=True).ask(PROMPT) == vote.answers[0]


def test_the_command_shows_the_vote(expert: Path) -> None:
    two = manifest_with(expert, top_k=2, top_p=1.0)
    args = ["chat", "--adapter", str(expert), "--manifest", str(two), "--prompt", PROMPT, "--max-new-tokens", "1"]
    vote = talk(expert, 1, manifest=two).vote(PROMPT, samples=5)
    document = answered([*args, "--samples", "5", "--json"])
    assert document == {**document, "expert": vote.majority, "base_model": None, **vote.as_json()}
    shown = CliRunner().invoke(app, [*args, "--samples", "5"]).stdout
    (first, agreeing), *_ = vote.counts
    assert shown.startswith(f"{first}\n{agreeing} of 5 answers agree\n")


def test_an_answer_is_held_to_the_experts_grammar(expert: Path) -> None:
    """The model would end after 7."""
    decoding = {"use_grammar": True, "grammar_type": "json-schema", "json_schema": {"const": 77}, "top_k": 1}
    chat = talk(expert, manifest=manifest_with(expert, **decoding))
    assert "".join(chat.answer(PROMPT)) == "77"
    assert chat.ask(PROMPT) == "77"


def test_a_conversation_reads_until_an_empty_line(expert: Path) -> None:
    lines = f"{PROMPT}\nWhich number is 5?\n/new\n{PROMPT}\n\nnever read\n"
    done = CliRunner().invoke(app, ["chat", "--adapter", str(expert), "--max-new-tokens", "1"], input=lines)
    assert (done.exit_code, done.stdout) == (0, "7\n7\n7\n")


@pytest.mark.parametrize("where", ["--prompt", "--input", "conversation"])
def test_bytes_that_are_no_utf_8_are_refused(expert: Path, where: str) -> None:
    """A shell gives them so of a file that a Windows program wrote: `--input "$(cat schema.sql)"`."""
    said = b"Gr\xf6\xdfe\n"
    options = {} if where == "conversation" else {"--prompt": PROMPT, where: said.decode("utf-8", "surrogateescape")}
    words = ["chat", "--adapter", str(expert), *(word for option in options.items() for word in option)]
    refused = CliRunner().invoke(app, words, input=said).exception
    assert isinstance(refused, InputError)
    assert "not valid UTF-8: " in refused.message
