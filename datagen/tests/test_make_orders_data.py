"""The committed rows and cases of examples/orders are those the script makes, apart from each other and right."""

from __future__ import annotations

import json
from typing import Any

import jsonschema_rs
import pytest

from datagen.orders import make as orders


def committed(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (orders.HOME / name).read_text(encoding="utf-8").splitlines()]


@pytest.mark.parametrize(("name", "made"), [("train.jsonl", orders.rows), ("tests/cases.jsonl", orders.cases)])
def test_what_is_committed_is_what_the_script_makes(name: str, made: Any) -> None:
    assert committed(name) == made()


def test_no_row_has_the_buyer_of_a_case_with_its_item() -> None:
    def pairs(answers: list[dict[str, Any]]) -> set[tuple[str, str]]:
        return {(answer["buyer"], answer["item"]) for answer in answers}

    rows = [json.loads(row["output"]) for row in committed("train.jsonl")]
    assert not pairs(rows) & pairs([case["expected"] for case in committed("tests/cases.jsonl")])


def test_every_answer_is_said_in_its_sentence_and_matches_the_schema() -> None:
    schema = jsonschema_rs.validator_for(orders.SCHEMA)
    said = [(row["instruction"], json.loads(row["output"])) for row in committed("train.jsonl")]
    said += [(case["prompt"], case["expected"]) for case in committed("tests/cases.jsonl")]
    assert len({text for text, _ in said}) == len(said)
    for text, answer in said:
        schema.validate(answer)
        assert all(str(value) in text for value in answer.values())
