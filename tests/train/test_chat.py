"""Chat: what the expert and its base model answer, in pieces, with what was said before."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema_rs
import pytest
from typer.testing import CliRunner

from expert_cli.cli import app
from expert_cli.config.plan import trained_adapter
from expert_cli.data.rows.columnar import Message
from expert_cli.inference.chat import Chat, open_chat
from expert_cli.utils.reporter import NullReporter
from tests.train.projects import expert_of_seven, with_stops

SCHEMA = Path(__file__).parents[2] / "docs" / "schemas" / "chat.schema.json"
PROMPT = "Which number is 3?"


@pytest.fixture(scope="module")
def expert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return expert_of_seven(tmp_path_factory.mktemp("expert"))


def talk(expert: Path, tokens: int = 8, *, manifest: Path | None = None, sample: bool = False) -> Chat:
    return open_chat(
        trained_adapter(expert, manifest, None, offline=True), NullReporter(), max_new_tokens=tokens, sample=sample
    )


def test_the_base_model_is_asked_the_same_and_does_not_answer_so(expert: Path) -> None:
    chat = talk(expert)
    base = "".join(chat.base(PROMPT))
    assert "".join(chat.answer(PROMPT)) == "7" != base
    assert chat._said == [Message("user", PROMPT), Message("assistant", "7")]
    assert "".join(chat.answer(PROMPT, "below")) == "7"
    assert chat._said[2] == Message("user", f"{PROMPT}\n\nbelow")
    chat.forget()
    assert "".join(chat.base(PROMPT)) == base, "the first answer does not depend on what was said before it"


def test_pieces_are_whole_characters(expert: Path) -> None:
    chat = talk(expert, 40)
    pieces = list(chat.base(PROMPT))
    whole = "".join(pieces)
    assert len(pieces) > 5
    assert whole == "".join(talk(expert, 40).base(PROMPT))


@pytest.mark.parametrize("sample", [True, False], ids=["sampled", "greedy"])
def test_a_stop_sequence_is_never_shown(expert: Path, sample: bool) -> None:
    assert "7" not in "".join(talk(expert, manifest=with_stops(expert, "7"), sample=sample).answer(PROMPT))


def test_one_prompt(expert: Path) -> None:
    args = ["chat", "--adapter", str(expert), "--prompt", PROMPT, "--compare", "--max-new-tokens", "4"]
    done = CliRunner().invoke(app, [*args, "--json"])
    document = json.loads(done.stdout)
    jsonschema_rs.validator_for(json.loads(SCHEMA.read_text(encoding="utf-8"))).validate(document)
    assert (document["expert"], document["base_model"]) == ("7", "".join(talk(expert, 4).base(PROMPT)))
    words = CliRunner().invoke(app, args).stdout
    assert words.startswith("base model\n")
    assert words.endswith("\nexpert\n7\n")


def test_a_conversation_reads_until_an_empty_line(expert: Path) -> None:
    lines = f"{PROMPT}\nWhich number is 5?\n/new\n{PROMPT}\n\nnever read\n"
    done = CliRunner().invoke(app, ["chat", "--adapter", str(expert), "--max-new-tokens", "1"], input=lines)
    assert (done.exit_code, done.stdout) == (0, "7\n7\n7\n")


def test_json_needs_a_prompt(expert: Path) -> None:
    assert CliRunner().invoke(app, ["chat", "--adapter", str(expert), "--json"]).exit_code == 2
