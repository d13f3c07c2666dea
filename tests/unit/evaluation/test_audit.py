"""An audit through the API and its parts: what is found in rows and cases, and what is only told as not run."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from expert_cli import api
from expert_cli.errors import InputError
from expert_cli.evaluation.audit import Audit, compiler_for, near_duplicates, prompt_in_answer
from tests import manifests, tiny
from tests.graders import database
from tests.train.projects import write_rows

TABLE = "CREATE TABLE shops (id, name)"
CASE = {"verifier": "json", "schema": None, "rule": "exact", "prompt": "As JSON: 77.", "expected": 77}


def audited(
    folder: Path, rows: list[Any], cases: list[Any], change: Callable[[Any], object] = lambda _: None, **more: Any
) -> tuple[Audit, dict[str, list[int]]]:
    """Return the audit, and the lines that each check found."""
    manifest = manifests.small(max_seq_length=64)
    change(manifest)
    files = [write_rows(folder / "cases.jsonl", cases)] if cases else []
    dataset = str(write_rows(folder / "rows.jsonl", rows))
    found = api.audit(manifests.write(folder, manifest), dataset=dataset, cases=files, offline=True, **more)
    return found, {
        name: [int(where.rpartition(":")[2]) for where in places] for name, places in found.found.items() if places
    }


def rows_of(*answers: str, **more: str) -> list[dict[str, str]]:
    """Return rows of different questions."""
    return [{"instruction": f"{n} {'abcdefgh'[n] * 9}?", **more, "output": answer} for n, answer in enumerate(answers)]


FORMS: dict[str, Callable[[str, str], dict[str, object]]] = {
    "pairs": lambda q, a: {"instruction": q, "output": a},
    "messages": lambda q, a: {"messages": [{"role": "user", "content": q}, {"role": "assistant", "content": a}]},
    "whole texts": lambda q, a: {"text": f"### Instruction:\n{q}\n\n### Response:\n{a}"},
}


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS.keys())
def test_rows_of_every_form(tmp_path: Path, form: Callable[[str, str], dict[str, object]]) -> None:
    rows = [form(f"As JSON: {n}.", str(n)) for n in range(20)]
    rows[3], rows[5], rows[7] = form("As JSON: 3.", "{3"), form("as  JSON: 4.", "5"), form("As json: 6.", "6")
    unfit = CASE | {"id": "unfit", "schema": {"required": ["b"]}, "expected": {"a": 1}, "rule": "subset"}
    found, lines = audited(tmp_path, rows, [CASE, unfit])
    lines.pop("near_duplicate", None)
    if form is FORMS["whole texts"]:
        assert lines == {"duplicate": [8], "case_fails": [2]}
        assert "20 (parsed_only: the answer in a whole text is not run)" in found.not_checked["does_not_run"]
        return
    assert lines == {"does_not_run": [4], "contradiction": [5, 6], "duplicate": [8], "case_fails": [2]}
    assert (found.errors, found.as_json()["rows"], found.not_checked) == (4, 20, {})
    few = audited(tmp_path, rows, [CASE], limit=4)[0]
    assert [row.where.rpartition(":")[2] for row in few.rows] == ["3", "8", "13", "18"], "evenly spread"


QUERIES = {
    "SELECT name FROM shops": "",
    "WITH a AS (SELECT id FROM shops) SELECT * FROM a;": "",
    "SELECT nme FROM shops": "no such column: nme",
    "SELECT string_agg(name, ','), concat(id, name), group_concat(name ORDER BY id) FROM shops; -- new": "",
    "SELECT 1; SELECT 2": "one statement at a time",
    "": "incomplete input",
    "DELETE FROM shops": "not authorized",
    "ATTACH 'made.sqlite' AS x": "not authorized",
    "SELECT 1 FROM \ud800": "surrogates not allowed",
}


def test_sql_is_compiled_on_the_tables_of_its_row_which_run_nothing() -> None:
    found = compiler_for(None, f"{TABLE}; create view v (name) AS VALUES (1); DROP TABLE shops;")
    assert found is not None
    for query, fault in QUERIES.items():
        assert (fault in found(query), bool(found(query))) == (True, bool(fault)), query
    assert found("SELECT v.name FROM shops, v") == ""
    for unread in ("no tables", f"{TABLE}; CREATE VIEW v AS VALUES (1)"):
        assert compiler_for(None, unread) is None


def test_queries_without_tables_are_only_parsed_and_those_of_a_named_database_compiled_on_it(tmp_path: Path) -> None:
    answers = ("SELECT name FROM shops", "SELECT FROM WHERE", "SELECT nme FROM shops")
    found, lines = audited(tmp_path, rows_of(*answers), [], verifier="sql")
    assert lines["does_not_run"] == [2]
    assert "2 (parsed_only: neither a database nor CREATE TABLE in the row)" in found.not_checked["does_not_run"]
    database(tmp_path / "city.sqlite", TABLE)

    def named(manifest: Any) -> None:
        manifest["training"]["dataset"]["schema_prompt"] = {"databases": "{db}.sqlite"}

    found, lines = audited(tmp_path, rows_of(*answers, db="city"), [], named, verifier="sql")
    assert (lines["does_not_run"], found.not_checked) == ([2, 3], {})
    assert audited(tmp_path, rows_of(*answers, db="a/city"), [], named, verifier="sql")[1]["does_not_run"] == [1, 2, 3]

    def of_postgres(manifest: Any) -> None:
        manifest["training"]["decoding"] = {"grammar_type": "sql-postgres"}

    (tmp_path / "city.sql").write_text(f"{TABLE};", encoding="utf-8")
    case = {"verifier": "sql", "dialect": "postgresql", "database": "city.sql", "prompt": "?", "expected": "SELECT 1"}
    for cases, change in ([], of_postgres), ([case], lambda _: None):
        found, lines = audited(tmp_path, rows_of("SELECT id::text"), cases, change, verifier="sql")
        assert "does_not_run" not in lines
        assert "1 (parsed_only: queries in PostgreSQL's dialect" in found.not_checked["does_not_run"]


def test_sql_is_not_compiled_without_apsw(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "apsw", None)
    found, lines = audited(tmp_path, rows_of("SELECT FROM WHERE"), [], verifier="sql")
    assert (lines, "apsw is not installed" in found.not_checked["does_not_run"]) == ({}, True)


def test_a_case_is_found_behind_a_system_message(tmp_path: Path) -> None:
    turns = [("system", "JSON."), ("user", CASE["prompt"]), ("assistant", "1")]
    talk = {"messages": [{"role": role, "content": said} for role, said in turns]}
    assert audited(tmp_path, [talk], [CASE])[1]["leak"] == [1]


def test_other_answers_are_given_to_a_case(tmp_path: Path) -> None:
    (tmp_path / "towns.cypher").write_text("CREATE (:Town {name: 'Oslo'})", encoding="utf-8")
    query = {"verifier": "cypher", "script": "towns.cypher", "prompt": "?", "expected": "MATCH (t:Town) RETURN t.name"}
    answers = ("MATCH (m:Moon) RETURN m.name", "MATCH (t:Town RETURN t", "MATCH (t:Town) SET t.a = 1")
    answers += ("MATCH (o:O)-[:P]->(:O), (o)-[:C]->(c:D) RETURN o.name, c.name",)  # graphqlite's own SQL fails
    found, lines = audited(tmp_path, rows_of(*answers), [query])
    assert lines == {"does_not_run": [2]}
    assert found.not_checked["does_not_run"].startswith("2 of 4 answers are not run: 1 (refused: SET); 1 (parsed")
    program = {"verifier": "python", "prompt": "?", "function": "f", "calls": [[[1], 1]]}
    programs = rows_of("def f(n):\n    return n", "def g(n):\n    return n", "def f(n:")
    found, lines = audited(tmp_path, programs, [program])
    assert (lines, [*found.not_checked]) == ({"does_not_run": [3]}, ["case_fails"])
    found, lines = audited(tmp_path, programs, [{"verifier": "regex", "prompt": "?", "pattern": ".*"}])
    assert "3 (parsed_only: answers of regex need a case to be judged)" in found.not_checked["does_not_run"]


def test_lengths_are_those_of_the_answer_in_tokens(tmp_path: Path) -> None:
    rows = [{"instruction": "As JSON.", "output": f'"{"9" * count}"'} for count in (50, 61, 62)]
    found, lines = audited(tmp_path, rows, [], verifier="exact")
    assert "too_long" not in lines
    assert "1 long answers: the tokenizer of" in found.not_checked["too_long"]
    tiny.tiny_model_folder(tmp_path / "base")
    base = [{"name": "base", "quantization": "none"}]
    found, lines = audited(tmp_path, rows, [], lambda manifest: manifest.update(base_models=base), verifier="exact")
    assert (lines["too_long"], [*found.not_checked]) == ([3], ["does_not_run"])
    assert found.as_json()["checks"]["too_long"]["examples"][0]["detail"].startswith("the answer has 64 tokens")


GOING_ON = {
    "SELECT 1\n### Instruction:\nList more": "it holds '### Instruction:'",
    "SELECT 1<|im_end|>\n<|im_start|>user": "it holds '<|im_end|>'",
    "Four.\nHuman: And five?\nAssistant:": "it holds 'Human: And five?'",
    "Human: is a word": "",
    "4\n\nHow many  BOATS are there?": "it ends with its own question",
    "How many boats are there?": "",  # an answer that is its question is none that goes on
}


@pytest.mark.parametrize(("answer", "told"), GOING_ON.items())
def test_answers_that_go_on_into_a_prompt(answer: str, told: str) -> None:
    assert prompt_in_answer("How many boats are there?", answer) == told


def test_near_duplicates_are_those_of_all_pairs() -> None:
    drawn, words = random.Random(2), "name every shop in that old city which have more than three boats all".split()  # noqa: SIM905  as people read it
    asked = [drawn.choices(words, k=14) for _ in range(60)]
    asked += [[word if drawn.random() > 0.1 else drawn.choice(words) for word in one] for one in asked]
    rows = [(" ".join(one), drawn.choice(("shops", "planets")), "select name from shops") for one in asked]

    def is_near(a: int, b: int) -> bool:
        sets = [
            [{text[at : at + 5] for at in range(len(text) - 4)} for text in (rows[n][0], rows[n][2])] for n in (a, b)
        ]
        one, other = (each[0] | each[1] for each in sets)
        return len(one & other) / len(one | other) >= 0.8 and rows[a][1] == rows[b][1]

    wanted = {b for b in range(len(rows)) if any(is_near(a, b) for a in range(b))}
    found = near_duplicates(rows)
    assert set(found) == wanted
    assert 10 < len(wanted) < 60
    assert all(earlier < later and is_near(earlier, later) for later, earlier in found.items())


def test_wrong_input(tmp_path: Path) -> None:
    wrong = {"limit 0: must be at least 1": {"limit": 0}, "verifier cobol: no such verifier": {"verifier": "cobol"}}
    for told, more in wrong.items():
        with pytest.raises(InputError, match=told):
            audited(tmp_path, rows_of("1"), [], **more)
    with pytest.raises(InputError, match="there are no rows"):
        audited(tmp_path, [], [])
