"""The committed rows of expert-typescript are those the script makes, parse, run, and fail where they are wrong."""

from __future__ import annotations

import json
import re
from collections import Counter

import pytest

from datagen.common.dataset_files import side_of
from datagen.json.domain_table import DOMAINS
from datagen.json.domains import parse_domains
from datagen.typescript import make as maker
from datagen.typescript.case import UNDEFINED, Throws, a_map, a_set, assertions, literal, pascal
from datagen.typescript.check import failures
from datagen.typescript.small_domains import DOMAINS as SMALL_DOMAINS

BUILT = maker.build()[0]
TRAIN, VALID = maker.sides(BUILT, Counter()).values()
CASES = TRAIN + VALID
EVERY = 8


def rows_of(name: str) -> list[dict[str, str]]:
    return [json.loads(line) for line in (maker.OUTPUT / name).read_text(encoding="utf-8").splitlines()]


def test_the_files_hold_the_rows_the_script_makes() -> None:
    assert rows_of("train.jsonl") == maker.rows_of(TRAIN, "train")
    assert rows_of("valid.jsonl") == maker.rows_of(VALID, "valid")
    assert len(TRAIN) >= 1400
    assert len(VALID) >= 140


@pytest.mark.parametrize("family", maker.FAMILIES)
def test_a_family_gives_groups_to_every_side_and_no_group_stands_on_two(family: str) -> None:
    sides = [
        {case.group for case in BUILT[family] if side_of(case.group) == side} for side in ("train", "valid", "cases")
    ]
    assert all(sides)
    assert len(set.union(*sides)) == sum(map(len, sides))


def test_more_than_half_of_the_rows_are_about_the_objects_of_the_cases_and_every_small_one_has_some() -> None:
    for family, (_, count, _valid) in maker.FAMILIES.items():
        known = [case for case in BUILT[family] if case in TRAIN]
        assert len(known) == (count if family == "pipelines" else round(0.55 * count))
    text = " ".join(case.output for case in TRAIN)
    small = parse_domains(SMALL_DOMAINS)
    assert len(small) >= 30
    assert [d.noun for d in small if len(re.findall(rf"\b{pascal(d)}\b", text)) < 5] == []
    assert len(TRAIN) <= 1900


def test_no_held_out_prompt_or_answer_stands_in_train() -> None:
    assert not {case.instruction for case in TRAIN} & {case.instruction for case in VALID}
    assert not {case.output for case in TRAIN} & {case.output for case in VALID}


def test_every_eighth_row_passes_the_type_check_and_its_own_test() -> None:
    rows = [case.row() for case in CASES[::EVERY]]
    assert failures(rows) == [None] * len(rows)


def test_rows_are_short() -> None:
    sizes = sorted(len(case.instruction) + len(case.output) for case in CASES)
    assert sizes[-1] <= 1000
    assert sizes[len(sizes) * 95 // 100] < 700


@pytest.mark.parametrize("family", list(maker.FAMILIES))
def test_two_runs_make_the_same_rows_and_another_seed_makes_others(family: str) -> None:
    domains = parse_domains(DOMAINS)
    first, second, other = (maker.make(family, domains, 30, seed, Counter()) for seed in (3, 3, 4))
    assert first == second
    assert first != other


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("% 2 === 0", "% 2 !== 0"),
        (".filter(", ".slice(0, 0).filter("),
        (".sort(", ".slice(0, 0).sort("),
        ("+ 1", "+ 2"),
        (" === ", " !== "),
    ],
)
def test_an_answer_damaged_on_purpose_fails_its_own_test(old: str, new: str) -> None:
    rows = [case.row() for case in TRAIN if case.output.count(old) == 1][:3]
    assert rows
    damaged = [{"output": row["output"].replace(old, new), "test": row["test"]} for row in rows]
    assert all(failures(damaged))


def test_values_become_typescript() -> None:
    assert literal({"a": [1, 2.0, 2.5], "b c": None, "d": True}) == '{ a: [1, 2, 2.5], "b c": null, d: true }'
    assert literal(a_map({"x": 1})) == 'new Map([["x", 1]])'
    assert literal(a_set([])) == "new Set()"
    assert assertions([("f()", UNDEFINED), ("g()", [1]), ("h()", Throws())]) == "\n".join([
        'import { deepStrictEqual, throws } from "node:assert";',
        'if (f() !== undefined) throw new Error("check 1 failed");',
        "deepStrictEqual(g(), [1]);",
        "throws(() => h(), Error);",
    ])  # fmt: skip
