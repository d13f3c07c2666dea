"""Every verifier is complete: a look at each, by the example that it carries."""

from __future__ import annotations

import json
import shutil
import sys
import types
from collections.abc import Iterator
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest

import expert_cli
from expert_cli.commands.evaluate import evaluate
from expert_cli.errors import EnvironmentProblem, InputError
from expert_cli.evaluation.cases import EvalCase, read_cases
from expert_cli.evaluation.evaluate import grade_kept
from expert_cli.evaluation.extract import extract
from expert_cli.evaluation.grade import Permissions, compare_with, grade, verdict_on
from expert_cli.evaluation.verifiers import registry
from expert_cli.evaluation.verifiers.registry import VERIFIERS
from expert_cli.utils.reporter import NullReporter
from tests.graders import database

ROOT = Path(__file__).parents[4]
each = pytest.mark.parametrize("verifier", VERIFIERS)


@pytest.fixture(autouse=True)
def files(tmp_path: Path) -> None:
    """What the examples name: a shop with three customers, people of whom one knows Ada, a program."""
    customers = "CREATE TABLE customers (id INTEGER); INSERT INTO customers VALUES (1), (5), (7);"
    database(tmp_path / "shop.sqlite", customers)
    people = "CREATE (:Person {name: 'Bob'})-[:KNOWS]->(:Person {name: 'Ada'});"
    shutil.copy(ROOT / "examples" / "command" / "judge.py", tmp_path)
    (tmp_path / "people.cypher").write_text(people, encoding="utf-8")


def asked(folder: Path, verifier: str, **more: Any) -> EvalCase:
    path = folder / "cases.jsonl"
    path.write_text(json.dumps({**VERIFIERS[verifier].example.row, "verifier": verifier, **more}), encoding="utf-8")
    (case,) = read_cases(path)
    return case


@each
def test_the_example_is_graded_and_told_from_another(verifier: str, tmp_path: Path) -> None:
    case, (_, right, wrong) = asked(tmp_path, verifier), VERIFIERS[verifier].example
    assert type(case.case) is VERIFIERS[verifier]
    assert (case.file is not None) == bool(case.case.file_names)
    assert [verdict_on(case, text, 10).kind for text in (right, wrong, " ")] == ["correct", "wrong", "empty"]
    texts = [extract(text, case.case.fences) for text in (right, f"{right}\n", wrong)]
    keys = [case.case.result_key(text, case.file, 10) for text in texts]
    assert keys[0] == keys[1] != keys[2]
    assert None not in keys
    expected = case.case.expected_text
    assert not expected or verdict_on(case, expected, 10).passed
    dummy = case.case.for_dummy(first=True)
    assert dummy is not None
    assert not dummy.verdict("x", case.file, 10).passed


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
    assert raised.value.hint == f"verifiers: {', '.join(registry.known_verifiers())}"


@each
def test_nobody_else_knows_it(verifier: str) -> None:
    name = VERIFIERS[verifier].__name__
    source = Path(expert_cli.__file__).parent
    known = {path.name for path in source.rglob("*.py") if name in path.read_text(encoding="utf-8")}
    assert known == {Path(VERIFIERS[verifier].__module__.replace(".", "/")).name + ".py", "registry.py"}


@each
def test_what_was_evaluated_can_be_compared_and_judged_again(verifier: str, tmp_path: Path) -> None:
    case, (_, right, wrong) = asked(tmp_path, verifier, input="the input"), VERIFIERS[verifier].example
    found = grade([case.answered(right)], NullReporter(), 10).telling(cases_file=str(tmp_path / "cases.jsonl"))
    (told,) = found.as_json()["answers"]
    assert told["question"] == {"prompt": case.prompt, "input": "the input"}
    assert told["expected"] == case.case.criterion != ""
    kept = tmp_path / "evaluation.json"
    kept.write_text(json.dumps(found.as_json()), encoding="utf-8")
    again = grade_kept(kept, None, None, NullReporter(), Permissions(commands=True, seconds=10))
    assert again.answers == found.answers
    fell = grade([case.answered(wrong)], NullReporter(), 10)
    drop = compare_with(kept, fell, 0.5, NullReporter())
    assert (drop["lost"], drop["held"]) == (1, False)


def test_the_help_of_evaluate_names_every_verifier() -> None:
    (line,) = [line for line in (evaluate.__doc__ or "").splitlines() if "Verifiers: " in line]
    assert line.strip().startswith(f"Verifiers: {', '.join(VERIFIERS)}.")


RHYMES = """
from expert_cli.evaluation.verifiers.case import Case, Grade

class RhymeCase(Case):
    fences = frozenset({"rhyme"})
    ends: str
    def grade(self, answer, file, timeout_s):
        return Grade("correct" if answer.endswith(self.ends) else "wrong", "")
"""


@pytest.fixture
def brought(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Entry points of packages: a verifier, one whose module is gone, one of a name of ours."""
    package = types.ModuleType("rhymes")
    exec(RHYMES, vars(package))  # noqa: S102
    monkeypatch.setitem(sys.modules, "rhymes", package)
    named = {"rhyme": "rhymes:RhymeCase", "broken": "rhymes.gone:Case", "sql": "rhymes:RhymeCase"}
    points = [EntryPoint(name, of, "") for name, of in named.items()]
    monkeypatch.setattr(
        registry, "entry_points", lambda group, name=None: [one for one in points if name in (None, one.name)]
    )
    registry.verifier.cache_clear()
    yield
    registry.verifier.cache_clear()


def judged_by(folder: Path, verifier: str) -> list[str]:
    text = json.dumps({"verifier": verifier, "ends": "oon", "prompt": "?"})
    (folder / "cases.jsonl").write_text(text, encoding="utf-8")
    (case,) = read_cases(folder / "cases.jsonl")
    return [verdict_on(case, answer, 1).kind for answer in ("moon", "sun", "```rhyme\nnoon\n```")]


@pytest.mark.usefixtures("brought")
def test_a_package_brings_a_verifier(tmp_path: Path) -> None:
    assert registry.known_verifiers() == [*VERIFIERS, "broken", "rhyme"]
    assert judged_by(tmp_path, "rhyme") == ["correct", "wrong", "correct"]
    assert type(asked(tmp_path, "sql").case) is VERIFIERS["sql"], "a name of ours stays ours"
    with pytest.raises(
        EnvironmentProblem, match=r"verifier broken \(rhymes.gone:Case\) cannot be loaded: ModuleNotFound"
    ):
        judged_by(tmp_path, "broken")
    with pytest.raises(InputError, match=r"cases\.jsonl:1: verifier: there is no 'sonnet'") as raised:
        judged_by(tmp_path, "sonnet")
    assert raised.value.hint.endswith("command, broken, rhyme")
