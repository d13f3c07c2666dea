"""The committed rows of expert-json are those the script makes, verified again, and the verifier refuses wrong ones."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace

import pytest

from datagen.json import make as maker
from datagen.json.case import Case
from datagen.json.domain_table import DOMAINS
from datagen.json.domains import parse_domains

BUILT = maker.build()[0]
FAMILIES = list(maker.FAMILIES)


def rows_of(name: str) -> list[dict[str, str]]:
    return [json.loads(line) for line in (maker.OUTPUT / name).read_text(encoding="utf-8").splitlines()]


def cases_of(family: str, count: int = 90) -> list[Case]:
    return maker.make(family, parse_domains(DOMAINS), count, 7, Counter())


@pytest.mark.parametrize("side", ["train", "valid"])
def test_the_files_hold_the_rows_the_script_makes(side: str) -> None:
    parts = {family: maker.family_rows(family, BUILT[family], side) for family in FAMILIES}
    for family, rows in parts.items():
        assert len(rows) == (maker.TRAIN[family] if side == "train" else maker.VALID)
        assert rows_of(f"{family}/{side}.jsonl") == rows
    assert rows_of(f"{side}.jsonl") == maker.mixed(parts.values(), maker.SEED)


def test_every_committed_row_verifies_again() -> None:
    for family, cases in BUILT.items():
        known = {(case.instruction, case.input, case.output): case for case in cases}
        for row in rows_of(f"{family}/train.jsonl") + rows_of(f"{family}/valid.jsonl"):
            assert set(row) == {"instruction", "input", "output"}
            assert maker.verify(known[row["instruction"], row["input"], row["output"]]) is None


@pytest.mark.parametrize("family", FAMILIES)
def test_no_group_stands_on_two_sides(family: str) -> None:
    groups = [{case.group for case in maker.on_side(BUILT[family], side)} for side in ("train", "valid", "cases")]
    assert all(len(side) >= 25 for side in groups)
    assert len(set.union(*groups)) == sum(map(len, groups))


def test_rows_are_short() -> None:
    sizes = [sum(map(len, row.values())) for side in ("train", "valid") for row in rows_of(f"{side}.jsonl")]
    assert max(sizes) <= 1800
    assert sorted(sizes)[len(sizes) * 95 // 100] < 1300


def test_two_runs_make_the_same_rows_and_another_seed_makes_others() -> None:
    domains = parse_domains(DOMAINS)
    for family in FAMILIES:
        first, second, other = (maker.make(family, domains, 30, seed, Counter()) for seed in (3, 3, 4))
        assert first == second
        assert first != other


@pytest.mark.parametrize(
    ("family", "old", "new", "reason"),
    [
        ("generation", "}", "", "the answer does not parse"),
        ("generation", ": ", ': "?" ', "the answer does not parse"),
        ("extraction", "{", '{"more": 1, ', "the answer does not fit its schema"),
        ("repair", ":", " :", "the broken text parses or the answer is not the original"),
        ("schema", '"object"', '"objekt"', "the answer is no valid schema"),
    ],
)
def test_a_damaged_answer_is_refused(family: str, old: str, new: str, reason: str) -> None:
    case = next(case for case in cases_of(family) if case.output.startswith("{") and old in case.output)
    assert maker.verify(case) is None
    assert maker.verify(replace(case, output=case.output.replace(old, new, 1))) == reason


def test_a_value_the_text_does_not_state_is_refused() -> None:
    case = next(case for case in cases_of("extraction") if case.told)
    assert maker.verify(replace(case, input="Nothing to see.")) == "a value of the answer is not stated"


@pytest.mark.parametrize(
    ("text", "value", "stated"),
    [
        ("pages 320.", 320, True),
        ("pages 1320", 320, False),
        ("price 3.20", 3.2, False),
        ("costs 3.2 EUR", 3.2, True),
        ("costs 3.25 EUR", 3.2, False),
        ("on 9 March 2024", "2024-03-09", True),
        ("on 8 March 2024", "2024-03-09", False),
        ("by Zoë", "Zoë", True),
    ],
)
def test_stated_means_the_whole_value_stands_there(text: str, value: object, stated: bool) -> None:
    assert maker.states(text, value) is stated


def test_a_sound_text_is_no_repair_task() -> None:
    case = cases_of("repair", 1)[0]
    assert maker.verify(replace(case, input=case.output)) == "the broken text parses or the answer is not the original"


def test_a_schema_that_accepts_everything_or_nothing_is_refused() -> None:
    case = next(case for case in cases_of("schema") if case.output.startswith("{"))
    assert maker.verify(
        replace(case, output='{"type": ["object", "array", "string", "null", "number", "boolean"]}')
    ) == ("the schema accepts a counter-example")
    assert maker.verify(replace(case, output='{"enum": ["nothing like it"]}')) == "the schema refuses an example"
    assert maker.verify(replace(case, refuses=())) == "nothing to try the schema on"


def test_a_transformation_that_went_wrong_is_refused() -> None:
    case = cases_of("transformation")[0]
    assert maker.verify(replace(case, holds=False)) == "the second look disagrees or the task has no clear answer"


@pytest.mark.parametrize("text", ["NaN", '{"a": Infinity}', "[1,]", "{'a': 1}", ""])
def test_what_python_reads_but_json_forbids_does_not_parse(text: str) -> None:
    assert not maker.parses(text)
