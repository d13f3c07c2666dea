"""Answers are run during training, before and after it: they choose the best step, and change nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from expert_cli.errors import InputError
from expert_cli.pipeline.train import RunOptions
from expert_cli.runs.run_paths import RunPaths
from expert_cli.utils.files import sha256_of
from tests.train.projects import SEVEN, Told, case, logged, project, train

ACCURACY = "execution_accuracy"


def manifest_of(folder: Path, evaluation: dict[str, Any], **config: Any) -> Path:
    config = {"max_steps": 12, "dropout": 0.1, "cases": [case(n, 7) for n in range(8)], **config}
    return project(folder, rows=SEVEN, evaluation=evaluation, **config)


def test_the_best_step_is_the_first_that_answers_right(tmp_path: Path) -> None:
    best = {"load_best_model_at_end": True, "metric_for_best_model": "execution_accuracy"}
    result = train(manifest_of(tmp_path, {"every_steps": 2, "sample": 6}, seed=2, **best))
    accuracies = logged(result.output, ACCURACY)
    assert list(accuracies) == [2, 4, 6, 8, 10, 12]
    assert accuracies[2] < accuracies[12] == 1.0
    first = next(step for step, value in accuracies.items() if value == 1.0)
    assert first < 12, "the last step would be the best one anyway"
    checkpoint = RunPaths(result.output).checkpoints / f"checkpoint-{first}"
    assert sha256_of(checkpoint / "adapter_model.safetensors") == result.document["adapter_sha256"]


def test_it_changes_no_bit_of_the_adapter(tmp_path: Path) -> None:
    with_it = train(manifest_of(tmp_path / "a", {"every_steps": 5}))
    without = train(manifest_of(tmp_path / "b", {}))
    assert with_it.document["adapter_sha256"] == without.document["adapter_sha256"]
    assert (list(logged(with_it.output, ACCURACY)), logged(without.output, ACCURACY)) == ([5, 10, 12], {})


def test_a_faulty_case_is_told_before_the_training_and_moves_nothing(tmp_path: Path) -> None:
    done = train(manifest_of(tmp_path, {"every_steps": 2, "sample": 8}, max_steps=2))
    with (tmp_path / "tests" / "cases.jsonl").open("a", encoding="utf-8") as file:
        (tmp_path / "tests" / "shop.sqlite").write_bytes(b"no")
        file.write('{"prompt": "?", "verifier": "sql", "database": "shop.sqlite", "expected": "SELECT 1"}\n')
    with pytest.raises(InputError, match=r"cases\.jsonl:9: .*not an SQLite database"):
        train(tmp_path / "manifest.json", RunOptions(overwrite=True), settings=("evaluation.sample=9",))
    assert RunPaths(done.output).complete.is_file()


def test_a_command_judges_answers_in_training_only_where_it_is_allowed(tmp_path: Path) -> None:
    manifest = manifest_of(
        tmp_path,
        {"every_steps": 12, "sample": 2},
        cases=[{"prompt": "Which number is 1?", "verifier": "command", "command": "judge.py"}],
    )
    (tmp_path / "tests" / "judge.py").write_text("print('{\"correct\": true}')", encoding="utf-8")
    with pytest.raises(InputError, match=r"cases\.jsonl:1: this case is judged by a program of its own"):
        train(manifest)
    result = train(manifest, RunOptions(allow_commands=True))
    assert logged(result.output, ACCURACY) == {12: 1.0}
    assert [sample["right_after"] for sample in result.document["samples"]] == [True]


LEARNS: dict[str, Any] = {"rows": SEVEN, "max_steps": 20, "learning_rate": 0.01}


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
    assert any("no case is asked after training: " in line and "cases.jsonl:2" in line for line in report.warnings)
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
