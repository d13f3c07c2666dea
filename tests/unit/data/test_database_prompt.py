"""What a question is shown of its database: ranked by its words and values, complete in its joins, readable by the grammar."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from expert_cli.data import database_prompt
from expert_cli.data.database_prompt import schema_prompt, written
from expert_cli.errors import InputError
from expert_cli.inference.sql_grammar import tables_of
from expert_cli.manifest.keys.schema_prompt import SchemaPromptConfig

SCHEMA = """
CREATE TABLE department (Department_ID INTEGER PRIMARY KEY, Name TEXT, Budget_in_Billions REAL);
CREATE TABLE head (head_ID INT PRIMARY KEY, name VARCHAR(20), born_state TEXT, age INT);
-- who heads what; when is not known
/* more; */ CREATE TABLE management (department_ID INT, head_ID INT, acting TEXT, PRIMARY KEY (department_ID, head_ID),
  FOREIGN KEY (head_ID) REFERENCES head(head_ID), FOREIGN KEY (department_ID) REFERENCES department(Department_ID));
CREATE TABLE "order" ("Home Town" TEXT, "group" TEXT, "a(b,c)" TEXT, plain TEXT);
CREATE TABLE unrelated (x1 TEXT, x2 TEXT);
"""
ALL = SchemaPromptConfig(tables=None, columns=None)
HEADS = """Tables:
head(head_ID int key, name, born_state = 'California', age int)
management(department_ID int key, head_ID int key > head, acting)"""


JOINS = """Tables:
head(head_id, name, born_state, age)
management(department_id, head_id, acting)
department(department_id, name, budget_in_billions)
Joins:
management.head_id = head.head_id
management.department_id = department.department_id
Values:
head.born_state = 'California'"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A database with values, some of which cannot be shown."""
    path = tmp_path / "d.sqlite"
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(SCHEMA)
        rows = [(1, "Ann", "California", 50), (2, "O'Neil", "New York", 60), (3, "a\nb", "New York", None)]
        connection.executemany("INSERT INTO head VALUES (?, ?, ?, ?)", rows)
        connection.execute("INSERT INTO head VALUES (4, CAST(x'4d fc'AS TEXT), 'York', 1)".replace(" fc", "fc"))
        connection.execute("""INSERT INTO "order" VALUES ('Bonn, (West)', 'x*/y', 'Z' || char(27), 'b')""")
        connection.commit()
    return path


def prompt(**settings: Any) -> SchemaPromptConfig:
    return replace(SchemaPromptConfig(), **settings)


def shown_of(settings: SchemaPromptConfig, file: Path, question: str) -> str:
    return schema_prompt(settings, question, "", file)


def test_a_question_is_shown_the_tables_that_fit_it_with_their_keys_types_and_values(file: Path) -> None:
    assert shown_of(prompt(tables=2), file, "Which heads were born in california?") == HEADS


def test_keys_of_shown_joins_are_shown_whatever_the_number_of_columns(file: Path) -> None:
    shown = shown_of(prompt(tables=3, columns=1), file, "The budget of the department and the age of its head")
    assert tables_of(shown) == {
        "department": ["Department_ID"],
        "management": ["department_ID", "head_ID"],
        "head": ["head_ID"],
    }


@pytest.mark.parametrize(
    ("question", "value"),
    [
        ("heads from NEW YORK", "born_state = 'New York'"),  # not York, which stands in it
        ("the age of O'Neil", "name = 'O''Neil'"),
        ("who lives in bonn west", "\"Home Town\" = 'Bonn, (West)'"),
    ],
)
def test_a_value_is_shown_as_the_database_writes_it(file: Path, question: str, value: str) -> None:
    shown = shown_of(ALL, file, question)
    assert value in shown
    assert shown.count("'York'") == 0


def test_a_stop_word_is_no_value_whatever_its_stem(file: Path) -> None:
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("INSERT INTO head VALUES (9, 'Ande', 'Utah', 1)")
        connection.commit()
    assert "'Ande'" not in shown_of(ALL, file, "the names and ages of heads")
    assert "name = 'Ande'" in shown_of(ALL, file, "the age of ande")


def test_values_that_no_prompt_can_hold_are_not_shown(file: Path) -> None:
    shown = shown_of(replace(ALL, examples=5), file, "a b, x y and m")
    assert "name = 'Ann' | 'O''Neil'," in shown  # neither the one of two lines nor the one that is no UTF-8
    assert "*/" not in shown
    assert "\x1b" not in shown


def test_joins_are_shown_as_queries_write_them_in_small_letters(file: Path) -> None:
    shown = shown_of(
        prompt(style="joins", types=False, tables=3), file, "Which heads of departments were born in california?"
    )
    assert shown == JOINS
    assert '"order"("Home Town", "group", "a(b,c)", plain)' in shown_of(prompt(style="joins", tables=None), file, "?")
    without = shown_of(prompt(style="joins", types=False, tables=1), file, "Which heads were born in california?")
    assert without.splitlines() == [*JOINS.splitlines()[:2], *JOINS.splitlines()[-2:]]


@pytest.mark.parametrize("style", ["compact", "joins"])
@pytest.mark.parametrize("types", [True, False])
@pytest.mark.parametrize("keys", [True, False])
def test_every_style_is_read_by_the_grammar(file: Path, style: str, types: bool, keys: bool) -> None:
    settings = SchemaPromptConfig(style, types, keys, None, None, values=2, examples=2)  # type: ignore[arg-type]
    shown = shown_of(settings, file, "Bonn West, Tables:")
    found = tables_of(f"Which head(s) live in Bonn?\n\n{shown}\n\nAnd f(x)?")
    assert json.dumps(found, sort_keys=True).lower() == json.dumps(tables_of(SCHEMA), sort_keys=True).lower()


@pytest.mark.parametrize(
    ("name", "in_query"),
    [("abort", "abort"), ("größe", '"größe"'), ("order", '"order"'), ("true", '"true"'), ("a b", '"a b"')],
)
def test_a_name_is_in_quotes_where_sqlite_would_read_it_as_something_else(name: str, in_query: str) -> None:
    assert written(name) == in_query


def test_an_answer_adds_what_it_names_and_only_where_that_is_asked_for(file: Path) -> None:
    question, answer = "Heads?", "SELECT x2 FROM unrelated WHERE x2 = 'plain' AND acting"
    data = replace(prompt(tables=1, columns=1), databases=str(file.with_name("{db_id}.sqlite")))
    shown = schema_prompt(data, question, "", data.file_named("d"), answer)
    assert tables_of(shown) == {"head": ["head_ID"], "unrelated": ["x1", "x2"]}
    without = replace(data, gold_in_training=False)
    assert list(tables_of(schema_prompt(without, question, "", file, answer))) == ["head"]


def test_texts_are_read_as_databases_are_without_values(file: Path) -> None:
    shown = schema_prompt(prompt(tables=2), "Which heads were born in california?", f"Here it is: {SCHEMA}", None)
    assert shown == HEADS.replace(" = 'California'", "")


def test_a_reference_that_names_no_columns_is_to_the_primary_key_in_its_order() -> None:
    text = "CREATE TABLE p (a, b, c, PRIMARY KEY (c, a)); CREATE TABLE q (x, y, FOREIGN KEY (x, y) REFERENCES p);"
    joins = schema_prompt(prompt(style="joins"), "Which?", text, None).partition("Joins:\n")[2]
    assert joins == "q.x = p.c\nq.y = p.a"


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("no tables", "the input has no CREATE TABLE"),
        ("CREATE TABLE a (", "SQLite refuses"),
        ("CREATE TABLE a AS SELECT 1 AS b", "SQLite refuses"),
    ],
)
def test_what_cannot_be_read_is_refused(text: str, fault: str) -> None:
    with pytest.raises(InputError, match=fault):
        schema_prompt(prompt(), "?", text, None)


def test_files_that_are_none_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("no database, but long enough to be looked at")
    for path in (tmp_path / "a", tmp_path / "missing"):
        with pytest.raises(InputError, match=str(path)):
            shown_of(prompt(), path, "?")


def test_only_the_first_rows_are_looked_at(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database_prompt, "MOST_ROWS", 1)
    shown = shown_of(ALL, file, "california or new york")
    assert "California" in shown
    assert "New York" not in shown


def test_a_file_that_changes_is_read_anew(file: Path) -> None:
    shown_of(ALL, file, "?")
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("CREATE TABLE later (z TEXT)")
        connection.commit()
    assert "later" in tables_of(shown_of(ALL, file, "?"))


def test_a_view_that_never_ends_is_given_up(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database_prompt, "MOST_STEPS", 1_000_000)
    with closing(sqlite3.connect(file)) as connection:
        endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT max(i) AS i FROM n"
        connection.execute(f"CREATE VIEW endless AS {endless}")
        connection.commit()
    shown = shown_of(ALL, file, "california")
    assert "endless" in tables_of(shown)
    assert "'California'" in shown


@pytest.mark.parametrize("name", ["..", ".", "../d", "a/d"])
def test_a_row_names_a_database_and_no_path(tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError, match="names no database"):
        replace(prompt(), databases=str(tmp_path / "{db_id}")).file_named(name)
