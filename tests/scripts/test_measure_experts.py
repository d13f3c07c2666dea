"""The commands that measure the experts are commands, and what they leave becomes the tables of the documents."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks import measure_experts as measured
from expert_cli import cli


def options(out: Path, **more: Any) -> argparse.Namespace:
    said = {"base_model": "smollm2", "limit": None, "max_steps": None, "real_limit": 300, "shots": 3}
    return argparse.Namespace(out=out, data=None, experts=list(measured.EXPERTS), **{**said, **more})


@pytest.mark.parametrize("more", [{}, {"limit": 2, "max_steps": 5}], ids=["all", "little"])
def test_every_command_is_one(tmp_path: Path, more: dict[str, int]) -> None:
    asked = options(tmp_path, **more)
    for name in measured.EXPERTS:
        train = measured.train_command(name, asked)
        files = measured.case_files(name, asked)
        assert set(files) == {"cases", "unseen"}
        for command in (train, *(measured.evaluate_command(name, key, path, asked) for key, path in files.items())):
            read = cli.command(command[0]).make_context(command[0], command[1:]).params
            for part in ("manifest", "dataset", "cases"):
                assert not read.get(part) or (measured.HERE / read[part]).is_file()
        assert measured.printed(train, tmp_path).count("OUT") == 1
    assert measured.limit_of("real", asked) == more.get("limit", 300)


def document(correct: int, base: int, shots: int) -> dict[str, Any]:
    def part(right: int) -> dict[str, Any]:
        return {"correct": right, "cases": 100, "ci95": [0.01, 0.02], "generation": {"cut_off": right}}

    base_model = {"baseline": part(base), "few_shot": {**part(shots), "shots": 3}}
    return {**part(correct), **base_model, "limit": None, "expert": {"adapter_sha256": "a" * 64}}


def test_the_tables_hold_what_the_documents_say(tmp_path: Path) -> None:
    rows = [
        measured.row_of(document(90, 1, 7), "sql", "cases", ["expert-cli train", "expert-cli evaluate"], 1.0),
        measured.row_of(document(40, 0, 6), "sql", "unseen", [], 1.0),
        measured.row_of(document(80, 2, 3), "neo4j", "cases", [], 1.0),
    ]
    assert measured.short_table(rows) == [
        "| expert | held-out | unseen world | real questions |",
        "|---|---|---|---|",
        "| SQL | **90**, 1, 7 of 100 | **40**, 0, 6 of 100 | not measured |",
        "| Cypher | **80**, 2, 3 of 100 | not measured | not measured |",
        "",
        "Right answers of the trained expert, and of the base model without examples and with 3.",
    ]
    share = "1.0 % (1.0 % to 2.0 %)"
    assert measured.long_table(rows)[2].startswith(f"| SQL | held-out | 1/100, {share} | 7/100, 7.0 %")
    assert measured.long_table(rows)[2].endswith("| 90, 1, 7 |")


def test_what_stands_in_the_results_is_not_measured_again(tmp_path: Path) -> None:
    row = measured.row_of(document(90, 1, 7), "sql", "cases", [], 1.0)
    (tmp_path / "results.jsonl").write_text(json.dumps(row) + "\n", encoding="utf-8")
    rows = measured.read(tmp_path / "results.jsonl")
    assert measured.same(rows, "sql", "cases", options(tmp_path)) == [row]
    assert measured.same(rows, "sql", "unseen", options(tmp_path)) == []
    assert measured.same(rows, "sql", "cases", options(tmp_path, limit=2)) == []
    assert measured.same(rows, "sql", "cases", options(tmp_path, shots=5)) == []
