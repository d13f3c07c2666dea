"""What a run trains on: several sources, databases shown in prompts."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from expert_cli import api
from expert_cli.config.plan import make_plan
from expert_cli.config.resolve import Overrides
from expert_cli.data.store.store_files import Documents
from expert_cli.hardware import machine
from expert_cli.manifest.keys.schema_prompt import SchemaPromptConfig
from expert_cli.pipeline.pretokenize import store_for
from expert_cli.pipeline.training_data import resolve_inputs
from expert_cli.runs.metrics import read_json
from expert_cli.utils.reporter import NullReporter
from tests.schemas import valid
from tests.train.projects import command, project, train, trained_in

TABLES = "CREATE TABLE boat (id INT PRIMARY KEY, name TEXT, length REAL); CREATE TABLE port (id INT, town TEXT)"
QUESTION = "How long is the boat Anna?"
SHOWN = "Tables:\nboat(id int key, name = 'Anna', length real)"
ROW = {"db_id": "harbor", "question": QUESTION, "context": TABLES, "answer": "SELECT length FROM boat, port"}
SETTINGS = {"tables": 1, "databases": "databases/{db_id}/{db_id}.sqlite"}


def written(folder: Path, rows: list[dict[str, Any]] | None = None, **settings: Any) -> Path:
    """Write a project of rows on databases; return its manifest's path."""
    case = {"verifier": "sql", "database": "../databases/harbor/harbor.sqlite", "expected": "SELECT 7.5"}
    manifest = project(
        folder,
        rows=rows or [ROW] * 8,
        max_steps=1,
        max_seq_length=512,
        dataset={"schema_prompt": SETTINGS | settings},
        cases=[case | {"prompt": QUESTION, "input": TABLES}],
    )
    database = folder / "databases" / "harbor" / "harbor.sqlite"
    database.parent.mkdir(parents=True, exist_ok=True)
    database.unlink(missing_ok=True)
    with closing(sqlite3.connect(database)) as connection:
        connection.executescript(TABLES)
        connection.execute("INSERT INTO boat VALUES (1, 'Anna', 7.5), (2, 'Otto', 8)")
        connection.commit()
    return manifest


@pytest.fixture(scope="module")
def expert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train(written(tmp_path_factory.mktemp("expert"))).output


def prompts(manifest: Path) -> tuple[str, list[str]]:
    """Return the key of a manifest's token store, and the text of each document in it."""
    run = make_plan(manifest, machine.inspect(), Overrides(offline=True)).run
    inputs = resolve_inputs(run, NullReporter())
    store = store_for(run, inputs, NullReporter())
    documents = Documents(store.home / "train")
    ids = [documents.document(n)[0].tolist() for n in range(len(documents))]
    return store.key.sha256, [inputs.tokenizer.backend.decode(one) for one in ids]


def test_rows_are_shown_their_database_and_what_their_answer_names(tmp_path: Path) -> None:
    key, (text, *others) = prompts(written(tmp_path))
    assert f"{QUESTION}\n\n{SHOWN}\nport(id int, town)" in text
    assert others == [text] * 7
    without, (text, *_) = prompts(written(tmp_path, gold_in_training=False))
    assert f"{QUESTION}\n\n{SHOWN}" in text
    assert "port" not in text.partition("SELECT")[0]
    assert without != key


def test_a_database_with_other_content_makes_another_store(tmp_path: Path) -> None:
    manifest = written(tmp_path)
    key, _ = prompts(manifest)
    assert prompts(manifest)[0] == key
    with closing(sqlite3.connect(tmp_path / "databases" / "harbor" / "harbor.sqlite")) as connection:
        connection.execute("UPDATE boat SET name = 'ANNA' WHERE id = 1")
        connection.commit()
    changed, texts = prompts(manifest)
    assert changed != key
    assert "name = 'ANNA'" in texts[0]


def test_cases_are_shown_their_database_and_the_evaluation_keeps_that(expert: Path) -> None:
    found = api.evaluate(expert, max_new_tokens=4, offline=True)
    document = read_json(expert / "evaluation.json")
    (answer,) = document["answers"]
    assert (answer["schema_prompt"], answer["question"]) == (SHOWN, {"prompt": QUESTION, "input": TABLES})
    valid(document, "evaluate")
    again = api.evaluate(answers=expert / "evaluation.json")
    assert again.passed == found.passed


def test_a_manifest_that_shows_otherwise_does_not_change_what_the_expert_is_shown(expert: Path) -> None:
    by = trained_in(expert)
    document = read_json(by.plan.run.manifest)
    document["training"]["dataset"]["schema_prompt"]["style"] = "joins"
    other = by.plan.run.manifest.with_name("other.json")
    other.write_text(json.dumps(document), encoding="utf-8")
    shown = trained_in(expert, other).plan.run.data.schema_prompt
    assert shown == by.plan.run.data.schema_prompt
    assert shown == SchemaPromptConfig(tables=1, databases=shown.databases if shown else "")


def test_chat_shows_a_database_or_the_tables_of_the_input(expert: Path) -> None:
    database = next(trained_in(expert).plan.run.manifest.parent.rglob("harbor.sqlite"))
    base = ["chat", "--adapter", str(expert), "--offline", "--json", "--max-new-tokens", "2", "--prompt", QUESTION]
    for options, shown in (
        (["--database", str(database)], SHOWN),
        (["--input", TABLES], SHOWN.replace(" = 'Anna'", "")),
        (["--input", "no tables"], "no tables"),
    ):
        done = command(*base, *options)
        assert done.exit_code == 0, done.stderr
        assert json.loads(done.stdout)["input"] == shown
