"""An audit as a whole, through the API: leaks, lengths, rows of every form."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from expert_cli import api
from expert_cli.errors import InputError
from expert_cli.evaluation.audit.findings import Findings
from tests import manifests, tiny

SCHEMA = "CREATE TABLE shops (id, name, city)"
CASE = {"verifier": "json", "schema": None, "rule": "exact"}


def write(path: Path, rows: list[Any]) -> Path:
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    return path


def audited(folder: Path, rows: list[Any], cases: list[Any], **more: Any) -> tuple[Any, dict[str, int]]:
    manifest = manifests.write(folder, manifests.small(max_seq_length=64))
    files = [write(folder / "cases.jsonl", cases)] if cases else []
    found = api.audit(manifest, dataset=str(write(folder / "rows.jsonl", rows)), cases=files, offline=True, **more)
    return found, {name: len(check.members) for name, check in found.findings.found.items() if check.members}


def test_what_rows_give_away_of_cases(tmp_path: Path) -> None:
    asked = "Which of the shops in the old harbor sell red boats and blue sails?"
    other = "How many of all the people who live beside the market own a boat?"
    rows = [
        {"question": asked.upper(), "context": SCHEMA, "answer": "SELECT 1"},
        {"question": other.replace("boat", "coat"), "context": SCHEMA, "answer": "SELECT 2"},
        {"question": other, "context": "CREATE TABLE planets (radius, orbit, mass)", "answer": "SELECT 3"},
        {"question": "Something else?", "context": SCHEMA, "answer": "select NAME\nfrom shops where id = 3;"},
        {"question": "And this?", "context": "CREATE TABLE stars (light, mass)", "answer": "SELECT 5"},
    ]
    own = {"verifier": "sql", "input": SCHEMA, "database": "s.sqlite"}
    cases = [
        {**own, "prompt": asked, "expected": "SELECT id FROM shops WHERE id = 1"},
        {**own, "prompt": other, "expected": "SELECT id FROM shops WHERE id = 2"},
        {**own, "prompt": "And the third?", "expected": "SELECT name FROM shops WHERE id = 3"},
        {**own, "prompt": "Stars?", "input": "CREATE TABLE stars (light, mass)", "expected": "SELECT 5"},
    ]
    sqlite3.connect(tmp_path / "s.sqlite").executescript(f"{SCHEMA}; INSERT INTO shops VALUES (1, 'a', 'b')").close()  # noqa: S608
    found, counts = audited(tmp_path, rows, cases)
    told = {name: found.findings.found[name].members for name in ("leak", "leaked_answer")}
    assert told == {"leak": {0}, "leaked_answer": {f"{tmp_path / 'cases.jsonl'}:3"}}
    assert counts["case_empty"] == 2


@pytest.mark.parametrize(
    "form",
    [
        pytest.param(lambda q, a: {"instruction": q, "output": a}, id="pairs"),
        pytest.param(
            lambda q, a: {"messages": [{"role": "user", "content": q}, {"role": "assistant", "content": a}]},
            id="messages",
        ),
        pytest.param(lambda q, a: {"text": f"### Instruction:\n{q}\n\n### Response:\n{a}"}, id="whole texts"),
    ],
)
def test_rows_of_every_form(tmp_path: Path, form: Callable[[str, str], dict[str, object]]) -> None:
    rows = [form(f"As JSON: {n}.", str(n)) for n in range(20)]
    rows[3], rows[5] = form("As JSON: 3.", "{3"), form("As JSON: 5.", "```json\n5")
    found, counts = audited(tmp_path, rows, [{**CASE, "prompt": "As JSON: 77.", "expected": 77}])
    assert counts.items() >= {"does_not_run": 1, "unclosed_fence": 1}.items()
    assert found.findings.found["does_not_run"].members == {3}
    assert (found.findings.ran, found.errors) == (19, 2)


def test_a_conversation_asks_with_all_its_turns_before_the_last(tmp_path: Path) -> None:
    said = [
        ("system", "Be brief."),
        ("user", "As JSON: 1."),
        ("assistant", "1"),
        ("user", "And two?"),
        ("assistant", "2"),
    ]
    rows = [{"messages": [{"role": role, "content": content} for role, content in said]}]
    (row,) = audited(tmp_path, rows, [], verifier="json")[0].rows
    assert (row.question, row.input, row.answer) == ("As JSON: 1.\nassistant: 1\nAnd two?", "Be brief.", "2")


def test_lengths_are_words_where_there_is_no_tokenizer(tmp_path: Path) -> None:
    rows = [
        {"instruction": f"{'word ' * asked}{answered}?", "output": json.dumps("word " * answered)}
        for asked, answered in ((1, 63), (40, 40), (10, 10), (1, 1))
    ]
    found, _ = audited(tmp_path, rows, [{**CASE, "prompt": "?", "expected": 1}])
    assert {name: found.findings.found[name].members for name in ("too_long", "truncated")} == {
        "too_long": {0},
        "truncated": {1},
    }
    assert "words were counted, not tokens" in found.findings.not_checked["too_long"]


def test_lengths_are_tokens_where_there_is_one(tmp_path: Path) -> None:
    tiny.tiny_model_folder(tmp_path / "base")
    rows = [{"instruction": "As JSON.", "output": f'"{"9" * count}"'} for count in (50, 61, 62)]
    manifest = manifests.small(max_seq_length=64)
    manifest["base_models"] = [{"name": "base", "quantization": "none"}]
    dataset = write(tmp_path / "rows.jsonl", rows)
    found = api.audit(manifests.write(tmp_path, manifest), dataset=str(dataset), verifier="exact", offline=True)
    assert found.findings.not_checked == {}
    told = {name: found.findings.found[name].members for name in ("too_long", "truncated")}
    assert told == {"too_long": {2}, "truncated": {1}}
    assert "the answer has 64 tokens" in found.findings.found["too_long"].examples[0]["detail"]


def test_rows_that_training_does_not_take_are_not_audited(tmp_path: Path) -> None:
    rows = [{"instruction": f"As JSON: {n}.", "output": "1" if n % 2 else "{"} for n in range(8)]
    manifest = manifests.small()
    manifest["training"]["dataset"]["filters"] = {"deduplicate": "answer"}
    dataset = write(tmp_path / "rows.jsonl", rows)
    found = api.audit(manifests.write(tmp_path, manifest), dataset=str(dataset), verifier="json", offline=True)
    assert [row.answer for row in found.rows] == ["{", "1"]
    assert found.findings.found["does_not_run"].members == {0}


def test_queries_of_postgresql_are_not_run(tmp_path: Path) -> None:
    manifest = manifests.small()
    manifest["training"]["decoding"] = {"grammar_type": "sql-postgres"}
    dataset = write(tmp_path / "rows.jsonl", [{"instruction": "All?", "input": SCHEMA, "output": "SELECT id::text"}])
    found = api.audit(manifests.write(tmp_path, manifest), dataset=str(dataset), verifier="sql", offline=True)
    assert (found.errors, found.findings.ran, [*found.findings.not_run.values()]) == (0, 0, [1])


def test_a_row_is_counted_once_by_a_check_and_examples_are_of_different_groups() -> None:
    findings = Findings()
    for row, group in ((0, "a"), (0, "a"), (1, "a"), (2, "b")):
        findings.add("empty_result", row, f"f.jsonl:{row}", "no rows", "SELECT", group)
    found = findings.found["empty_result"]
    assert (found.members, found.groups) == ({0, 1, 2}, {"a": 2, "b": 1})
    assert [example["line"] for example in found.examples] == [0, 2]
    findings.add("leak", 7, "a parquet file:row 3", "of a case", "x" * 1000)
    assert findings.found["leak"].examples[0]["file"] == "a parquet file"
    assert len(findings.found["leak"].examples[0]["text"]) == 200


def test_a_part_of_the_rows_is_evenly_spread(tmp_path: Path) -> None:
    rows = [{"instruction": f"As JSON: {n}.", "output": str(n)} for n in range(100)]
    found, _ = audited(tmp_path, rows, [], limit=4, verifier="json")
    assert [row.answer for row in found.rows] == ["12", "37", "62", "87"]
    assert found.as_json()["rows"] == 4


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ({"limit": 0}, "--limit 0: must be 1 or more"),
        ({"databases": "gone"}, "gone: no such folder"),
        ({"verifier": "cobol"}, "--verifier cobol: there is none"),
        ({"cases": ["gone.jsonl"]}, "gone.jsonl: No such file"),
    ],
)
def test_wrong_input(tmp_path: Path, more: dict[str, Any], told: str) -> None:
    manifest = manifests.write(tmp_path, manifests.small())
    dataset = write(tmp_path / "rows.jsonl", [{"instruction": "As JSON: 1.", "output": "1"}])
    with pytest.raises(InputError, match=told):
        api.audit(manifest, dataset=str(dataset), offline=True, **more)
    with pytest.raises(InputError, match="there are no rows"):
        api.audit(manifest, dataset=str(write(tmp_path / "empty.jsonl", [])), offline=True)
