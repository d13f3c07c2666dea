"""The base model beside an expert: asked in its own template, with and without examples, never cut short, kept."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from expert_cli.config.plan import TrainedAdapter
from expert_cli.data.select import select_rows
from expert_cli.data.sources import locate_data
from expert_cli.data.templates.make_template import OWN
from expert_cli.errors import InputError
from expert_cli.evaluation.evaluate import NEW_TOKENS_OF_BASE as NEW_TOKENS
from expert_cli.evaluation.evaluate import Answering, _prompt, cases_of, drawn_shots, evaluate_adapter, write_answers
from expert_cli.evaluation.grade import NOTHING
from expert_cli.inference.expert import open_expert
from expert_cli.inference.expert_config import GenerationConfig
from expert_cli.inference.prompts import base_renderer
from expert_cli.model.tokenizer import load_tokenizer
from expert_cli.utils.reporter import NullReporter
from tests import tiny
from tests.schemas import valid
from tests.train.projects import SEVEN, Told, command, trained_in, write_rows


@pytest.fixture(scope="module")
def expert(trained_expert: Callable[..., Path]) -> Path:
    """TrainedAdapter with alpaca, on a base model whose own template is ChatML."""
    return trained_expert(template="alpaca", chat_template=OTHER)


OTHER = tiny.CHATML.replace("'\n' + message['content']", "'>' + message['content']").replace(
    "assistant\n'", "assistant>'"
)
"""Ends otherwise than alpaca: a model of random numbers repeats the last token, so it answers otherwise."""
assert "assistant>" in OTHER


@pytest.fixture(scope="module")
def by(expert: Path) -> TrainedAdapter:
    return trained_in(expert)


@pytest.fixture(scope="module")
def document(expert: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    args = ["--baseline", "--shots", "2", "--max-new-tokens", "8", "--json", "--output", str(expert / "kept.json")]
    done = command("evaluate", "--adapter", str(expert), *args)
    assert done.exit_code == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_the_base_model_is_asked_in_its_own_template(by: TrainedAdapter, document: dict[str, Any]) -> None:
    assert document["expert"]["template"] == "alpaca"
    assert document["baseline"]["template"] == document["few_shot"]["template"] == OWN
    expert = open_expert(by.plan.run, by.origin, NullReporter())
    renderer = base_renderer(by.plan.run, by.origin, expert.renderer.tokenizer)
    prompt = renderer.encode_prompt("Which number is 3?", "below")
    assert renderer.decode(prompt) == ("<|im_start|>user>Which number is 3?\n\nbelow<|im_end|>\n<|im_start|>assistant>")
    cases = cases_of(by.plan, None)
    settings = GenerationConfig(NEW_TOKENS, 16)
    with expert.model.disable_adapter():
        found = write_answers(expert.model, renderer, Answering("", cases, settings, NullReporter()))
    assert [one.row.answer for one in found.answers] == [row["answer"] for row in document["baseline"]["answers"]]


def test_its_answers_are_as_long_as_they_need(by: TrainedAdapter, document: dict[str, Any]) -> None:
    assert document["generation"]["max_new_tokens"] == 8
    for base in (document["baseline"], document["few_shot"]):
        assert base["generation"]["max_new_tokens"] == NEW_TOKENS
        assert base["generation"]["stops"] == []
    assert document["generation"]["stops"] == ["###"]
    (one,) = cases_of(by.plan, None, 1)
    long = [replace(one, case=one.case.model_copy(update={"expected": "x" * 2000}))]
    heard = Told()
    found = evaluate_adapter(by, long, GenerationConfig(8, 4), heard, NOTHING, shots=0)
    need = found.told["baseline"]["generation"]["max_new_tokens"] // 2
    assert need > NEW_TOKENS // 2


def test_examples_are_training_rows_as_turns(by: TrainedAdapter, document: dict[str, Any]) -> None:
    asked = cases_of(by.plan, None)
    shots = drawn_shots(by, 2, asked, NullReporter())
    rows = [SEVEN[int(where.rpartition(":")[2]) - 1] for where in document["few_shot"]["examples"]]
    assert document["few_shot"]["shots"] == len(rows) == 2
    renderer = base_renderer(by.plan.run, by.origin, load_tokenizer(Path(by.plan.run.model.name)))
    turns = [(row["instruction"], row["output"]) for row in rows]
    text = "".join(f"<|im_start|>user>{q}<|im_end|>\n<|im_start|>assistant>{a}<|im_end|>\n" for q, a in turns)
    question = f"<|im_start|>user>{asked[0].prompt}<|im_end|>\n<|im_start|>assistant>"
    assert renderer.decode(_prompt(renderer, asked[0].prompt, shots)) == text + question
    other = replace(by, plan=replace(by.plan, run=replace(by.plan.run, seed=7)))
    assert drawn_shots(other, 2, asked, NullReporter()) != shots


def test_no_example_is_a_cases_own_row(by: TrainedAdapter) -> None:
    first = [row.question[0] for row in drawn_shots(by, 4, [], NullReporter())]
    (asked,) = cases_of(by.plan, None, 1)
    own = [replace(asked, prompt=first[1])]
    assert [row.question[0] for row in drawn_shots(by, 3, own, NullReporter())] == [first[0], first[2], first[3]]
    assert len(drawn_shots(by, len(SEVEN) - 1, own, NullReporter())) == len(SEVEN) - 1
    with pytest.raises(InputError, match="too few training rows"):
        drawn_shots(by, len(SEVEN), own, NullReporter())


def test_held_out_rows_are_no_examples(by: TrainedAdapter) -> None:
    data = replace(by.plan.run.data, validation_share=0.5, seed=5)
    other = replace(by, plan=replace(by.plan, run=replace(by.plan.run, data=data)))
    trained = select_rows(data, locate_data(data, NullReporter()), NullReporter()).rows()
    shown = {row.question[0] for row in drawn_shots(other, len(SEVEN) // 2, [], NullReporter())}
    assert shown == {row.question[0] for row in trained}
    assert len(shown) == len(SEVEN) // 2


def test_stricter_cases_judge_kept_answers_again(expert: Path, document: dict[str, Any], tmp_path: Path) -> None:
    own = expert.parents[1] / "tests" / "cases.jsonl"
    rows = [json.loads(line) | {"expected": 8} for line in own.read_text(encoding="utf-8").splitlines()]
    stricter = write_rows(tmp_path / "stricter.jsonl", rows)
    args = ["evaluate", "--answers", str(expert / "kept.json"), "--cases", str(stricter), "--json"]
    again = json.loads(command(*args).stdout)
    assert (document["correct"], again["correct"]) == (6, 0)
    valid(document, "evaluate")
    assert [row["answer"] for row in again["answers"]] == [row["answer"] for row in document["answers"]]
    assert again["generation"] == document["generation"]
    stricter.write_text(stricter.read_text(encoding="utf-8").replace("number is 0", "figure is 0"), encoding="utf-8")
    told = str(command(*args).exception)
    assert "'n0' has no answer or no case, or its case has another question" in told
