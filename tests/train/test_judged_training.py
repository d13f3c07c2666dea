"""Cases are answered before, during and after training: they choose the best step, and change nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from expert_cli.pipeline.train import RunOptions
from expert_cli.runs.run_paths import RunPaths
from expert_cli.utils.files import sha256_of
from tests.train.projects import SEVEN, Told, case, logged, project, train

LEARNS: dict[str, Any] = {"rows": SEVEN, "max_steps": 20, "learning_rate": 0.01}


def test_the_best_step_is_the_first_that_answers_right(tmp_path: Path) -> None:
    best = {
        "load_best_model_at_end": True,
        "metric_for_best_model": "execution_accuracy",
        "dropout": 0.1,
        "eval_steps": 3,
    }
    asked = {"cases": [case(n, 7) for n in range(8)], "evaluation": {"every_steps": 3, "sample": 6}}
    done = train(project(tmp_path, **LEARNS, **asked, **best))
    shares = logged(done.output, "eval_execution_accuracy")
    assert list(shares) == [3, 6, 9, 12, 15, 18, 20]
    first = next(step for step, share in shares.items() if share == 1.0)
    assert 3 < first < 20, "neither the first step nor the last would do as well"
    weights = RunPaths(done.output).checkpoints / f"checkpoint-{first}" / "adapter_model.safetensors"
    assert sha256_of(weights) == done.document["adapter_sha256"]
    by_loss = ("training.config.metric_for_best_model=eval_loss",)
    goes_on = RunOptions(resume=str(weights.parent), allow_drift=("best model",))
    other = train(tmp_path / "manifest.json", goes_on, output=tmp_path / "c", settings=by_loss)
    losses = logged(other.output, "eval_loss")
    least = RunPaths(other.output).checkpoints / f"checkpoint-{min(losses, key=losses.__getitem__)}"
    assert sha256_of(least / "adapter_model.safetensors") == other.document["adapter_sha256"]
    none = ("load_best_model_at_end=false", "metric_for_best_model=null", "eval_steps=null")
    settings = tuple(f"training.config.{key}" for key in none)
    told = train(tmp_path / "manifest.json", output=tmp_path / "a", settings=(*settings, "training.config.max_steps=3"))
    assert list(logged(told.output, "eval_execution_accuracy")) == [3], "every_steps needs no key beside it"
    off = ("evaluation.every_steps=null", "training.config.load_best_model_at_end=false")
    without = train(tmp_path / "manifest.json", output=tmp_path / "b", settings=off)
    assert logged(without.output, "eval_execution_accuracy") == {}
    assert logged(without.output, "loss") == logged(done.output, "loss"), "answering moves no weight"


def test_a_command_judges_answers_only_where_it_is_allowed(tmp_path: Path) -> None:
    cases = [{"prompt": "Which number is 1?", "verifier": "command", "command": "judge.py"}]
    manifest, report = project(tmp_path, cases=cases, **LEARNS), Told()
    (tmp_path / "tests" / "judge.py").write_text("print('{\"correct\": true}')", encoding="utf-8")
    assert train(manifest, report=report).document["samples"] == []
    assert any("this case is judged by the program" in line for line in report.warnings)
    result = train(manifest, RunOptions(allow_commands=True, overwrite=True))
    assert [sample["right_after"] for sample in result.document["samples"]] == [True]


def test_three_cases_drawn_by_the_seed_are_run_before_and_after(tmp_path: Path) -> None:
    manifest = project(tmp_path, cases=[case(n, 7 if n % 2 else 8) for n in range(20)], **LEARNS)
    drawn = []
    for seed in range(2):
        done = train(manifest, output=tmp_path / f"run-{seed}", seed=seed)
        samples = done.document["samples"]
        assert [sample["after"] for sample in samples] == ["7"] * 3
        assert [sample["right_after"] for sample in samples] == [sample["expected"] == "7" for sample in samples]
        assert [sample["right_before"] for sample in samples] == [False] * 3
        drawn.append({sample["prompt"] for sample in samples})
    assert drawn[0] != drawn[1]
    right = sum(sample["right_after"] for sample in samples)
    assert f"to 3 held-out cases, drawn by the seed and run: 0 right before training, {right} after" in done.summary()


def test_a_case_at_fault_ends_no_training(tmp_path: Path) -> None:
    report = Told()
    done = train(project(tmp_path, cases=[case(1, 7), "{}"], max_steps=1), report=report)
    assert any("cases are not asked after training: " in line and "cases.jsonl:2" in line for line in report.warnings)
    assert done.document["samples"] == []


@pytest.mark.parametrize(("cases", "asked", "answered"), [(5, 2, 2), (0, 2, 0), (5, 0, 0)])
def test_so_many_prompts_are_answered_as_the_manifest_says(
    tmp_path: Path, cases: int, asked: int, answered: int
) -> None:
    found = [case(n, 7) for n in range(cases)]
    manifest = project(tmp_path, cases=found, evaluation={"sample_answers": asked}, max_steps=1)
    done = train(manifest)
    assert len(done.document["samples"]) == answered
    assert RunPaths(done.output).log.read_text("utf-8").count("answering ") == (2 if answered else 0)
