"""Right and wrong answers to one prompt as pairs, which TRL's DPOTrainer trains on."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from expert_cli import api
from expert_cli.errors import InputError
from expert_cli.evaluation.cases import Answer, read_cases
from expert_cli.evaluation.grade import Evaluation, grade
from expert_cli.evaluation.trl import write_pairs
from expert_cli.evaluation.verifiers.case import Grade
from expert_cli.inference.expert_config import Stop
from expert_cli.utils.reporter import NullReporter
from tests.schemas import valid
from tests.tiny import tiny_model, tiny_tokenizer

CASE = {"verifier": "json", "schema": None, "expected": 1, "rule": "exact"}


def evaluation(folder: Path, *drawn: Sequence[str], stops: Sequence[Stop] = (), **more: Any) -> Evaluation:
    """Return the evaluation of cases whose right answer is 1, with these samples."""
    rows = [{**CASE, "prompt": f"Ask {n}", "id": f"c{n}", **more} for n in range(len(drawn))]
    (folder / "cases.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    answered = []
    for case, texts in zip(read_cases(folder / "cases.jsonl"), drawn, strict=True):
        ends = zip(texts, stops or ["end"] * len(texts), strict=True)
        answered.append(replace(case, answers=tuple(Answer(*one) for one in ends), is_sampled=True))
    return grade(answered, NullReporter(), 2)


def written(
    folder: Path, found: Evaluation, separator: str | None = "\n"
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    pairs = write_pairs(folder / "pairs.jsonl", found, separator)
    return pairs, [json.loads(line) for line in (folder / "pairs.jsonl").read_text(encoding="utf-8").splitlines()]


def texts(rows: Sequence[dict[str, Any]]) -> list[tuple[str, str]]:
    return [(row["chosen"][0]["content"], row["rejected"][0]["content"]) for row in rows]


def test_a_pair(tmp_path: Path) -> None:
    pairs, rows = written(tmp_path, evaluation(tmp_path, ["2", "1"], input="of this"))
    assert rows == [
        {
            "id": "c0",
            "prompt": [{"role": "user", "content": "Ask 0\nof this"}],
            "chosen": [{"role": "assistant", "content": "1"}],
            "rejected": [{"role": "assistant", "content": "2"}],
        }
    ]
    counts = {"pairs": 1, "prompts": 1, "all_right": 0, "none_right": 0}
    assert pairs == {"file": str(tmp_path / "pairs.jsonl"), **counts}


def test_a_pair_asks_with_what_the_model_was_shown(tmp_path: Path) -> None:
    found = evaluation(tmp_path, ["2", "1"], input="CREATE TABLE t (a)")
    (answer,) = found.answers
    shown = replace(answer, row=replace(answer.row, shown="t(a)"))
    (row,) = written(tmp_path, Evaluation((shown,)))[1]
    assert row["prompt"] == [{"role": "user", "content": "Ask 0\nt(a)"}]


def test_prompts_without_a_pair_are_counted(tmp_path: Path) -> None:
    pairs, rows = written(tmp_path, evaluation(tmp_path, ["1", " 1"], ["2", "3"], ["2", "1"], ["3", "3"]))
    assert [row["id"] for row in rows] == ["c2"]
    assert [pairs[name] for name in ("pairs", "prompts", "all_right", "none_right")] == [1, 1, 1, 2]


def test_different_answers_each_as_seldom_as_can_be_at_most_four_pairs(tmp_path: Path) -> None:
    few = written(tmp_path, evaluation(tmp_path, ["1", "2", "2", " 2 ", "1.0", "3", "4", "1"]))
    assert texts(few[1]) == [("1", "2"), ("1.0", "3"), ("1", "4")]
    (tmp_path / "pairs.jsonl").unlink()
    many = written(tmp_path, evaluation(tmp_path, ["1", *"23456789"]))
    assert texts(many[1]) == [("1", "2"), ("1", "3"), ("1", "4"), ("1", "5")]


def test_a_right_answer_that_did_not_end_is_not_chosen(tmp_path: Path) -> None:
    stops: list[Stop] = ["length", "looping", "end"]
    pairs, rows = written(tmp_path, evaluation(tmp_path, ["1", "1.0", "2"], stops=stops))
    assert (rows, pairs["none_right"]) == ([], 1)


def test_what_could_only_be_parsed_is_not_rejected(tmp_path: Path) -> None:
    found = evaluation(tmp_path, ["1", "2"])
    (one,) = found.answers
    found = Evaluation((replace(one, verdicts=(one.verdicts[0], Grade("parsed_only"))),))
    assert written(tmp_path, found)[1] == []


def test_what_is_refused(tmp_path: Path) -> None:
    one = evaluation(tmp_path, ["1"])
    with pytest.raises(InputError, match="needs several answers to a case"):
        write_pairs(tmp_path / "pairs.jsonl", one, "\n")
    with pytest.raises(InputError, match="does not say how a prompt and its input were joined"):
        write_pairs(tmp_path / "pairs.jsonl", evaluation(tmp_path, ["1", "2"], input="x"), None)
    assert not (tmp_path / "pairs.jsonl").exists()
    (tmp_path / "pairs.jsonl").write_text("mine", encoding="utf-8")
    refusals: list[Callable[[], object]] = [
        lambda: write_pairs(tmp_path / "pairs.jsonl", evaluation(tmp_path, ["1", "2"]), "\n"),
        lambda: api.evaluate(tmp_path, samples=2, write_pairs=tmp_path / "pairs.jsonl"),
        lambda: api.evaluate(answers=tmp_path / "none.jsonl", write_pairs=tmp_path / "pairs.jsonl"),
    ]
    for refused in refusals:
        with pytest.raises(InputError, match="it exists already"):
            refused()
    assert (tmp_path / "pairs.jsonl").read_text(encoding="utf-8") == "mine"
    for samples in (0, 1):
        with pytest.raises(InputError, match="--write-pairs goes with --samples of 2 or more"):
            api.evaluate(tmp_path, samples=samples, write_pairs=tmp_path / "new.jsonl")


def test_samples_that_were_kept_give_pairs(tmp_path: Path) -> None:
    facts = dict.fromkeys(("expert", "adapter", "base_model", "base_sha256", "quantization", "dtype", "template"), "x")
    facts |= {"adapter_sha256": "0" * 64, "input_separator": " | "}
    cases = tmp_path / "cases.jsonl"
    kept = evaluation(tmp_path, ["2", "1"], input="y").telling(expert=facts, cases_file=str(cases))
    (tmp_path / "kept.json").write_text(json.dumps(kept.as_json()), encoding="utf-8")
    found = api.evaluate(answers=tmp_path / "kept.json", write_pairs=tmp_path / "pairs.jsonl")
    document = found.as_json() | {"schema_version": 1, "command": "evaluate"}
    valid(document, "evaluate")
    told = {"file": str(tmp_path / "pairs.jsonl"), "pairs": 1, "prompts": 1, "all_right": 0, "none_right": 0}
    assert document["pairs"] == told
    (row,) = map(json.loads, (tmp_path / "pairs.jsonl").read_text(encoding="utf-8").splitlines())
    assert row["prompt"][0]["content"] == "Ask 0 | y"


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning")
def test_dpo_of_trl_trains_on_the_file(tmp_path: Path) -> None:
    trl = pytest.importorskip("trl")
    from datasets import load_dataset
    from peft import LoraConfig

    written(tmp_path, evaluation(tmp_path, ["2", "1", "3"], ["44", "1"]))
    rows = load_dataset("json", data_files=str(tmp_path / "pairs.jsonl"), split="train", cache_dir=str(tmp_path / "hf"))
    tokenizer = tiny_tokenizer()
    tokenizer.pad_token = tokenizer.eos_token
    told = trl.DPOConfig(
        str(tmp_path / "out"),
        max_steps=1,
        per_device_train_batch_size=3,
        report_to="none",
        use_cpu=True,
        bf16=False,
        save_strategy="no",
    )
    adapter = LoraConfig(target_modules=["q_proj"])
    trainer = trl.DPOTrainer(
        tiny_model(), args=told, train_dataset=rows, processing_class=tokenizer, peft_config=adapter
    )
    first = trainer.train_dataset[0]
    prompt = "<|im_start|>user\nAsk 0<|im_end|>\n<|im_start|>assistant\n"
    assert [tokenizer.decode(first[f"{name}_ids"]) for name in ("prompt", "chosen", "rejected")] == [
        prompt,
        "1<|im_end|>\n",
        "2<|im_end|>\n",
    ]
    assert trainer.train().global_step == 1
