"""A trained adapter answers its cases: what is found, what is written, what is refused."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import ModelCard

import expert_cli
from expert_cli import api
from expert_cli.errors import ExpertError, InputError
from expert_cli.inference.expert import open_expert
from expert_cli.inference.expert_config import GenerationConfig, generation_config
from expert_cli.runs.metrics import read_json
from expert_cli.utils.files import sha256_of
from expert_cli.utils.reporter import NullReporter
from tests.reporters import Heard
from tests.schemas import valid
from tests.train.projects import command, manifest_with, trained_in, write_rows

SETTINGS = GenerationConfig(max_new_tokens=8, batch_size=4)


def cli(*args: str | Path) -> tuple[int, str, BaseException | None]:
    done = command(*args)
    return done.exit_code, done.stdout, done.exception


def test_the_command_writes_the_document_and_the_card(expert: Path) -> None:
    card = expert / "adapter" / "README.md"
    for _ in range(2):
        code, out, _error = cli("evaluate", "--adapter", expert, "--baseline", "--json", "--max-new-tokens", "8")
        assert code == 0
    document = json.loads(out)
    valid(document, "evaluate")
    assert read_json(expert / "evaluation.json") == document
    weights = expert / "adapter" / "adapter_model.safetensors"
    assert document["expert"]["adapter_sha256"] == sha256_of(weights)
    assert document["by_category"]["hard"]["correct"] == 2
    text = card.read_text(encoding="utf-8")
    assert text.count("## Evaluation") == 1
    assert document["cases_file"] == str(own(expert).resolve())
    assert "8 cases (tests/cases.jsonl), answers to queries and programs run, JSON compared" in text
    data = ModelCard(text).data
    assert (data.base_model, data.eval_results[0].metric_value) == ("tiny-llama", document["accuracy"])
    assert [one.dataset_config for one in data.eval_results] == [None, *document["by_category"]]
    report = (expert / "report.html").read_text(encoding="utf-8")
    assert "<h2>Evaluation</h2>" in report
    assert "the expert gained 6 cases and lost 0: +75.0%" in report


def test_prompts_and_answers_beyond_the_positions_of_the_base_model_are_told(expert: Path, tmp_path: Path) -> None:
    told = "an answer of up to 3,000 exceed the base model's 2,048 positions"
    asked = ("--adapter", expert, "--max-new-tokens", "3000")
    for words in (
        ("evaluate", *asked, "--limit", "1", "--output", tmp_path / "e.json"),
        ("chat", *asked, "--prompt", "a"),
    ):
        assert told in " ".join(command(*words).stderr.split())


def test_right_answers_that_would_be_ended_as_loops_are_named(expert: Path, tmp_path: Path) -> None:
    cases = [{"prompt": "a", "verifier": "exact", "expected": text} for text in ("7", "[" + "[0, 0], " * 20 + "]")]
    file = write_rows(tmp_path / "cases.jsonl", cases)
    done = command(
        "evaluate", "--adapter", expert, "--cases", file, "--max-new-tokens", "4", "--output", tmp_path / "e"
    )
    assert f"1 of 2 right answers repeat themselves and are ended as loops: {file}:2" in " ".join(done.stderr.split())


def test_what_is_not_the_evaluation_of_a_run_is_kept_only_where_asked_for(expert: Path, tmp_path: Path) -> None:
    """That of a checkpoint, and that of a part of other cases."""
    run = shutil.copytree(expert, tmp_path / "run")
    other = Path(shutil.copy(own(expert), tmp_path / "other.jsonl"))
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    (checkpoint,) = (run / "checkpoints").iterdir()
    for words in ((checkpoint,), (run, "--cases", other, "--limit", "3")):
        args = ("evaluate", "--adapter", *words, "--max-new-tokens", "8", "--output", tmp_path / "new" / "e.json")
        assert cli(*args)[0] == 0
    assert before == {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    document = read_json(tmp_path / "new" / "e.json")
    assert (document["cases_file"], document["limit"], document["cases"]) == (str(other.resolve()), 3, 3)


def own(expert: Path) -> Path:
    (folder,) = (path for path in expert.parents if (path / "tests").is_dir())
    return folder / "tests" / "cases.jsonl"


def test_samples_are_drawn_by_the_manifests_decoding_where_that_lets_them_differ() -> None:
    settings = generation_config(GenerationConfig(temperature=0.7, top_p=0.9, stops=("###",)), 8, 4, samples=3)
    assert (settings.temperature, settings.top_p, settings.stops, settings.samples) == (0.7, 0.9, ("###",), 3)
    for written, drawn_at in ((0, 0.8), (0.29, 0.8), (0.3, 0.3), (1.5, 1.5)):
        drawn = generation_config(GenerationConfig(temperature=written), 8, 4, samples=1)
        assert drawn == replace(SETTINGS, temperature=drawn_at, samples=1)


def test_samples_are_counted_told_and_judged_again(expert: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(expert, run)
    manifest = manifest_with(expert, temperature=0.1, top_p=None, stop_sequences=[])
    args = ("evaluate", "--adapter", run, "--manifest", manifest, "--cases", own(expert), "--max-new-tokens", "8")
    done = command(*args, "--samples", "3", "--output", tmp_path / "e.json")
    assert done.exit_code == 0
    assert "3 answers to each case, drawn at temperature 0.8" in done.stderr
    document = read_json(tmp_path / "e.json")
    valid(document, "evaluate")
    assert (document["generation"]["temperature"], document["generation"]["samples"]) == (0.8, 3)
    kinds = [[one["kind"] == "correct" for one in row["samples"]] for row in document["answers"]]
    assert document["pass_at"]["1"] == pytest.approx(sum(map(sum, kinds)) / 24)
    assert document["pass_at"]["3"] == sum(map(any, kinds)) / 8
    low, high = document["pass_at_ci95"]["2"]
    line = f"pass@2: {document['pass_at']['2']:.1%} ({low:.1%} to {high:.1%})"
    assert line in (run / "adapter" / "README.md").read_text(encoding="utf-8")


def test_four_bits_answer_through_their_unpacked_copy(expert: Path) -> None:
    by = trained_in(expert)
    run = replace(by.plan.run, compute=replace(by.plan.run.compute, dtype="bf16"))
    loaded = open_expert(replace(run, model=replace(run.model, quantization="int4")), by.origin, NullReporter()).model
    assert {str(parameter.dtype) for parameter in loaded.parameters()} == {"torch.bfloat16"}


def edit(name: str, *keys: str, value: Any) -> Any:
    def change(run: Path) -> None:
        document = read_json(run / name)
        part = document
        for key in keys[:-1]:
            part = part[key]
        part[keys[-1]] = value
        (run / name).write_text(json.dumps(document), encoding="utf-8")

    return change


def damage(run: Path) -> None:
    (run / "adapter/adapter_model.safetensors").write_bytes(b"x" * 100)


REFUSED = {
    "damaged": (damage, 6, "is not the file"),
    "damaged, and nothing tells": (lambda run: (damage(run), (run / "COMPLETE").unlink()), 6, "cannot be read"),
    "another base": (edit("run.json", "model", "sha256", value="0" * 64), 2, "was trained on"),
    "another template": (
        edit("run.json", "identity", "template", value="alpaca, '</s>', ''"),
        2,
        "was trained with the prompt template alpaca",
    ),
    "no manifest": (edit("run.json", "config", "manifest", value="/gone.json"), 2, "--manifest"),
    "another rank": (edit("adapter/adapter_config.json", "r", value=8), 6, "is not the file"),
}


@pytest.mark.parametrize(("change", "code", "words"), REFUSED.values(), ids=REFUSED)
def test_what_does_not_go_together_is_refused(expert: Path, tmp_path: Path, change: Any, code: int, words: str) -> None:
    change(shutil.copytree(expert, tmp_path / "run"))
    with pytest.raises(ExpertError) as caught:
        api.evaluate(tmp_path / "run", max_new_tokens=8, offline=True)
    assert caught.value.exit_code == code
    assert words in f"{caught.value.message} {caught.value.hint}"


def test_what_cannot_be_judged_is_told_before_the_model_is_loaded(expert: Path, tmp_path: Path) -> None:
    (tmp_path / "judge.py").touch()
    (tmp_path / "cases.jsonl").write_text('{"prompt": "?", "verifier": "command", "command": "judge.py"}')
    heard, served = Heard(), {"endpoint": "http://127.0.0.1:9", "model": "nobody is asked"}
    for how in ({}, served):
        with pytest.raises(InputError, match="judged by the program"):
            api.evaluate(expert, cases=tmp_path / "cases.jsonl", offline=True, reporter=heard, **how)
    assert not [line for line in heard.said if "loading" in line and str(expert) in line]


class Counting(NullReporter):  # it is its own bar
    """Notes how many answers are asked for; stops once `stop_at` are whole."""

    def __init__(self, stop_at: int = 1_000) -> None:
        self.stop_at, self.asked = stop_at, 0.0

    @contextmanager
    def progress(self, title: str, total: float | None, unit: str = "") -> Iterator[Counting]:
        self.asked = (total or 0) if title == "answering" else self.asked
        yield self

    def update(self, done: float, note: str = "") -> None:
        if done >= self.stop_at:
            raise KeyboardInterrupt


def test_it_goes_on_where_it_was_stopped(expert: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(expert, run)
    asked = {"batch_size": 2, "max_new_tokens": 8, "output": tmp_path / "found.json"}
    whole, first, second, other = Counting(), Counting(4), Counting(), Counting()
    expected = expert_cli.evaluate(run, reporter=whole, **asked)
    assert [*tmp_path.glob(".found*")] == []
    with pytest.raises(KeyboardInterrupt):
        expert_cli.evaluate(run, reporter=first, **asked)
    (kept,) = tmp_path.glob(".found*")
    lines = kept.read_text(encoding="utf-8").splitlines()
    made = len(list(filter(None, lines)))
    assert 2 <= made < whole.asked
    kept.write_text("\n".join([*lines, lines[-1][:20]]), encoding="utf-8")  # killed while it wrote
    assert expert_cli.evaluate(run, reporter=second, **asked).answers == expected.answers
    assert second.asked == whole.asked - made
    assert not kept.exists()
    kept.write_text("\n".join(line.replace('["', '["0', 1) for line in lines), encoding="utf-8")  # of another pass
    assert expert_cli.evaluate(run, reporter=other, **asked).answers == expected.answers
    assert other.asked == whole.asked
