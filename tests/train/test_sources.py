"""Several sources in one run: what is drawn of each trains, and each set of validation rows has a loss of its own."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import datasets

from expert_cli.config.run_config import SourceSpec
from expert_cli.pipeline.training_data import validation_sets
from expert_cli.runs.run_paths import RunPaths
from expert_cli.utils.files import sha256_of
from tests.train.projects import ROWS, SEVEN, logged, project, train, write_rows


def of_tasks(folder: Path, tasks: dict[str, dict[str, Any]], **config: Any) -> Path:
    """Write a project whose rows come from tasks, each given with its rows; return its manifest."""
    for name, task in tasks.items():
        for key in ("train", "valid"):
            task[key] = write_rows(folder / f"{name}-{key}.jsonl", task[key]).name
    return project(folder, dataset={"path": None, "type": "multi_task", "tasks": tasks}, **config)


EVALUATED = {"eval_strategy": "steps", "eval_steps": 2, "max_steps": 4}


def test_each_set_of_validation_rows_has_its_loss(tmp_path: Path) -> None:
    """All but few rows answer 7: the loss on such rows falls below that on sums, and both make the loss of all."""
    of_sevens: dict[str, Any] = {"train": SEVEN[:24], "valid": SEVEN[24:], "weight": 2.0}
    manifest = of_tasks(
        tmp_path / "one",
        {"sums": {"train": ROWS[:32], "valid": ROWS[32:36], "weight": 0.25}, "sevens": of_sevens},
        **EVALUATED,
    )
    done = train(manifest)
    paths, report = RunPaths(done.output), done.document
    sevens, sums = logged(done.output, "eval_sevens_loss"), logged(done.output, "eval_sums_loss")
    assert (list(sums), sevens[4] < sums[4]) == ([2, 4], True)
    last = {"sums": sums[4], "sevens": sevens[4]}
    assert report["eval_losses"] == last == json.loads(paths.report_json.read_text(encoding="utf-8"))["eval_losses"]
    record = json.loads(paths.run_json.read_text(encoding="utf-8"))
    assert record["data"]["train"]["rows"] == 8 + 2 * 24
    assert record["data"]["validation"]["sources"] == [4, 8]
    store = datasets.load_from_disk(record["store"]["path"])
    held_out = store["validation"]["completion_mask"]
    trained = [sum(map(sum, part)) for part in (held_out[:4], held_out[4:])]
    mean = (trained[0] * last["sums"] + trained[1] * last["sevens"]) / sum(trained)
    assert math.isclose(report["eval_loss"], mean, rel_tol=1e-6)
    assert f"(sums {last['sums']:.3f}, sevens {last['sevens']:.3f})" in done.summary()


BEST = {"load_best_model_at_end": True, "learning_rate": 0.05}


def test_validation_sets_by_name_have_their_losses_and_one_chooses_the_best_step(tmp_path: Path) -> None:
    """The set that expects another answer is soon the worse the longer is trained, and all rows are not: it decides."""
    sets = {"others": "others.jsonl", "sevens": ["sevens.jsonl", "more.jsonl"]}
    config = {**EVALUATED, **BEST, "max_steps": 12, "metric_for_best_model": "eval_others_loss"}
    manifest = project(tmp_path, rows=SEVEN[:24], dataset={"validation_path": sets}, **config)
    for name, rows in {"sevens": SEVEN[24:28], "more": SEVEN[28:], "others": [{**SEVEN[24], "output": "12"}]}.items():
        write_rows(tmp_path / f"{name}.jsonl", rows)
    done = train(manifest)
    paths = RunPaths(done.output)
    best, best_of_all = (
        min(losses, key=lambda step: losses[step])
        for losses in (logged(done.output, metric) for metric in ("eval_others_loss", "eval_loss"))
    )
    assert best < best_of_all
    kept = paths.checkpoints / f"checkpoint-{best}" / "adapter_model.safetensors"
    assert sha256_of(kept) == done.document["adapter_sha256"]
    assert set(done.document["eval_losses"]) == {"others", "sevens"}


def test_sets_are_the_documents_of_their_sources_in_order() -> None:
    a, b, none = (SourceSpec("file", "x", task=task) for task in ("a", "b", ""))
    assert validation_sets([3, 2], [a, b]) == {"a": range(3), "b": range(3, 5)}
    assert validation_sets([3, 0, 2], [a, b, none]) == {"a": range(3), "": range(3, 5)}
    assert validation_sets([3, 2], [none, none]) == validation_sets([3, 0], [a, b]) == validation_sets([], [a, b]) == {}


def test_the_run_says_how_many_rows_were_trained_again(tmp_path: Path) -> None:
    manifest = project(tmp_path / "new", rows=ROWS[:24], max_steps=1)
    first = train(manifest, output=tmp_path / "first").output
    write_rows(tmp_path / "new" / "old.jsonl", ROWS[24:])
    project(tmp_path / "new", rows=ROWS[:24], max_steps=1, dataset={"replay": {"path": "old.jsonl", "share": 0.25}})
    run = train(manifest, output=tmp_path / "on", init_adapter=first).output
    data = json.loads(RunPaths(run).run_json.read_text(encoding="utf-8"))["data"]
    assert data["train"]["rows"] == 32
    before = json.loads(RunPaths(first).run_json.read_text(encoding="utf-8"))["data"]
    assert before["train"]["rows"] == 24
