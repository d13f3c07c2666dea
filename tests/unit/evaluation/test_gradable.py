"""What cannot be judged is told before any model is loaded; commands and programs without walls only where that is allowed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from expert_cli import api
from expert_cli.errors import EnvironmentProblem, InputError
from expert_cli.evaluation import grade as judging
from expert_cli.evaluation.cases import EvalCase, read_cases
from expert_cli.evaluation.evaluate import check_gradable
from expert_cli.evaluation.grade import Permissions
from expert_cli.evaluation.verifiers.sandbox import child_process
from expert_cli.utils.reporter import NullReporter
from tests.graders import database
from tests.reporters import Heard

COMMAND = {"verifier": "command", "command": "judge.py"}
PYTHON = {"verifier": "python", "tests": "assert f(2) == 4"}
TYPESCRIPT = {"verifier": "typescript", "tests": "if (f(2) !== 4) throw new Error();"}
JSON = {"verifier": "json", "schema": None, "expected": 7, "rule": "exact"}
PROGRAM = {"verifier": "typescript", "tests": "if (f() !== 7) throw new Error();"}
PLAIN = {"verifier": "exact", "expected": "x"}


def rows(folder: Path, *cases: dict[str, Any], **more: Any) -> Path:
    (folder / "judge.py").write_text("open('ran', 'w')\nprint('{\"correct\": true}')", encoding="utf-8")
    path = folder / "rows.jsonl"
    path.write_text("".join(json.dumps({**case, **more}) + "\n" for case in cases), encoding="utf-8")
    return path


def test_a_command_is_run_only_where_it_is_allowed(tmp_path: Path) -> None:
    answers = rows(tmp_path, PLAIN, COMMAND, answer="x")
    with pytest.raises(InputError, match=r"rows\.jsonl:2: this case is judged by the program judge\.py") as raised:
        api.evaluate(answers=answers)
    assert raised.value.hint.endswith("--allow-commands")
    cases = read_cases(rows(tmp_path, PLAIN, COMMAND, prompt="?"))
    with pytest.raises(InputError, match=r"rows\.jsonl:2"):
        check_gradable(cases, NullReporter())
    assert not (tmp_path / "ran").exists()
    check_gradable(cases, NullReporter(), Permissions(commands=True, seconds=20))
    assert (tmp_path / "ran").exists()
    answers = rows(tmp_path, PLAIN, COMMAND, answer="x")
    assert api.evaluate(answers=answers, allow_commands=True, case_timeout_s=20).passed == [True, True]


@pytest.mark.parametrize("case", [PYTHON, TYPESCRIPT])
def test_programs_are_not_run_where_nothing_keeps_them_from_the_network(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: dict[str, Any]
) -> None:
    monkeypatch.setattr(judging, "standing_walls", lambda: ("limits", "files"))
    answers = rows(tmp_path, PLAIN, case, answer="x")
    with pytest.raises(EnvironmentProblem, match=r"rows\.jsonl:2: answers .*are programs, and this system") as raised:
        api.evaluate(answers=answers)
    assert raised.value.hint.endswith("--without-walls")
    heard = Heard()
    api.evaluate(answers=answers, without_walls=True, case_timeout_s=20, reporter=heard)
    assert (heard.warned, heard.said[0]) == (
        ["answers are programs, and this system cannot sandbox them (seccomp, network namespaces)"],
        "walls     limits, files around answers that are programs",
    )


@pytest.mark.parametrize("wall", ["syscalls", "namespaces"])
def test_either_wall_around_the_network_is_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wall: str) -> None:
    monkeypatch.setattr(judging, "standing_walls", lambda: (wall,))
    heard = Heard()
    Permissions().require(read_cases(rows(tmp_path, PYTHON, prompt="?")), heard)
    assert heard.said == [f"walls     {wall} around answers that are programs"]


def cases(folder: Path, *rows: dict[str, Any]) -> list[EvalCase]:
    database(folder / "shop.sqlite", "CREATE TABLE t AS SELECT 1 AS a")
    path = folder / "cases.jsonl"
    path.write_text("".join(json.dumps({"prompt": "?", **row}) + "\n" for row in rows), encoding="utf-8")
    return read_cases(path)


def query(text: str) -> dict[str, Any]:
    return {"verifier": "sql", "database": "shop.sqlite", "expected": text}


def test_a_faulty_expected_query_is_named_with_its_line(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"cases\.jsonl:2: the expected query fails .*no such column: b"):
        check_gradable(cases(tmp_path, query("SELECT a FROM t"), query("SELECT b FROM t")), NullReporter())


def test_a_missing_judge_of_programs_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child_process, "has_package", lambda package: package != "deno")
    with pytest.raises(EnvironmentProblem, match="the package deno, which runs answers, is not installed") as raised:
        check_gradable(cases(tmp_path, JSON, PROGRAM), NullReporter())
    assert raised.value.hint == 'pip install "expert-cli[evaluate]"'
