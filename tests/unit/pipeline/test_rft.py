"""Rounds without a model: what is held back to judge them, and which answers are trained."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from expert_cli.config.plan import make_plan
from expert_cli.config.resolve import Overrides, missing_data
from expert_cli.errors import InputError
from expert_cli.evaluation.cases import EvalCase, read_cases
from expert_cli.evaluation.grade import NOTHING
from expert_cli.evaluation.verifiers.case import FORGED
from expert_cli.manifest.keys.rft import RftConfig
from expert_cli.pipeline.rounds import parted, read_prompts, row_of, select
from expert_cli.utils.reporter import NullReporter
from tests import manifests, tiny
from tests.machines import CPU
from tests.train.projects import Told, write_rows
from tests.train.rft_project import PROMPTS, prompt

SETTINGS = RftConfig(Path("p"), 2, 3, 0.8, 2, "failed", 0.0, "base", True, 0.25, None, None)
ROW: dict[str, Any] = {"verifier": "json", "schema": None, "expected": {"a": 1}, "rule": "exact", "prompt": "?"}


def query(number: int, *databases: str) -> dict[str, Any]:
    named = list(databases) if len(databases) > 1 else databases[0]
    case = {"id": f"q{number}", "verifier": "sql", "database": named, "expected": "SELECT 1"}
    return {**case, "prompt": f"Rows {number}?"}


def settings_of(
    folder: Path, rows: Sequence[dict[str, Any]], held: Sequence[dict[str, Any]] = (), share: float = 0.25
) -> RftConfig:
    """Write prompts, held-back cases and the databases that they name."""
    for one in (*rows, *held):
        named = one.get("database", [])
        for name in [named] if isinstance(named, str) else named:
            with closing(sqlite3.connect(folder / name)) as database:
                database.execute("CREATE TABLE IF NOT EXISTS t (a)")
    prompts = write_rows(folder / "prompts.jsonl", rows)
    judge = write_rows(folder / "judge.jsonl", held) if held else None
    return replace(SETTINGS, prompts=prompts, held_back=share, held_back_cases=judge)


def test_no_database_has_prompts_on_both_sides(tmp_path: Path) -> None:
    sampled, held, told = parted(settings_of(tmp_path, [query(n, f"d{n % 6}") for n in range(24)], share=0.34), 42)
    assert not {str(one.file) for one in sampled} & {str(one.file) for one in held}
    assert told == {"prompts": 8, "parts": 2, "of": 6, "by": "files that prompts are judged on"}


def test_categories_part_prompts_that_name_no_file_or_are_judged_by_one_program(tmp_path: Path) -> None:
    sampled, held, told = parted(settings_of(tmp_path, PROMPTS), 42)
    assert told == {"prompts": 16, "parts": 2, "of": 8, "by": "categories of prompts"}
    assert not {one.case.category for one in sampled} & {one.case.category for one in held}
    (tmp_path / "judge.py").touch()
    rows = [{**one, "verifier": "command", "command": "judge.py"} for one in PROMPTS]
    assert parted(settings_of(tmp_path, rows), 42)[2] == told
    with pytest.raises(InputError, match="all prompts have the same file and category, so none can be held back"):
        parted(settings_of(tmp_path, [query(0, "a"), query(1, "a")]), 42)


def test_held_back_cases_of_a_file_judge_what_shares_no_database(tmp_path: Path) -> None:
    rows = [query(0, "a"), query(1, "b")]
    with pytest.raises(InputError, match=r"1 of 2 held-back cases are on files of prompts: .*judge\.jsonl:2"):
        parted(settings_of(tmp_path, rows, [query(7, "c"), query(8, "b", "d")]), 42)
    sampled, held, told = parted(settings_of(tmp_path, rows, [query(7, "c")]), 42)
    assert ([one.id for one in sampled], [one.id for one in held]) == (["q0", "q1"], ["q7"])
    assert (told["parts"], told["of"]) == (1, 3)


def test_prompts_that_an_evaluation_asks_are_refused_by_name(tmp_path: Path) -> None:
    manifest = manifests.small(method="rft")
    manifest["training"]["rft"] = {"prompts": "prompts.jsonl", "held_back": "judge.jsonl"}
    plan = make_plan(manifests.write(tmp_path, manifest), CPU, Overrides())
    assert [line for line in missing_data(plan.run) if "judge.jsonl: no such file; training.rft.held_back" in line]
    python = {"verifier": "python", "tests": "f()", "prompt": "Write f.", "category": "code"}
    settings = settings_of(tmp_path, [*PROMPTS, python], [prompt(200) | {"category": "apart"}])
    told = Told()
    read_prompts(plan, settings, NOTHING, told)
    assert told.warnings == [FORGED]
    write_rows(plan.own_cases, [prompt(103) | {"prompt": "which  number is 103?"}, prompt(7)])
    with pytest.raises(InputError, match=r"1 of 66 prompts are cases of .*prompts\.jsonl:4 asks what .*cases\.jsonl:1"):
        read_prompts(plan, settings, NOTHING, NullReporter())
    plan.own_cases.unlink()
    (tmp_path / "judge.py").touch()
    rows = [{**one, "verifier": "command", "command": "judge.py"} for one in PROMPTS]
    with pytest.raises(InputError, match="judged by the program"):
        read_prompts(plan, settings_of(tmp_path, rows), NOTHING, NullReporter())
    settings = settings_of(tmp_path, PROMPTS, [prompt(100) | {"id": "same"}])
    with pytest.raises(InputError, match="1 of 64 prompts are held-back prompts, too"):
        read_prompts(plan, settings, NOTHING, NullReporter())


def chosen(
    case: EvalCase, *answers: tuple[str, bool], stop: str = "end", **settings: Any
) -> tuple[list[tuple[str, int | str]], dict[str, Any]]:
    """Return what is trained of one prompt, and the figures."""
    samples = [{"answer": text, "kind": "correct" if right else "wrong", "stop": stop} for text, right in answers]
    settings = {"samples": len(answers), **settings}
    drawn = {"answers": [{"samples": samples}]}
    found, figures = select([case], drawn, replace(SETTINGS, **settings))
    return [(one["answer"], one["sample"]) for one in found], figures


@pytest.fixture
def case(tmp_path: Path) -> EvalCase:
    return read_cases(write_rows(tmp_path / "p.jsonl", [ROW]))[0]


BOTH = (('{"a": 2}', False), ('{"a":1}', True), ('{"a": 1.0}', True), ('{"a": 1, "b": 2}', True), ('{"a": 3}', True))
GOLD = ('{"a": 1}', "expected")


def test_the_first_right_answers_that_differ_in_more_than_form_are_trained(case: EvalCase) -> None:
    found, figures = chosen(case, *BOTH)
    assert found == [('{"a":1}', 2), ('{"a": 1, "b": 2}', 4)]
    assert (figures["right"], figures["kept"], figures["expected"]) == (4, 2, 0)
    assert chosen(case, *BOTH, keep=1)[0] == [('{"a":1}', 2)]
    for stop in ("length", "looping"):
        assert chosen(case, *BOTH, stop=stop)[0] == [], "it was cut off"


def test_expected_answers_are_trained_where_they_are_asked_for(tmp_path: Path, case: EvalCase) -> None:
    wrong, right = ('{"b": 1}', False), ('{"b": 2}', True)
    found, figures = chosen(case, wrong, gold="failed")
    assert (found, figures["kept"], figures["expected"]) == ([GOLD], 0, 1)
    assert [chosen(case, wrong, right, gold=gold)[0] for gold in ("failed", "always", "never")] == [
        [('{"b": 2}', 2)],
        [('{"b": 2}', 2), GOLD],
        [('{"b": 2}', 2)],
    ]
    assert chosen(case, wrong, ('{"a":1}', True), gold="always")[0] == [('{"a":1}', 2)], "not twice"
    queries = read_cases(settings_of(tmp_path, [query(0, "a") | {"expected": "SELECT 1; SELECT 2;"}]).prompts)[0]
    assert chosen(queries, wrong, right, gold="always")[0][1] == ("SELECT 1", "expected"), "one of several"


def test_a_row_is_written_as_the_expert_is_asked(tmp_path: Path) -> None:
    one = read_cases(write_rows(tmp_path / "p.jsonl", [ROW | {"prompt": "How many?", "input": "a"}]))[0]
    template = tiny.template_for(tiny.tiny_tokenizer(), "")
    told = {"case": one.id, "sample": 2}
    assert row_of(one, "7", 2, template) == {"instruction": "How many?", "input": "a", "output": "7", **told}
    headed = replace(template, input_separator="\n\n### Schema:\n")
    row = {"instruction": "How many?", "schema": "b", "output": "7", **told}
    assert row_of(replace(one, shown="b"), "7", 2, headed) == row
