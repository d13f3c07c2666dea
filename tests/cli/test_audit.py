"""`audit` as a user calls it: what it finds in rows with planted faults, how it ends."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import jsonschema_rs

from tests import manifests
from tests.train.projects import write_rows

ROOT = Path(__file__).parents[2]
TABLE = "CREATE TABLE shops (id, name, city)"
Cli = Callable[..., Any]


def row(question: str, answer: str) -> dict[str, str]:
    return {"question": question, "context": TABLE, "answer": answer}


def case(prompt: str, expected: str) -> dict[str, str]:
    return {"verifier": "sql", "database": "s.sqlite", "prompt": prompt, "input": TABLE, "expected": expected}


GOOD = [
    row("Which shops of all are in Oslo, by their ids?", "SELECT id FROM shops WHERE city = 'Oslo'"),
    row("Name them.", "SELECT name FROM shops"),
]
PLANTED = {
    "unreadable": row("Name the third shop of all.", ""),
    "does_not_run": row("Count the shops of the city.", "SELECT count(*) FROM shop"),
    "prompt_in_answer": row("Give every id there is.", "SELECT id FROM shops -- <|im_end|>"),
    "leak": row("How  many shops are there at all?", "SELECT count(id) FROM shops"),
    "duplicate": {**GOOD[0], "answer": GOOD[0]["answer"].upper()},
    "near_duplicate": {**GOOD[0], "question": f"Say: {GOOD[0]['question']}"},
}
CASES = [
    case("How many shops are there at all?", "SELECT count(*) FROM shops"),
    case("Which shop is in Rome?", "SELECT name FROM shops WHERE city = 'Rome'"),
    case("What is the mean?", "SELECT mean(id)"),
]


def test_planted_faults_are_found(cli: Cli, tmp_path: Path) -> None:
    manifests.write(tmp_path, manifests.small(max_seq_length=512))
    write_rows(tmp_path / "tests" / "cases.jsonl", CASES)
    with closing(sqlite3.connect(tmp_path / "tests" / "s.sqlite")) as database:
        database.executescript(f"{TABLE}; INSERT INTO shops VALUES (1, 'a', 'Oslo'), (2, 'b', 'Lima')")  # noqa: S608
    rows = write_rows(tmp_path / "rows.jsonl", [*GOOD, *PLANTED.values()])
    asked = ("audit", "-m", "manifest.json", "--dataset", "rows.jsonl", "--offline")
    done = cli(*asked, "--json")
    document = json.loads(done.out)
    schema = json.loads((ROOT / "docs" / "schemas" / "audit.schema.json").read_text(encoding="utf-8"))
    jsonschema_rs.validator_for(schema).validate(document)
    found = {name: check for name, check in document["checks"].items() if check["count"]}
    at = {name: [example["line"] for example in check["examples"]] for name, check in found.items()}
    planted = {name: [len(GOOD) + number] for number, name in enumerate(PLANTED, start=1)}
    assert at == planted | {"case_empty": [2], "case_fails": [3]}
    assert (done.code, document["errors"], document["warnings"]) == (5, 6, 2)
    told = cli(*asked)
    assert (told.code, told.err.splitlines()[-2]) == (5, "error: 6 errors in rows and cases")
    assert "answers of rows: 0 run, 7 only parsed, 0 not run" in told.out.splitlines()
    assert f"  {rows}:4: no such table: shop: " in told.out


def test_a_shipped_expert_has_no_errors(cli: Cli) -> None:
    folder = ROOT / "experts" / "expert-json"
    args = ("-m", folder / "manifest.json", "--dataset", folder / "datasets" / "train.jsonl", "--limit", 300)
    done = cli("audit", *args, "--offline", "--json")
    document = json.loads(done.out)
    assert (done.code, document["errors"], document["rows"], document["cases"]) == (0, 0, 300, 300)
    assert document["answers"] == {"ran": 300, "parsed": 0, "not_run": {}}
