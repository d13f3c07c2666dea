"""A block of answers is read as it was written, or not at all."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from expert_cli.errors import IntegrityError
from expert_cli.evaluation.answer import Generations
from expert_cli.evaluation.cases import read_cases
from expert_cli.pipeline.rft.sampling import RIGHT, _Block, _judge, _read, _whole
from tests.train.rft_project import write_rows

ANSWERS = ('a.b_key="x"', "a.b_key=b.id AND c.d_token=1", 'sort_key=f\n    return "y"', "caf\ud800")


@pytest.fixture
def block(tmp_path: Path) -> _Block:
    row = {"verifier": "exact", "expected": ANSWERS[0], "prompt": "Which?"}
    return _Block(read_cases(write_rows(tmp_path / "p.jsonl", [row])), tmp_path / "block-0001.jsonl", "k")


def test_answers_come_back_as_they_were_written(block: _Block) -> None:
    (case,) = block.prompts
    samples = tuple(case.answered(text, "end") for text in ANSWERS)
    written = Generations((replace(samples[0], samples=samples),), 4, 1.0, 0, 0, 0, "cpu", 1)
    assert _judge(block, written) == (4, 1)
    (drawn,) = _whole(block).drawn
    assert [one.answer for one in drawn.samples] == [*ANSWERS[:3], "caf?"]
    assert [one.is_right for one in drawn.samples] == [True, False, False, False]


def test_the_expected_answer_is_judged_with_the_others_and_its_verdict_kept(tmp_path: Path) -> None:
    whole = {"verifier": "json", "schema": {"required": ["b"]}, "expected": {"a": 1}, "prompt": "Which?"}
    rows = [{**whole, "rule": "subset", "id": "a"}, {**whole, "rule": "exact", "id": "b", "schema": None}]
    cases = read_cases(write_rows(tmp_path / "p.jsonl", rows))
    block = _Block(cases, tmp_path / "block-0001.jsonl", "k")
    answered = tuple(replace(one, samples=(one,)) for one in (case.answered("{}", "end") for case in cases))
    _judge(block, Generations(answered, 2, 1.0, 0, 0, 0, "cpu", 1))
    assert [one.expected for one in _whole(block).drawn] == ["invalid", RIGHT]


def test_answers_that_were_judged_on_other_files_are_judged_anew(block: _Block) -> None:
    (case,) = block.prompts
    answer = case.answered("no", "end")
    for noted, now, whole in (("f", "f", True), ("f", "g", False)):
        _judge(
            replace(block, judged_on=noted), Generations((replace(answer, samples=(answer,)),), 1, 1.0, 0, 0, 0, "c", 1)
        )
        assert (_read(replace(block, judged_on=now)) is not None) == whole


def test_a_block_that_is_not_as_it_was_written_is_no_block(block: _Block) -> None:
    assert _read(block) is None
    with pytest.raises(IntegrityError, match=r"block-0001\.jsonl is not as it was written"):
        _whole(block)
