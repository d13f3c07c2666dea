"""Prompts are parted by what they are judged on, and none of them is one that an evaluation asks."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from expert_cli.config.plan import Plan, make_plan
from expert_cli.config.resolve import Overrides, missing_data
from expert_cli.errors import InputError
from expert_cli.evaluation.cases import read_cases
from expert_cli.evaluation.permissions import NOTHING
from expert_cli.manifest.keys.schema_prompt import SchemaPromptConfig
from expert_cli.pipeline.rft.prompts import BY_CATEGORY, BY_FILE, Prompts, _require_apart, beside, part, read_prompts
from expert_cli.utils.reporter import NullReporter
from tests import manifests
from tests.machines import CPU
from tests.train.rft_project import PROMPTS, prompt, write_rows


def query(number: int, *databases: str) -> dict[str, Any]:
    named = list(databases) if len(databases) > 1 else databases[0]
    return {
        "id": f"q{number}",
        "verifier": "sql",
        "prompt": f"Rows {number}?",
        "database": named,
        "expected": "SELECT 1",
    }


def queries(folder: Path, *named: tuple[str, ...]) -> Path:
    for name in {name for names in named for name in names}:
        with closing(sqlite3.connect(folder / name)) as database:
            database.execute("CREATE TABLE t (a)")
    return write_rows(folder / "prompts.jsonl", [query(n, *names) for n, names in enumerate(named)])


def planned(folder: Path, rows: list[dict[str, Any]], held_back: float | str = 0.25) -> Plan:
    manifest = manifests.small(method="rft")
    manifest["training"]["rft"] = {"prompts": "prompts.jsonl", "held_back": held_back}
    write_rows(folder / "prompts.jsonl", rows)
    return make_plan(manifests.write(folder, manifest), CPU, Overrides())


def parted(folder: Path, rows: list[dict[str, Any]], held_back: float | str = 0.25) -> Prompts:
    plan = planned(folder, rows, held_back)
    assert plan.run.rft is not None
    return read_prompts(plan, plan.run.rft, NOTHING, NullReporter())


@pytest.mark.parametrize("seed", range(5))
def test_no_database_has_prompts_on_both_sides(tmp_path: Path, seed: int) -> None:
    names = [(f"d{n % 6}.sqlite",) for n in range(24)]
    found = part(read_cases(queries(tmp_path, *names)), 0.34, seed)
    sides = [{str(one.file) for one in side} for side in (found.sampled, found.held_back)]
    assert not sides[0] & sides[1]
    assert (found.by, found.parts, found.held_parts, len(found.held_back)) == (BY_FILE, 6, 2, 8)


@pytest.mark.parametrize("seed", range(5))
def test_prompts_that_share_a_database_through_others_stay_together(tmp_path: Path, seed: int) -> None:
    names = [("a.sqlite",), ("b.sqlite", "a.sqlite"), ("c.sqlite", "b.sqlite"), ("d.sqlite",)]
    found = part(read_cases(queries(tmp_path, *names)), 0.5, seed)
    assert {one.id for one in found.held_back} in ({"q0", "q1", "q2"}, {"q3"})


def test_categories_part_prompts_that_name_no_file(tmp_path: Path) -> None:
    found = part(read_cases(write_rows(tmp_path / "p.jsonl", PROMPTS)), 0.25, 42)
    assert (found.by, found.parts, found.held_parts) == (BY_CATEGORY, 8, 2)
    assert len({one.case.category for one in found.held_back}) == 2


def test_prompts_of_one_database_and_category_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="all prompts share one file: none can be held back"):
        part(read_cases(queries(tmp_path, ("a.sqlite",), ("a.sqlite",))), 0.5, 42)


def test_a_round_asks_as_many_as_it_may_and_another_round_others(tmp_path: Path) -> None:
    found = part(read_cases(write_rows(tmp_path / "p.jsonl", PROMPTS)), 0.25, 42)
    first, second = (found.of_round(number, 10, 42) for number in (1, 2))
    assert len(first) == len(second) == 10
    assert first != second
    assert first == found.of_round(1, 10, 42)
    assert found.of_round(1, None, 42) == list(found.sampled)


def test_prompts_that_are_cases_of_the_expert_are_refused_by_name(tmp_path: Path) -> None:
    plan = planned(tmp_path, PROMPTS)
    write_rows(plan.own_cases, [prompt(103) | {"prompt": "which  number is 103?"}, prompt(7)])
    assert plan.run.rft is not None
    with pytest.raises(InputError, match=r"1 of 64 prompts are cases of .*prompts\.jsonl:4 asks what .*cases\.jsonl:1"):
        read_prompts(plan, plan.run.rft, NOTHING, NullReporter())


def test_prompts_that_are_held_back_under_another_category_are_refused(tmp_path: Path) -> None:
    held = parted(tmp_path, PROMPTS).held_back[0]
    rows = [
        *PROMPTS,
        json.loads(json.dumps(PROMPTS[0])) | {"id": "again", "prompt": held.prompt, "category": "world 1"},
    ]
    sampled = next(
        f"world {n}"
        for n in range(8)
        if f"world {n}" not in {one.case.category for one in parted(tmp_path, PROMPTS).held_back}
    )
    rows[-1]["category"] = sampled
    with pytest.raises(InputError, match="1 of 49 prompts are held-back prompts, too"):
        parted(tmp_path, rows)


def test_cases_of_a_file_judge_the_rounds_and_all_prompts_are_sampled(tmp_path: Path) -> None:
    write_rows(tmp_path / "judge.jsonl", [prompt(n) | {"category": "apart"} for n in range(200, 203)])
    found = parted(tmp_path, PROMPTS, "judge.jsonl")
    assert [one.id for one in found.sampled] == [row["id"] for row in PROMPTS]
    assert [one.id for one in found.held_back] == ["p200", "p201", "p202"]
    assert (found.by, found.parts, found.held_parts) == (BY_CATEGORY, 9, 1)


def test_cases_of_a_file_that_ask_what_a_prompt_asks_are_refused(tmp_path: Path) -> None:
    write_rows(tmp_path / "judge.jsonl", [prompt(100) | {"id": "same"}])
    with pytest.raises(InputError, match="1 of 64 prompts are held-back prompts, too"):
        parted(tmp_path, PROMPTS, "judge.jsonl")


def test_cases_of_a_file_on_a_database_of_the_prompts_are_refused_by_name(tmp_path: Path) -> None:
    queries(tmp_path, ("a.sqlite",), ("b.sqlite",), ("c.sqlite",))
    write_rows(tmp_path / "judge.jsonl", [query(7, "c.sqlite"), query(8, "d.sqlite", "b.sqlite")])
    rows = [query(0, "a.sqlite"), query(1, "b.sqlite")]
    with closing(sqlite3.connect(tmp_path / "d.sqlite")) as database:
        database.execute("CREATE TABLE t (a)")
    with pytest.raises(InputError, match=r"1 of 2 held-back cases are .*judge\.jsonl:2 is judged on .*b\.sqlite"):
        parted(tmp_path, rows, "judge.jsonl")
    write_rows(tmp_path / "judge.jsonl", [query(7, "c.sqlite")])
    found = parted(tmp_path, rows, "judge.jsonl")
    assert (found.by, found.parts, found.held_parts) == (BY_FILE, 3, 1)


def judged_by_a_program(number: int) -> dict[str, Any]:
    row = {"id": f"c{number}", "verifier": "command", "command": "judge.py", "expected": "7"}
    return {**row, "prompt": f"Which number is {number}?", "category": f"world {number % 4}"}


def test_a_program_that_judges_all_is_not_what_they_ask_about(tmp_path: Path) -> None:
    (tmp_path / "judge.py").write_text("", encoding="utf-8")
    rows = [judged_by_a_program(number) for number in range(8)]
    cases = read_cases(write_rows(tmp_path / "p.jsonl", rows))
    found = part(cases, 0.5, 42)
    assert (found.by, found.parts, found.held_parts) == (BY_CATEGORY, 4, 2)
    found = beside(cases[:4], cases[4:])
    assert (len(found.sampled), len(found.held_back), found.by) == (4, 4, BY_CATEGORY)
    assert found.files == [str(tmp_path / "judge.py")], "another program makes another run"


@pytest.mark.parametrize("tables", [("a", "b"), ("a", "a")], ids=["of another database", "of a copy of it"])
def test_the_same_question_about_another_database_that_is_shown_is_another_one(
    tmp_path: Path, tables: tuple[str, str]
) -> None:
    names = ["one.sqlite", "two.sqlite"]
    for name, table in zip(names, tables, strict=True):
        with closing(sqlite3.connect(tmp_path / name)) as database:
            database.execute(f"CREATE TABLE {table} (x)")
    rows = [{**query(number, name), "prompt": "How many rows?"} for number, name in enumerate(names)]
    cases = read_cases(write_rows(tmp_path / "prompts.jsonl", rows))
    prompts = Prompts((cases[0],), (cases[1],), BY_FILE, 2, 1)
    shown = prompts.shown(SchemaPromptConfig())
    if tables[0] != tables[1]:
        _require_apart(shown.sampled, shown.held_back, "held-back prompts")
        return
    with pytest.raises(InputError, match="1 of 1 prompts are held-back prompts, too"):
        _require_apart(shown.sampled, shown.held_back, "held-back prompts")


def test_a_file_that_is_not_there_is_told_with_its_key(tmp_path: Path) -> None:
    missing = missing_data(planned(tmp_path, PROMPTS, "nowhere.jsonl").run)
    assert [line for line in missing if "nowhere.jsonl: no such file; training.rft.held_back names it" in line]
