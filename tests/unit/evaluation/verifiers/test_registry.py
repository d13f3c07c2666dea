"""Every verifier is complete: a look at each, by the example that it carries."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import expert_cli
from expert_cli.commands.evaluate import evaluate
from expert_cli.data.rows import RowExample
from expert_cli.errors import EnvironmentProblem, InputError
from expert_cli.evaluation.cases import EvalCase, read_cases
from expert_cli.evaluation.evaluate import NO_SHOTS, Shots, grade_kept
from expert_cli.evaluation.extract import extract
from expert_cli.evaluation.grade import Evaluated, Permissions, compare_with, grade, verdict_on
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
def test_the_example_is_graded(verifier: str, tmp_path: Path) -> None:
    case, (_, right, wrong) = asked(tmp_path, verifier), VERIFIERS[verifier].example
    assert type(case.case) is VERIFIERS[verifier]
    assert (case.file is not None) == bool(case.case.file_names)
    assert verdict_on(case.answered(right), 10).passed
    assert verdict_on(case.answered(wrong), 10).kind == "wrong"
    assert verdict_on(case.answered(" "), 10).kind == "empty"


@each
def test_the_example_gives_something_that_can_be_told_from_another(verifier: str, tmp_path: Path) -> None:
    case, (_, right, wrong) = asked(tmp_path, verifier), VERIFIERS[verifier].example
    keys = [
        case.case.result_key(extract(text, case.case.fences), case.file, 10) for text in (right, f"{right}\n", wrong)
    ]
    assert keys[0] == keys[1] != keys[2]
    assert None not in keys
    assert len({*keys}) == 2


@each
def test_the_expected_answer_is_right(verifier: str, tmp_path: Path) -> None:
    case = asked(tmp_path, verifier)
    text = case.case.expected_text
    assert case.case.is_expected(f" {text}\n")
    assert not case.case.is_expected(VERIFIERS[verifier].example.wrong)
    assert not text or verdict_on(case.answered(text), 10).passed
    assert NO_SHOTS.before(case) == []


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
    found = Evaluated(grade([case.answered(right)], NullReporter(), 10), {}, None, None, tmp_path / "cases.jsonl")
    (told,) = found.evaluation.as_json()["answers"]
    assert told["question"] == {"prompt": case.prompt, "input": "the input"}
    assert told["expected"] == case.case.criterion != ""
    kept = tmp_path / "evaluation.json"
    kept.write_text(json.dumps(found.as_json()), encoding="utf-8")
    again = grade_kept(kept, None, None, 10, NullReporter(), Permissions(commands=True))
    assert again.evaluation == found.evaluation
    fell = Evaluated(grade([case.answered(wrong)], NullReporter(), 10), {}, None, None)
    drop = compare_with(kept, fell, 0.5, NullReporter())
    assert (drop["lost"], drop["held"]) == (1, False)


@each
def test_a_training_row_that_is_the_case_is_no_example_before_it(verifier: str, tmp_path: Path) -> None:
    case = asked(tmp_path, verifier, input="the input")
    other = RowExample("another question", "another input", "another answer", "f:1")
    own = [RowExample(case.prompt, "the  input", "whatever", "f:2")]
    own += (
        [RowExample("in other words", "the input", case.case.expected_text, "f:3")] if case.case.expected_text else []
    )
    assert Shots(1, (*own, other)).before(case) == [other]


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
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """Installs packages with verifiers: a module and the metadata that pip writes."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def install(package: str, **points: str) -> None:
        (tmp_path / f"{package}.py").write_text(RHYMES, encoding="utf-8")
        metadata = tmp_path / f"{package}-1.0.dist-info"
        metadata.mkdir()
        (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n", encoding="utf-8")
        lines = "".join(f"{name} = {value}\n" for name, value in points.items())
        (metadata / "entry_points.txt").write_text(f"[expert_cli.verifiers]\n{lines}", encoding="utf-8")
        registry._brought.cache_clear()

    yield install
    registry._brought.cache_clear()
    for name in [name for name, module in sys.modules.items() if getattr(module, "__file__", None)]:
        if str(sys.modules[name].__file__).startswith(str(tmp_path)):
            del sys.modules[name]


def judged_by(folder: Path, verifier: str) -> list[str]:
    text = json.dumps({"verifier": verifier, "ends": "oon", "prompt": "?"})
    (folder / "cases.jsonl").write_text(text, encoding="utf-8")
    (case,) = read_cases(folder / "cases.jsonl")
    return [verdict_on(case.answered(answer), 1).kind for answer in ("moon", "sun", "```rhyme\nnoon\n```")]


def test_a_package_brings_a_verifier(tmp_path: Path, installed: Callable[..., None]) -> None:
    installed("rhymes_a", rhyme="rhymes_a:RhymeCase", broken="rhymes_a.gone:Case", other="rhymes_a:Grade")
    installed("rhymes_b", limerick="rhymes_b:RhymeCase")
    assert registry.known_verifiers() == [*VERIFIERS, "broken", "limerick", "other", "rhyme"]
    assert not {"rhymes_a", "rhymes_b"} & set(sys.modules), "nothing is loaded that no row names"
    assert judged_by(tmp_path, "rhyme") == judged_by(tmp_path, "limerick") == ["correct", "wrong", "correct"]
    for name, why in (("broken", "ModuleNotFoundError"), ("other", "TypeError: rhymes_a:Grade is no")):
        with pytest.raises(EnvironmentProblem, match=rf"the verifier {name} \(rhymes_a\S+\) cannot be loaded: {why}"):
            judged_by(tmp_path, name)
    with pytest.raises(InputError, match=r"cases\.jsonl:1: verifier: there is no 'sonnet'") as raised:
        judged_by(tmp_path, "sonnet")
    assert raised.value.hint.endswith("command, broken, limerick, other, rhyme")


def test_a_name_of_ours_stays_ours(tmp_path: Path, installed: Callable[..., None]) -> None:
    installed("rhymes_c", sql="rhymes_c:RhymeCase")
    assert type(asked(tmp_path, "sql").case) is VERIFIERS["sql"]
