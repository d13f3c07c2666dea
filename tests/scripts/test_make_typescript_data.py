"""The committed rows of expert-typescript are those the script makes, parse, run, and fail where they are wrong."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import make_typescript_data as maker
import pytest
from json_domain_table import DOMAINS
from json_domains import parse_domains
from typescript_case import UNDEFINED, Throws, a_map, a_set, assertions, literal
from typescript_check import compiler, failures, parses

CASES = maker.build()[0]
PACKAGE = compiler(fetch=False)
runs = pytest.mark.skipif(
    PACKAGE is None, reason="answers were only parsed: node or the npm package typescript is missing"
)
EVERY = 8


def rows_of(name: str) -> list[dict[str, str]]:
    return [json.loads(line) for line in (maker.OUTPUT / name).read_text(encoding="utf-8").splitlines()]


TRAIN, VALID = rows_of("train.jsonl"), rows_of("valid.jsonl")


def run(output: str, test: str) -> str | None:
    assert isinstance(PACKAGE, Path)
    return failures([{"output": output, "test": test}], PACKAGE)[0]


def test_the_files_hold_the_rows_the_script_makes() -> None:
    assert maker.split_cases(CASES) == (TRAIN, VALID)
    assert len(TRAIN) >= 1500
    assert len(VALID) >= 150
    assert {tuple(row) for row in TRAIN + VALID} == {("instruction", "output", "test")}


def test_every_family_gives_rows_to_both_sides() -> None:
    family = {case.output: case.family for case in CASES}
    assert len(family) == len(CASES)
    assert {family[row["output"]] for row in TRAIN} == {family[row["output"]] for row in VALID}


def test_no_held_out_group_prompt_or_answer_stands_in_train() -> None:
    group = {case.output: case.group for case in CASES}
    assert not {group[row["output"]] for row in TRAIN} & {group[row["output"]] for row in VALID}
    for column in ("instruction", "output"):
        assert not {row[column] for row in TRAIN} & {row[column] for row in VALID}


def test_every_committed_row_parses_again() -> None:
    for row in TRAIN + VALID:
        assert parses(row["output"])
        assert parses(f"{row['output']}\n{row['test']}")


@runs
def test_every_eighth_committed_row_passes_the_type_check_and_its_own_test() -> None:
    assert isinstance(PACKAGE, Path)
    rows = (TRAIN + VALID)[::EVERY]
    assert failures(rows, PACKAGE) == [None] * len(rows)


def test_rows_are_short() -> None:
    sizes = sorted(len(row["instruction"]) + len(row["output"]) for row in TRAIN + VALID)
    assert sizes[-1] <= 1800
    assert sizes[len(sizes) * 95 // 100] < 1300


@pytest.mark.parametrize("family", list(maker.FAMILIES))
def test_two_runs_make_the_same_rows_and_another_seed_makes_others(family: str) -> None:
    domains = parse_domains(DOMAINS)
    first, second, other = (maker.make(family, domains, 30, seed, Counter()) for seed in (3, 3, 4))
    assert first == second
    assert first != other


def test_an_answer_that_does_not_parse_is_refused() -> None:
    case = CASES[0]
    assert maker.verify(case) is None
    assert maker.verify(replace(case, output=case.output + "\n}")) == "the answer or its test does not parse"
    assert maker.verify(replace(case, test="if (")) == "the answer or its test does not parse"
    assert maker.verify(replace(case, test="")) == "nothing is tested"
    assert maker.verify(replace(case, output=case.output + "\n" + "// x\n" * 400)) == "too long"


@runs
@pytest.mark.parametrize(
    ("output", "test", "reason"),
    [
        ("const two = (): number => 2;", "if (two() !== 2) throw new Error('no');", None),
        ("const two = (): number => 3;", "if (two() !== 2) throw new Error('no');", "test: no"),
        ("const two = (): number => '2';", "two();", "type check: Type 'string' is not assignable to type 'number'."),
        ("const spin = (): void => { for (;;) {} };", "spin();", "test: Script execution timed out after 2000ms"),
        ("async function f(): Promise<number> { return 3; }",
         "(async () => {\n  if (await f() !== 2) throw new Error('late');\n})();", "test: late"),
        ("const wait = (): Promise<void> => new Promise(() => {});", "(async () => {\n  await wait();\n})();",
         "test: time limit"),
    ],
)  # fmt: skip
def test_the_runner_tells_right_from_wrong(output: str, test: str, reason: str | None) -> None:
    assert run(output, test) == reason


@runs
@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("% 2 === 0", "% 2 !== 0"),
        (".filter(", ".slice(0, 0).filter("),
        (".sort(", ".slice(0, 0).sort("),
        ("+ 1", "+ 2"),
        ("true", "false"),
    ],
)
def test_an_answer_damaged_on_purpose_fails_its_own_test(old: str, new: str) -> None:
    rows = [row for row in TRAIN if row["output"].count(old) == 1][:3]
    assert rows
    assert isinstance(PACKAGE, Path)
    damaged = [{"output": row["output"].replace(old, new), "test": row["test"]} for row in rows]
    assert all(failures(damaged, PACKAGE))


def test_values_become_typescript() -> None:
    assert literal({"a": [1, 2.0, 2.5], "b c": None, "d": True}) == '{ a: [1, 2, 2.5], "b c": null, d: true }'
    assert literal(a_map({"x": 1})) == 'new Map([["x", 1]])'
    assert literal(a_set([])) == "new Set()"
    assert assertions([("f()", UNDEFINED), ("g()", [1]), ("h()", Throws())]) == "\n".join([
        'import { deepStrictEqual, throws } from "node:assert";',
        'if (f() !== undefined) throw new Error("check 1 failed");',
        "deepStrictEqual(g(), [1]);",
        "throws(() => h());",
    ])  # fmt: skip
