"""Spider's rows and databases become rows, prompts and cases; no database stands on both sides."""

from __future__ import annotations

import json
import sqlite3
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from datagen.spider import make_spider as maker
from expert_cli.evaluation.cases import read_cases

NAMES = ("city", "geo", "ship", "yelp", "zoo")
TABLE = "CREATE TABLE item (label TEXT)"


def read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


@pytest.fixture
def spider(tmp_path: Path) -> Path:
    """Five databases with one table each, and two questions about each, of which one runs."""
    folder = tmp_path / "spider"
    (folder / "databases").mkdir(parents=True)
    for name in NAMES:
        with closing(sqlite3.connect(folder / "databases" / f"{name}.sqlite")) as connection:
            connection.execute(TABLE)
            connection.execute("INSERT INTO item VALUES (CAST(x'ff' AS TEXT))")  # no UTF-8
            connection.commit()
    queries = ('SELECT  label FROM item WHERE label != "none" ;', "SELECT weight FROM item")
    row = {"question": " Which? ", "context": TABLE}
    rows = [row | {"db_id": name, "answer": query} for name in NAMES for query in queries]
    (folder / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return folder


def test_each_query_that_runs_is_on_one_side(spider: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(maker, "HELD_OUT", 1)
    output = tmp_path / "out"
    sides = []
    for without in ([], ["--without", "geo", "yelp"]):
        monkeypatch.setattr(sys, "argv", ["make_spider.py", str(spider), str(output), *without])
        maker.main()
        learned, asked, kept = (read(output / f"{name}.jsonl") for name in ("train", "prompts", "heldout"))
        assert [f"databases/{row['db_id']}.sqlite" for row in learned] == [case["database"] for case in asked]
        assert [row["answer"] for row in learned] == [case["expected"] for case in asked]
        sides.append([{case["id"].partition("-")[0] for case in cases} for cases in (asked, kept)])
    assert sides[0][0] | sides[0][1] == {*NAMES}
    assert len(sides[0][1]) == 1
    assert sides[1] == [sides[0][0] - {"geo", "yelp"}, sides[0][1]]
    assert {row["question"] for row in learned} == {"Which?"}


def test_a_case_is_judged_on_its_database_and_other_contents(
    spider: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(maker, "HELD_OUT", 1)
    monkeypatch.setattr(sys, "argv", ["make_spider.py", str(spider), str(tmp_path / "out")])
    maker.main()
    (case,) = read_cases(tmp_path / "out" / "heldout.jsonl")
    assert case.case.expected_text == "SELECT label FROM item WHERE label != 'none'"
    assert (case.case.model_dump()["perturb"], case.case.model_dump()["rule"]) == (maker.CONTENTS, "spider")
    assert {row["rule"] for row in read(tmp_path / "out" / "prompts.jsonl")} == {"strict"}
