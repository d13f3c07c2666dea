"""Databases are shown alike in training rows, in cases and in chat; what is shown is part of a token store's key."""

from __future__ import annotations

import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
from tokenizers import Tokenizer
from typer.testing import CliRunner

from expert_cli import api
from expert_cli.cli import app
from expert_cli.config.plan import make_plan, trained_adapter
from expert_cli.config.resolve import Overrides
from expert_cli.data.schema_prompt.builder import SchemaPrompt
from expert_cli.data.store.documents import Documents
from expert_cli.errors import InputError, IntegrityError
from expert_cli.evaluation.audit.rows import read_rows
from expert_cli.evaluation.few_shot import drawn_shots
from expert_cli.hardware import machine
from expert_cli.manifest.keys.schema_prompt import SchemaPromptConfig
from expert_cli.pipeline.options import RunOptions
from expert_cli.pipeline.pretokenize import resolve_inputs, store_for
from expert_cli.runs.paths import RunPaths
from expert_cli.utils.reporter import NullReporter
from tests import manifests, tiny
from tests.train.projects import project, train
from tests.train.rft_project import QUICK, sharp_model, write_rows

TABLES = "CREATE TABLE boat (id INT PRIMARY KEY, name TEXT, length REAL); CREATE TABLE port (id INT, town TEXT)"
QUESTION = "How long is the boat Anna?"
SHOWN = "Tables:\nboat(id int key, name = 'Anna', length real)"
ROW = {"db_id": "harbor", "question": QUESTION, "context": TABLES, "answer": "SELECT length FROM boat, port"}
SETTINGS = {"tables": 1, "databases": "databases/{db_id}/{db_id}.sqlite"}
SCHEMAS = Path(__file__).parents[2] / "docs" / "schemas"


def written(folder: Path, model: Path, rows: list[dict[str, Any]] | None = None, **settings: Any) -> Path:
    """Write a project of rows on databases; return its manifest's path."""
    manifest = project(folder, model, rows or [ROW] * 8, max_steps=1, max_seq_length=512)
    document = json.loads(manifest.read_text(encoding="utf-8"))
    document["training"]["dataset"]["schema_prompt"] = SETTINGS | settings
    database = folder / "databases" / "harbor" / "harbor.sqlite"
    database.parent.mkdir(parents=True, exist_ok=True)
    database.unlink(missing_ok=True)
    with closing(sqlite3.connect(database)) as connection:
        connection.executescript(TABLES)
        connection.execute("INSERT INTO boat VALUES (1, 'Anna', 7.5), (2, 'Otto', 8)")
        connection.commit()
    cases = folder / "tests" / "cases.jsonl"
    cases.parent.mkdir(exist_ok=True)
    case = {"verifier": "sql", "database": "../databases/harbor/harbor.sqlite", "expected": "SELECT 7.5"}
    cases.write_text(json.dumps(case | {"prompt": QUESTION, "input": TABLES}) + "\n", encoding="utf-8")
    return manifests.write(folder, document)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.tiny_model_folder(tmp_path_factory.mktemp("model") / "tiny")


@pytest.fixture(scope="module")
def expert(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train(written(tmp_path_factory.mktemp("expert"), model)).output


def test_rounds_train_and_judge_what_was_shown_of_each_database(tmp_path: Path) -> None:
    model = sharp_model(tmp_path / "model")
    unsure = [
        ROW | {"question": f"Boat {n}?", "answer": f"SELECT {7 if turn < 5 else 8}"}
        for n in range(8)
        for turn in range(16)
    ]
    manifest = written(tmp_path, model, unsure)
    document = json.loads(manifest.read_text(encoding="utf-8"))
    document["training"]["config"] |= {**QUICK, "method": "rft", "max_steps": 16}
    asked = {"rounds": 1, "samples": 4, "temperature": 1.0, "gold": "never", "replay": 0.1, "held_back": "judge.jsonl"}
    document["training"]["rft"] = {"prompts": "prompts.jsonl", **asked}
    case = {"verifier": "sql", "input": TABLES, "expected": "SELECT 7"}
    sides = {"prompts": ("databases/harbor/harbor.sqlite", range(100, 116)), "judge": ("other.sqlite", range(200, 208))}
    shutil.copy(tmp_path / sides["prompts"][0], tmp_path / "other.sqlite")
    for name, (database, numbers) in sides.items():
        rows = [case | {"id": f"{n}", "prompt": f"Boat {n}?", "database": database} for n in numbers]
        write_rows(tmp_path / f"{name}.jsonl", rows)
    done = train(manifests.write(tmp_path, document))
    kept = [
        json.loads(line) for line in (done.output / "round-1" / "rows.jsonl").read_text(encoding="utf-8").splitlines()
    ]
    assert kept
    assert {(row["db_id"], row["answer"]) for row in kept} == {("harbor", "SELECT 7")}
    run = json.loads((done.output / "round-1" / "run" / "run.json").read_text(encoding="utf-8"))
    texts = decoded(Path(run["store"]["path"]), tiny.tiny_backend())
    assert len(texts) == len(kept) + 13  # a tenth of 128 rows beside them
    assert all("boat(id int key" in text.partition("SELECT")[0] for text in texts)
    (record,) = done.document["rft"]["rounds"]
    assert record["correct"] > done.document["rft"]["before"]["correct"]
    RunPaths(done.output).complete.unlink()
    write_rows(tmp_path / "judge.jsonl", rows[1:])
    with pytest.raises(IntegrityError, match="data: "):
        train(manifest, RunOptions(resume="auto"))


def prompts(manifest: Path) -> tuple[str, list[str]]:
    """Return the key of a manifest's token store, and the text of each document in it."""
    run = make_plan(manifest, machine.inspect(), Overrides(offline=True)).run
    inputs = resolve_inputs(run, NullReporter())
    store = store_for(run, inputs, NullReporter())
    return store.key.sha256, decoded(store.home, inputs.tokenizer.backend)


def decoded(store: Path, tokenizer: Tokenizer) -> list[str]:
    """Return the text of each training document in a store."""
    documents = Documents(store / "train")
    return [tokenizer.decode(documents.document(n)[0].tolist()) for n in range(len(documents))]


def test_rows_are_shown_their_database_and_what_their_answer_names(tmp_path: Path, model: Path) -> None:
    key, (text, *others) = prompts(written(tmp_path, model))
    assert f"{QUESTION}\n\n{SHOWN}\nport(id int, town)" in text
    assert others == [text] * 7
    without, (text, *_) = prompts(written(tmp_path, model, gold_in_training=False))
    assert f"{QUESTION}\n\n{SHOWN}" in text
    assert "port" not in text.partition("SELECT")[0]
    assert without != key


def test_a_row_that_names_no_database_is_shown_its_input(tmp_path: Path, model: Path) -> None:
    rows = [ROW, ROW | {"db_id": ""}]
    _, texts = prompts(written(tmp_path, model, rows, gold_in_training=False))
    assert [("'Anna'" in text, "boat(id int key, name" in text) for text in texts] == [(True, True), (False, True)]


def test_a_database_with_other_content_makes_another_store(tmp_path: Path, model: Path) -> None:
    manifest = written(tmp_path, model)
    key, _ = prompts(manifest)
    assert prompts(manifest)[0] == key
    with closing(sqlite3.connect(tmp_path / "databases" / "harbor" / "harbor.sqlite")) as connection:
        connection.execute("UPDATE boat SET name = 'ANNA' WHERE id = 1")
        connection.commit()
    changed, texts = prompts(manifest)
    assert changed != key
    assert "name = 'ANNA'" in texts[0]


@pytest.mark.parametrize(
    ("row", "fault"),
    [
        ({"db_id": "../harbor"}, "names no database"),
        ({"db_id": "none"}, "no such file"),
        ({"db_id": "", "context": "nothing"}, "no CREATE TABLE stands in the input"),
    ],
)
def test_rows_without_a_database_that_can_be_read_are_bad(
    row: dict[str, str], fault: str, tmp_path: Path, model: Path
) -> None:
    with pytest.raises(InputError, match=fault):
        prompts(written(tmp_path, model, [ROW | row]))


def test_rows_of_whole_texts_are_shown_nothing(tmp_path: Path, model: Path) -> None:
    with pytest.raises(InputError, match=r"schema_prompt.*these are text"):
        prompts(written(tmp_path, model, [{"text": "Once", "db_id": "harbor"}]))


def test_a_column_that_is_not_there_is_named(tmp_path: Path, model: Path) -> None:
    with pytest.raises(InputError, match=r'"database_id".*is not there'):
        prompts(written(tmp_path, model, databases="databases/{database_id}.sqlite"))


def test_two_columns_in_one_pattern_are_refused(tmp_path: Path, model: Path) -> None:
    with pytest.raises(InputError, match="names several columns"):
        prompts(written(tmp_path, model, databases="{a}/{b}.sqlite"))


def test_the_audit_sees_rows_as_they_stand_in_their_file(tmp_path: Path, model: Path) -> None:
    rows = [ROW, ROW | {"db_id": "none"}]  # which is bad for training
    run = make_plan(written(tmp_path, model, rows), machine.inspect(), Overrides(offline=True)).run
    read = read_rows(run.data, resolve_inputs(run, NullReporter()).located, NullReporter()).rows
    assert [row.input for row in read] == [TABLES, TABLES]


def test_expert_json_says_what_is_shown(expert: Path) -> None:
    told = json.loads((expert / "adapter" / "expert.json").read_text(encoding="utf-8"))["schema_prompt"]
    assert told == vars(SchemaPromptConfig(tables=1))


def test_cases_are_shown_their_database_and_the_evaluation_keeps_that(expert: Path) -> None:
    found = api.evaluate(expert, max_new_tokens=4, offline=True)
    document = json.loads((expert / "evaluation.json").read_text(encoding="utf-8"))
    (answer,) = document["answers"]
    assert (answer["schema_prompt"], answer["question"]) == (SHOWN, {"prompt": QUESTION, "input": TABLES})
    schema = json.loads((SCHEMAS / "evaluate.schema.json").read_text(encoding="utf-8"))
    jsonschema_rs.validator_for(schema).validate(document)
    again = api.grade_answers(expert / "evaluation.json")
    assert again.evaluation.passed == found.evaluation.passed


def test_a_manifest_that_shows_otherwise_does_not_change_what_the_expert_is_shown(expert: Path) -> None:
    by = trained_adapter(expert, None, None, offline=True)
    document = json.loads(by.plan.run.manifest.read_text(encoding="utf-8"))
    document["training"]["dataset"]["schema_prompt"]["style"] = "create_table"
    other = by.plan.run.manifest.with_name("other.json")
    other.write_text(json.dumps(document), encoding="utf-8")
    shown = trained_adapter(expert, other, None, offline=True).plan.run.data.schema_prompt
    assert shown == by.plan.run.data.schema_prompt
    assert shown == SchemaPromptConfig(tables=1, databases=shown.databases if shown else "")


def test_examples_before_a_question_are_shown_nothing_of_their_answers(expert: Path) -> None:
    by = trained_adapter(expert, None, None, offline=True)
    assert {row.input for row in drawn_shots(by, 1, NullReporter()).rows} == {SHOWN}


def test_chat_shows_a_database_or_the_tables_of_the_input(expert: Path) -> None:
    database = expert.parents[2] / "databases" / "harbor" / "harbor.sqlite"
    if not database.is_file():
        database = next(expert.parents[3].rglob("harbor.sqlite"))
    base = ["chat", "--adapter", str(expert), "--offline", "--json", "--max-new-tokens", "2", "--prompt", QUESTION]
    for options, shown in (
        (["--database", str(database)], SHOWN),
        (["--input", TABLES], SHOWN.replace(" = 'Anna'", "")),
        (["--input", "no tables"], "no tables"),
    ):
        done = CliRunner().invoke(app, [*base, *options])
        assert done.exit_code == 0, done.stderr
        document = json.loads(done.stdout)
        assert document["input"] == shown
    refused = CliRunner().invoke(app, [*base, "--input", TABLES, "--database", str(database)])
    assert refused.exit_code == 2


def test_what_chat_shows_is_what_the_model_is_asked(expert: Path) -> None:
    database = next(trained_adapter(expert, None, None, offline=True).plan.run.manifest.parent.rglob("harbor.sqlite"))
    talk = api.load_expert(expert, database=database, max_new_tokens=2, offline=True)
    assert talk._turn(QUESTION, "").content == f"{QUESTION}\n\n{SHOWN}"
    assert SchemaPrompt(SchemaPromptConfig(tables=1)).of_file(database, QUESTION) == SHOWN
    with pytest.raises(InputError, match="no such file"):
        api.load_expert(expert, database=database / "none", offline=True)


def test_with_a_database_votes_go_by_what_answers_give_of_it(tmp_path: Path) -> None:
    rows = [ROW | {"answer": answer} for answer in ("SELECT 8", "SELECT 7", "SELECT 1 + 6")] * 16
    document = json.loads(written(tmp_path, sharp_model(tmp_path / "model"), rows).read_text(encoding="utf-8"))
    document["training"]["config"] |= {**QUICK, "max_steps": 24}
    output = train(manifests.write(tmp_path, document)).output
    database = next(tmp_path.rglob("harbor.sqlite"))
    vote = api.load_expert(output, database=database, max_new_tokens=16, offline=True).vote(QUESTION, samples=32)
    sevens = sum(answer in ("SELECT 7", "SELECT 1 + 6") for answer in vote.answers)
    assert set(vote.answers) >= {"SELECT 7", "SELECT 1 + 6", "SELECT 8"}
    assert (vote.majority in ("SELECT 7", "SELECT 1 + 6"), vote.counts[0][1]) == (True, sevens)
