"""Every verifier is complete: a look at each, by the example that it carries."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import expert_cli
from expert_cli.commands.evaluate import evaluate
from expert_cli.data.rows.columnar import Example
from expert_cli.errors import InputError
from expert_cli.evaluation.cases import EvalCase, read_cases
from expert_cli.evaluation.extract import extract
from expert_cli.evaluation.few_shot import NO_SHOTS, Shots
from expert_cli.evaluation.grade import grade, verdict_on
from expert_cli.evaluation.regrade import read_kept
from expert_cli.evaluation.result import Evaluated, compare_with
from expert_cli.evaluation.verifiers.registry import VERIFIERS
from expert_cli.utils.reporter import NullReporter

each = pytest.mark.parametrize("verifier", VERIFIERS)


@pytest.fixture(autouse=True)
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the examples name: a shop with three customers, people of whom one knows Ada, a program."""
    monkeypatch.delenv("NEO4J_URI", raising=False)
    with closing(sqlite3.connect(tmp_path / "shop.sqlite")) as connection:
        connection.executescript("CREATE TABLE customers (id INTEGER); INSERT INTO customers VALUES (1), (5), (7);")
    people = "CREATE (:Person {name: 'Bob'})-[:KNOWS]->(:Person {name: 'Ada'});"
    judge = "import json, sys; told = json.load(sys.stdin); "
    judge += "print(json.dumps({'correct': told['answer'] == told['case']['expected']}))"
    (tmp_path / "judge.py").write_text(judge, encoding="utf-8")
    (tmp_path / "people.cypher").write_text(people, encoding="utf-8")


def asked(folder: Path, verifier: str, **more: Any) -> EvalCase:
    path = folder / "cases.jsonl"
    path.write_text(json.dumps({**VERIFIERS[verifier].example.row, "verifier": verifier, **more}), encoding="utf-8")
    (case,) = read_cases(path)
    return case


@each
def test_the_example_is_graded(verifier: str, tmp_path: Path) -> None:
    case, (_, right, wrong) = asked(tmp_path, verifier), VERIFIERS[verifier].example
    assert type(case.case) is VERIFIERS[verifier]
    assert (case.file is not None) == bool(case.case.file_name)
    assert verdict_on(case.answered(right), 10).passed
    assert verdict_on(case.answered(wrong), 10).kind == "wrong"
    assert verdict_on(case.answered(" "), 10).kind == "empty"


@each
def test_the_expected_answer_is_right(verifier: str, tmp_path: Path) -> None:
    case = asked(tmp_path, verifier)
    text = case.case.expected_text
    assert case.case.is_expected(f" {text}\n")
    assert not case.case.is_expected(VERIFIERS[verifier].example.wrong)
    assert not text or verdict_on(case.answered(text), 10).passed
    NO_SHOTS.require_for([case])


@each
def test_a_dummy_answer_tells_what_can_be_graded(verifier: str, tmp_path: Path) -> None:
    case = asked(tmp_path, verifier)
    first = case.case.for_dummy(first=True)
    assert first is not None
    assert not first.grade("x", case.file, 10).passed


@each
def test_its_name_stands_behind_a_fence(verifier: str) -> None:
    fences = VERIFIERS[verifier].fences
    assert verifier in fences
    for mark in fences:
        assert mark == mark.lower()
        assert extract(f"So:\n```{mark.upper()}\nanswer\n```\n```\noutput\n```", fences) == "answer"


@pytest.mark.parametrize(
    ("name", "fault"), [("yaml", "there is no 'yaml'"), (None, "is missing"), (1, "there is no 1")]
)
def test_the_error_names_all(name: Any, fault: str, tmp_path: Path) -> None:
    (tmp_path / "cases.jsonl").write_text(json.dumps({"prompt": "p", "verifier": name}), encoding="utf-8")
    with pytest.raises(InputError, match=f"cases.jsonl:1: verifier: {fault}") as raised:
        read_cases(tmp_path / "cases.jsonl")
    assert raised.value.hint == f"verifiers: {', '.join(VERIFIERS)}"


@each
def test_a_key_too_many_is_named(verifier: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"cases\.jsonl:1: expcted: Extra inputs"):
        asked(tmp_path, verifier, expcted=1)


@each
def test_nobody_else_knows_it(verifier: str) -> None:
    name = VERIFIERS[verifier].__name__
    source = Path(expert_cli.__file__).parent
    known = {path.name for path in source.rglob("*.py") if name in path.read_text(encoding="utf-8")}
    assert known == {Path(VERIFIERS[verifier].__module__.replace(".", "/")).name + ".py", "registry.py"}


@each
def test_what_was_evaluated_can_be_compared_and_judged_again(verifier: str, tmp_path: Path) -> None:
    case, (_, right, wrong) = asked(tmp_path, verifier, input="the input"), VERIFIERS[verifier].example
    found = Evaluated(grade([case.answered(right)], NullReporter(), 10), {}, None, None, tmp_path / "cases.jsonl")
    (told,) = found.evaluation.as_json()["answers"]
    assert told["question"] == {"prompt": case.prompt, "input": "the input"}
    assert told["expected"] == case.case.criterion != ""
    kept = tmp_path / "evaluation.json"
    kept.write_text(json.dumps(found.as_json()), encoding="utf-8")
    again = read_kept(kept, None)
    assert again is not None
    assert again.judged(NullReporter(), 10, None)[0] == found.evaluation
    fell = Evaluated(grade([case.answered(wrong)], NullReporter(), 10), {}, None, None)
    assert (compare_with(kept, fell, 0.5).pairs.lost, compare_with(kept, fell, 0.5).held) == (1, False)


@each
def test_a_training_row_that_is_the_case_is_no_example_before_it(verifier: str, tmp_path: Path) -> None:
    case = asked(tmp_path, verifier, input="the input")
    other = Example("another question", "another input", "another answer", "f:1")
    own = [Example(case.prompt, "the  input", "whatever", "f:2")]
    own += [Example("in other words", "the input", case.case.expected_text, "f:3")] if case.case.expected_text else []
    assert Shots(1, (*own, other)).before(case) == [other]


def test_the_help_of_evaluate_names_every_verifier() -> None:
    (line,) = [line for line in (evaluate.__doc__ or "").splitlines() if "Verifiers: " in line]
    assert line.strip().startswith(f"Verifiers: {', '.join(VERIFIERS)}.")
