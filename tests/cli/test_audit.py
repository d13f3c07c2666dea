"""`audit` as a user calls it: what it finds in rows with planted faults, how it ends."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

from tests import manifests

ROOT = Path(__file__).parents[2]
SCHEMA = ROOT / "docs" / "schemas" / "audit.schema.json"
TABLE = "CREATE TABLE shops (id, name, city)"
Cli = Callable[..., Any]


NUMBERS = ", ".join(["1"] * 700)


def row(question: str, answer: object, **more: object) -> dict[str, object]:
    return {"question": question, "context": TABLE, "answer": answer, **more}


GOOD = [
    row(f"Which shops are in city number {n * n}?", f"SELECT name FROM shops WHERE city = {n * n}")  # noqa: S608
    for n in range(12)
]
PLANTED = {
    "unreadable": row("Name the third shop of all.", ""),
    "does_not_run": row("Count the shops of the city.", "SELECT count(*) FROM shop"),
    "prompt_in_answer": row("Give every id there is.", "SELECT id FROM shops\n### Instruction:\nGive more"),
    "unclosed_fence": row("Give all names there are.", "```sql\nSELECT name FROM shops"),
    "too_long": row("List the ids of many shops.", f"SELECT name FROM shops WHERE id IN ({NUMBERS})"),  # noqa: S608
    "leak": row("How  many shops are there at all?", "SELECT count(id) FROM shops"),
}
CASES = [
    {"verifier": "sql", "database": "s.sqlite", "prompt": "How many shops are there at all?", "input": TABLE}
    | {"expected": "SELECT count(*) FROM shops"},
    {"verifier": "sql", "database": "s.sqlite", "prompt": "Which shop is in Rome?", "input": TABLE}
    | {"expected": "SELECT name FROM shops WHERE city = 'Rome'"},
    {
        "verifier": "sql",
        "database": "s.sqlite",
        "prompt": "What is the mean?",
        "input": TABLE,
        "expected": "SELECT mean(id)",
    },
]


@pytest.fixture
def expert(tmp_path: Path) -> Path:
    manifests.write(tmp_path, manifests.small(max_seq_length=512))
    (tmp_path / "tests").mkdir()
    (tmp_path / "databases").mkdir()
    for path in (tmp_path / "tests" / "s.sqlite", tmp_path / "databases" / "city.sqlite"):
        connection = sqlite3.connect(path)
        connection.executescript(f"{TABLE}; INSERT INTO shops VALUES (1, 'a', 'Oslo'), (2, 'b', 'Lima')")  # noqa: S608
        connection.close()
    lines(tmp_path / "tests" / "cases.jsonl", CASES)
    return tmp_path


def lines(path: Path, rows: object) -> None:
    path.write_text("".join(f"{json.dumps(one)}\n" for one in rows), encoding="utf-8")  # type: ignore[attr-defined]


def test_planted_faults_are_found(cli: Cli, expert: Path) -> None:
    (expert / "rows.jsonl").unlink(missing_ok=True)
    lines(expert / "rows.jsonl", [*GOOD, *PLANTED.values()])
    before = (expert / "rows.jsonl").read_bytes()
    done = cli("audit", "-m", "manifest.json", "--dataset", "rows.jsonl", "--offline", "--json")
    document = json.loads(done.out)
    jsonschema_rs.validator_for(json.loads(SCHEMA.read_text(encoding="utf-8"))).validate(document)
    assert done.code == 5
    found = {
        name: check for name, check in document["checks"].items() if check["severity"] == "error" and check["count"]
    }
    at = {name: [example["line"] for example in check["examples"]] for name, check in found.items()}
    planted = {name: [len(GOOD) + number] for number, name in enumerate(PLANTED, start=1)}
    # What goes on into another prompt, and a query of 700 numbers, are found by what they are; the first does not parse, too.
    assert at == planted | {"case_empty": [2], "case_fails": [3], "does_not_run": [14, 15]}
    assert document["errors"] == sum(check["count"] for check in found.values())
    assert (expert / "rows.jsonl").read_bytes() == before


def test_rows_on_their_database(cli: Cli, expert: Path) -> None:
    rows = [
        row("Which are in Rome?", "SELECT name FROM shops WHERE city = 'Rome'", db_id="city"),
        row("Which are in Oslo?", "SELECT name FROM shops WHERE city = 'Oslo'", db_id="city"),
        row("Which are in Oslo?", "SELECT name FROM shops WHERE id = 1", db_id="city"),
        row("Which are in Lima?", "SELECT name FROM shops WHERE city = 'Lima'", db_id="city"),
        row("Which are in Lima?", "SELECT name FROM shops WHERE city = 'Oslo'", db_id="city"),
        row("Which are far away?", "SELECT name FROM shops", db_id="moon"),
    ]
    lines(expert / "rows.jsonl", rows)
    args = ("--dataset", "rows.jsonl", "--databases", "databases", "--cases", "few.jsonl")
    lines(expert / "few.jsonl", [{**CASES[0], "database": "tests/s.sqlite"}])
    done = cli("audit", "-m", "manifest.json", *args, "--offline")
    assert done.code == 5
    assert done.err.splitlines()[-2:] == [
        "error: 2 errors in rows and cases",
        "  correct them, or take them out",
    ]
    told = done.out.splitlines()
    assert "answers of rows: 5 run, 1 only parsed, 0 not run" in told
    assert f"  {expert / 'rows.jsonl'}:1: no rows on city.sqlite" in told
    start = told.index("contradiction:")
    assert told[start + 1].startswith(f"  {expert / 'rows.jsonl'}:4: line 5 answers: SELECT name")


def test_a_shipped_expert_has_no_errors(cli: Cli) -> None:
    folder = ROOT / "experts" / "expert-json"
    args = ("-m", folder / "manifest.json", "--dataset", folder / "datasets" / "train.jsonl", "--limit", 300)
    done = cli("audit", *args, "--offline", "--json")
    document = json.loads(done.out)
    assert (done.code, document["errors"], document["rows"], document["cases"]) == (0, 0, 300, 300)
    assert document["answers"] == {"ran": 300, "parsed": 0, "not_run": {}}
