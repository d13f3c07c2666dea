"""Which answers of a prompt are trained."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from expert_cli.config.plan import Plan, make_plan
from expert_cli.config.resolve import Overrides
from expert_cli.data.columns import Columns
from expert_cli.errors import InputError
from expert_cli.evaluation.cases import EvalCase, Question, read_cases
from expert_cli.manifest.keys.rft import RftConfig
from expert_cli.manifest.keys.schema_prompt import SchemaPromptConfig
from expert_cli.pipeline.rft.sampling import Drawn, Sample, Sampled
from expert_cli.pipeline.rft.select import RowForm, _figures, _nothing_to_learn, keep, select
from expert_cli.pipeline.rft.work import RoundPaths
from tests import manifests, tiny
from tests.machines import CPU
from tests.train.projects import Told
from tests.train.rft_project import write_rows

SETTINGS = RftConfig(Path("p"), 2, 4, 0.8, 2, "failed", 0.0, "base", True, 0.15, None, None)
ROW: dict[str, Any] = {"verifier": "json", "schema": None, "expected": {"a": 1}, "rule": "exact", "prompt": "?"}


@pytest.fixture
def case(tmp_path: Path) -> EvalCase:
    return read_cases(write_rows(tmp_path / "p.jsonl", [ROW]))[0]


def drawn(case: EvalCase, *answers: tuple[str, bool], stop: str = "end") -> Drawn:
    return Drawn(case, tuple(Sample(text, "correct" if right else "wrong", stop) for text, right in answers))


def test_right_answers_that_differ_in_their_form_alone_are_one(case: EvalCase) -> None:
    found = drawn(case, ('{"a": 2}', False), ('{"a":1}', True), ('{"a": 1.0}', True), ('{"a": 1, "b": 2}', True))
    assert keep(found, SETTINGS, None).drawn == (1, 3)


def test_no_more_are_kept_than_asked_for_those_drawn_first(case: EvalCase) -> None:
    found = drawn(case, *((f'{{"a": {number}}}', True) for number in range(4)))
    assert keep(found, SETTINGS, None).drawn == (0, 1)


def test_where_none_are_kept_what_no_answer_got_right_is_trained_alone(case: EvalCase) -> None:
    settings, right, wrong = replace(SETTINGS, keep=0), drawn(case, ('{"a": 1}', True)), drawn(case, ("{}", False))
    found = [keep(one, settings, None) for one in (right, wrong)]
    assert [(one.drawn, one.gold) for one in found] == [((), ""), ((), case.case.expected_text)]
    half = drawn(case, ('{"a": 1}', True), ("{}", False))
    figures = _figures(Sampled((half,), 1, 1.0), [keep(half, settings, None)], None)
    assert _nothing_to_learn((half,), figures, settings).startswith("no prompt has wrong answers alone")


@pytest.mark.parametrize("stop", ["length", "looping"])
def test_a_right_answer_that_was_cut_off_is_not_kept(case: EvalCase, stop: str) -> None:
    assert keep(drawn(case, ('{"a": 1}', True), stop=stop), SETTINGS, None).drawn == ()


@pytest.mark.parametrize(
    ("gold", "right", "expected"),
    [("failed", False, True), ("failed", True, False), ("always", False, True), ("never", False, False)],
)
def test_the_expected_answer_is_trained_where_it_is_asked_for(
    case: EvalCase, gold: Any, right: bool, expected: bool
) -> None:
    found = keep(drawn(case, ('{"b": 1}', right)), replace(SETTINGS, gold=gold), None)
    assert found.gold == (case.case.expected_text if expected else "")


def test_an_expected_answer_that_is_kept_already_is_not_trained_twice(case: EvalCase) -> None:
    found = keep(drawn(case, ('{"a":1}', True)), replace(SETTINGS, gold="always"), None)
    assert (found.drawn, found.gold) == ((0,), "")


def test_a_row_is_written_as_the_expert_is_asked() -> None:
    template = tiny.template_for(tiny.tiny_tokenizer(), "")
    pairs, alone, talk = (
        RowForm(columns, template)
        for columns in (
            Columns("pair", instruction="q", input="schema", response="a"),
            Columns("pair", instruction="q", response="a"),
            Columns("messages", messages="messages"),
        )
    )
    asked, turn = Question("How many?", "CREATE TABLE t (a)"), template.user_turn("How many?", "CREATE TABLE t (a)")
    assert pairs.row(asked, "7") == {"q": "How many?", "schema": "CREATE TABLE t (a)", "a": "7"}
    assert alone.row(asked, "7") == {"q": turn, "a": "7"}
    said = talk.row(asked, "7")["messages"]
    assert [(one["role"], one["content"]) for one in said] == [("user", turn), ("assistant", "7")]


def test_an_expected_answer_that_its_judge_takes_for_wrong_is_not_trained(case: EvalCase) -> None:
    found = drawn(case, ("{}", False))
    assert keep(found, SETTINGS, None).gold == '{"a": 1}'
    assert keep(replace(found, expected="wrong"), SETTINGS, None).gold == ""


@dataclass(frozen=True)
class Here:
    """As much of a run in rounds as choosing needs."""

    plan: Plan
    settings: RftConfig
    report: Told
    output: Path

    def paths(self, number: int) -> RoundPaths:
        return RoundPaths(self.output, number)


def test_rows_are_what_was_answered_and_expected_answers_that_are_right(tmp_path: Path) -> None:
    text = {"verifier": "exact", "expected": 'a.b_key="x"', "prompt": "Which?"}
    part = {**ROW, "schema": {"required": ["b"]}, "rule": "subset", "prompt": "Which part?"}
    right, other = read_cases(write_rows(tmp_path / "p.jsonl", [text, part]))
    plan = make_plan(manifests.write(tmp_path, manifests.small()), CPU, Overrides())
    work: Any = Here(plan, SETTINGS, Told(), tmp_path)
    template = tiny.template_for(tiny.tiny_tokenizer(), "")
    form = RowForm(Columns("pair", instruction="q", response="a"), template)
    wrong = replace(drawn(other, ("{}", False), ("[]", False)), expected="schema")
    answered = (drawn(right, ('a.b_key="x"', True), ("no", False)), wrong)
    found = select(work, Sampled(answered, 1, 1.0), 1, form)
    rows = [json.loads(line) for line in work.paths(1).rows.read_text(encoding="utf-8").splitlines()]
    assert rows == [{"q": "Which?", "a": 'a.b_key="x"', "case": "1", "round": 1, "sample": 1}]
    assert (found.reason, found.figures["kept"], found.figures["expected"]) == ("", 1, 0)
    (told,) = work.report.warnings
    assert told.startswith("1 expected answer of 2 not trained: wrong by their own judge: ")
    assert told.endswith("p.jsonl:2: schema")
    nothing = select(work, Sampled((drawn(right, ("no", False), ("none", False)),), 1, 1.0), 2, form)
    assert nothing.reason
    assert (nothing.figures["kept"], nothing.figures["expected"]) == (0, 0)


def test_a_prompt_whose_database_no_row_can_name_is_refused_by_name(tmp_path: Path) -> None:
    for name in ("in/a.sqlite", "out/b.sqlite"):
        (tmp_path / name).parent.mkdir()
        with closing(sqlite3.connect(tmp_path / name)) as database:
            database.execute("CREATE TABLE t (a)")
    rows = [
        {"verifier": "sql", "id": name, "prompt": "?", "database": name, "expected": "SELECT 1"}
        for name in ("in/a.sqlite", "out/b.sqlite")
    ]
    within, without = read_cases(write_rows(tmp_path / "p.jsonl", rows))
    template = tiny.template_for(tiny.tiny_tokenizer(), "")
    shown = SchemaPromptConfig(databases=str(tmp_path / "in" / "{db}.sqlite"))
    columns = Columns("pair", instruction="q", response="a", database="db")
    RowForm(columns, template, shown).require_shown([within])
    RowForm(columns, template).require_shown([without])
    with_tables = replace(without, input="CREATE TABLE t (a)")
    RowForm(replace(columns, input="schema"), template, shown).require_shown([with_tables])
    with pytest.raises(InputError, match=r"p\.jsonl:2: rows cannot name .*out/b\.sqlite: .*databases is .*in/\{db\}"):
        RowForm(columns, template, shown).require_shown([within, without])
    with pytest.raises(InputError, match=r"p\.jsonl:1: rows cannot name .*: .*databases is not written"):
        RowForm(Columns("pair", instruction="q", response="a"), template, SchemaPromptConfig()).require_shown([within])


REASONS: dict[str, tuple[list[list[bool]], str, str]] = {
    "nothing is right": ([[False, False], [False, False]], "always", "none of 4 answers is right"),
    "all is right": ([[True, True], [True, True]], "failed", "all 4 answers are right"),
    "no prompt has both": ([[True, True], [False, False]], "never", "no prompt has some right answers"),
    "no prompt has both, with gold": ([[True, True], [False, False]], "failed", ""),
    "some have both": ([[True, False], [False, False]], "never", ""),
}


@pytest.mark.parametrize(("right", "gold", "reason"), REASONS.values(), ids=REASONS.keys())
def test_why_a_round_has_nothing_to_learn_from(case: EvalCase, right: list[list[bool]], gold: Any, reason: str) -> None:
    settings = replace(SETTINGS, gold=gold)
    found = tuple(drawn(case, *((f'{{"a": {n}}}', one) for n, one in enumerate(each))) for each in right)
    figures = _figures(Sampled(found, 1, 1.0), [keep(one, settings, None) for one in found], None)
    said = _nothing_to_learn(found, figures, settings)
    assert said.startswith(reason)
    assert bool(said) == bool(reason)
