"""Every run ends with held-out cases, drawn by its seed, answered before and after training, and run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests import tiny
from tests.train.projects import SEVEN, Told, case, project, train


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.tiny_model_folder(tmp_path_factory.mktemp("models") / "tiny-llama")


def asking(folder: Path, model: Path, lines: list[str], **config: Any) -> Path:
    """A manifest whose rows are all answered 7, beside these cases."""
    manifest = project(folder, model, SEVEN, **{"max_steps": 20, "learning_rate": 0.01, **config})
    (folder / "tests").mkdir()
    (folder / "tests" / "cases.jsonl").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return manifest


def test_three_cases_drawn_by_the_seed_are_run_before_and_after(tmp_path: Path, model: Path) -> None:
    cases = [json.dumps(case(n, 7 if n % 2 else 8)) for n in range(20)]
    manifest = asking(tmp_path, model, cases)
    drawn = []
    for seed in range(2):
        done = train(manifest, output=tmp_path / f"run-{seed}", seed=seed)
        samples = done.document["samples"]
        assert [sample["after"] for sample in samples] == ["7"] * 3
        assert [sample["right_after"] for sample in samples] == [sample["expected"] == "7" for sample in samples]
        assert [sample["right_before"] for sample in samples] == [False] * 3
        right = sum(sample["right_after"] for sample in samples)
        assert (
            f"to 3 held-out cases, drawn by the seed and run: 0 right before training, {right} after" in done.summary()
        )
        drawn.append(tuple(sample["prompt"] for sample in samples))
    assert len(set(drawn)) == 2
    assert all(len(set(prompts)) == 3 for prompts in drawn)


def test_a_case_at_fault_ends_no_training(tmp_path: Path, model: Path) -> None:
    report = Told()
    done = train(asking(tmp_path, model, [json.dumps(case(1, 7)), "{}"], max_steps=1), report=report)
    assert any(
        line.startswith("no case is asked after training: ") and "cases.jsonl:2" in line for line in report.warnings
    )
    (sample,) = done.document["samples"]
    assert (sample["right_before"], sample["right_after"]) == (None, None)
    assert "held-out cases" not in done.summary()
