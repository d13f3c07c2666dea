"""Chat, and what an expert's grammar does to its answers."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from expert_cli.errors import InputError
from expert_cli.inference.chat_session import Chat, open_chat
from expert_cli.runs.metrics import read_json
from expert_cli.utils.reporter import NullReporter
from tests.schemas import valid
from tests.train.projects import (
    SEVEN,
    case,
    command,
    manifest_with,
    project,
    train,
    trained_in,
    write_rows,
)

PROMPT = "Which number is 3?"


def talk(expert: Path, tokens: int = 8, *, manifest: Path | None = None, sample: bool = False) -> Chat:
    return open_chat(trained_in(expert, manifest), NullReporter(), max_new_tokens=tokens, sample=sample)


def test_a_conversation_is_remembered_until_it_is_forgotten(expert: Path) -> None:
    chat = talk(expert)
    assert "".join(chat.answer(PROMPT)) == "7"
    assert chat._said == [{"role": "user", "content": PROMPT}, {"role": "assistant", "content": "7"}]
    assert "".join(chat.answer(PROMPT, "below")) == "7"
    assert chat._said[2] == {"role": "user", "content": f"{PROMPT}\n\nbelow"}
    chat.forget()
    assert chat._said == []


def test_one_prompt(expert: Path) -> None:
    args = ["chat", "--adapter", str(expert), "--prompt", PROMPT, "--max-new-tokens", "4"]
    document = answered([*args, "--json"])
    assert (document["expert"], document["samples"], document["votes"]) == ("7", None, None)
    assert command(*args).stdout == "7\n"


def answered(args: list[str]) -> dict[str, Any]:
    """Return what the command prints, which its schema holds."""
    document: dict[str, Any] = json.loads(command(*args).stdout)
    valid(document, "chat")
    return document


def test_many_answers_are_put_to_the_vote(expert: Path) -> None:
    """Each is drawn by its own seed, the first by that of one alone, whatever the number of samples and their batches."""
    two = manifest_with(expert, top_k=2, top_p=1.0)
    chat = talk(expert, 1, manifest=two, sample=True)
    samples, votes = chat.vote(PROMPT, samples=20).values()
    counts = [tuple(one.values()) for one in votes]
    assert (len(samples), counts) == (20, Counter(samples).most_common())
    assert [answer == "7" for answer, _ in counts] == [True, False]
    assert chat._said == [{"role": "user", "content": PROMPT}, {"role": "assistant", "content": "7"}]
    fewer = talk(expert, 1, manifest=two, sample=True).vote(PROMPT, samples=3)
    assert fewer["samples"] == samples[:3]
    assert talk(expert, 1, manifest=two, sample=True).ask(PROMPT) == samples[0]
    args = ["chat", "--adapter", str(expert), "--manifest", str(two), "--prompt", PROMPT, "--max-new-tokens", "1"]
    first, agreeing = fewer["votes"][0].values()
    document = answered([*args, "--samples", "3", "--json"])
    assert document == {**document, "expert": first, **fewer}
    assert command(*args, "--samples", "3").stdout.startswith(f"{first}\n{agreeing} of 3 answers agree\n")


def test_an_answer_is_held_to_the_experts_grammar(expert: Path) -> None:
    """The model would end after 7."""
    decoding = {"use_grammar": True, "grammar_type": "json-schema", "json_schema": {"const": 77}, "top_k": 1}
    chat = talk(expert, manifest=manifest_with(expert, **decoding))
    assert "".join(chat.answer(PROMPT)) == "77"
    assert chat.ask(PROMPT) == "77"


def test_a_conversation_reads_until_an_empty_line(expert: Path) -> None:
    lines = f"{PROMPT}\nWhich number is 5?\n/new\n{PROMPT}\n\nnever read\n"
    done = command("chat", "--adapter", str(expert), "--max-new-tokens", "1", input=lines)
    assert (done.exit_code, done.stdout) == (0, "7\n7\n7\n")


@pytest.mark.parametrize("where", ["--prompt", "--input", "conversation"])
def test_bytes_that_are_no_utf_8_are_refused(expert: Path, where: str) -> None:
    """A shell gives them so of a file that a Windows program wrote: `--input "$(cat schema.sql)"`."""
    said = b"Gr\xf6\xdfe\n"
    options = {} if where == "conversation" else {"--prompt": PROMPT, where: said.decode("utf-8", "surrogateescape")}
    words = ["chat", "--adapter", str(expert), *(word for option in options.items() for word in option)]
    refused = command(*words, input=said).exception
    assert isinstance(refused, InputError)
    assert "not valid UTF-8: " in refused.message


CASES = [case(n, 7, schema={"type": "integer"}) for n in range(6)]
CASES += [case(n, 78, schema={"enum": [78]}) for n in (6, 7)]


def held(expert: Path, folder: Path, grammar: str, cases: Sequence[Mapping[str, Any]] = CASES) -> Path:
    """Copy an expert's run and its manifest, with these cases, and answers that are held to a grammar; return the manifest."""
    manifest = trained_in(expert).plan.run.manifest
    written = read_json(manifest)
    written["training"]["decoding"] = {"use_grammar": True, "grammar_type": grammar}
    shutil.copytree(expert, folder / "run")
    write_rows(folder / "tests" / "cases.jsonl", cases)
    (folder / "manifest.json").write_text(json.dumps(written), encoding="utf-8")
    return folder / "manifest.json"


def evaluated(manifest: Path, *more: str, max_new_tokens: int = 8) -> tuple[dict[str, Any], str]:
    """Return the document, and what is told."""
    run = manifest.parent / "run"
    args = ["--manifest", str(manifest), "--adapter", str(run), "--max-new-tokens", str(max_new_tokens), *more]
    done = command("evaluate", *args)
    assert done.exit_code == 0, done.stderr
    return read_json(run / "evaluation.json"), done.stderr


def test_answers_with_the_grammar_and_without(expert: Path, tmp_path: Path) -> None:
    manifest = held(expert, tmp_path, "json-schema")
    document, _ = evaluated(manifest, "--baseline")
    valid(document, "evaluate")
    assert [row["answer"] for row in document["answers"]] == ["7"] * 6 + ["78"] * 2
    assert (document["correct"], document["failures"]) == (8, {})
    free = document["without_grammar"]
    assert [row["answer"] for row in free["answers"]] == ["7"] * 8
    assert (free["correct"], free["failures"]) == (6, {"invalid": 2})
    assert (free["difference"]["difference"], free["difference"]["gained"], free["difference"]["lost"]) == (0.25, 2, 0)
    card = (tmp_path / "run" / "adapter" / "README.md").read_text(encoding="utf-8")
    assert "Against the expert without its grammar: +25.0%" in card
    again = command("evaluate", "--answers", str(tmp_path / "run" / "evaluation.json"), "--json")
    assert json.loads(again.stdout) == document | {"baseline": None, "without_grammar": None}


def test_a_training_asks_with_the_grammar(tmp_path: Path) -> None:
    manifest = project(
        tmp_path,
        rows=SEVEN,
        max_steps=20,
        learning_rate=0.01,
        decoding={"use_grammar": True, "grammar_type": "json"},
        cases=CASES[-1:],
    )
    done = train(manifest)
    assert [sample["after"] for sample in done.document["samples"]] == ["78"]


PETS = "CREATE TABLE pets (id INTEGER, name TEXT)"


def test_names_that_are_not_there_are_counted_and_do_not_come_with_the_grammar(tmp_path: Path) -> None:
    rows = [
        {"instruction": f"Which pets, {n}?", "input": PETS, "output": "SELECT name FROM animals"} for n in range(16)
    ]
    manifest = project(tmp_path, rows=rows, max_steps=60, learning_rate=0.01, max_seq_length=128)
    run = train(manifest).output
    with closing(sqlite3.connect(tmp_path / "pets.sqlite")) as database:
        database.executescript(PETS)
    shared = {"verifier": "sql", "database": "../../pets.sqlite", "expected": "SELECT name FROM pets"}
    asked = [{"prompt": f"Which pets, {n}?", "input": PETS, "id": f"n{n}", **shared} for n in range(3)]
    asked.append({**asked[0], "id": "no schema", "input": ""})
    manifest = held(run, tmp_path / "held", "sql", asked)
    document, told = evaluated(manifest, "--baseline", max_new_tokens=24)
    assert [row["kind"] for row in document["without_grammar"]["answers"][:3]] == ["unknown_name"] * 3
    assert not any("animals" in row["answer"].split() for row in document["answers"][:3])
    assert "1 of 4 questions have no schema that can be read: they are answered without a grammar" in " ".join(
        told.split()
    )
