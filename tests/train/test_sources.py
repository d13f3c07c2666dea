"""Several sources in one run: what is drawn of each trains, and each set of validation rows has a loss of its own."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import datasets
import pytest
import torch
from safetensors.torch import load_file

from expert_cli.config.plan import make_plan
from expert_cli.config.resolve import Overrides
from expert_cli.config.run_config import SourceSpec
from expert_cli.errors import InputError, ManifestError
from expert_cli.pipeline.options import RunOptions
from expert_cli.pipeline.pretokenize import resolve_inputs, store_for
from expert_cli.pipeline.training_data import training_data, validation_sets
from expert_cli.runs.paths import RunPaths
from expert_cli.utils.object_storage import StoredFolder
from expert_cli.utils.reporter import NullReporter
from tests import manifests, tiny
from tests.train.projects import ROWS, SEVEN, Told, here, project, train


def write(path: Path, rows: list[dict[str, str]]) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path.name


def of_tasks(folder: Path, tasks: dict[str, dict[str, Any]], **config: Any) -> Path:
    """Write a project whose rows come from tasks, each given with its rows; return its manifest."""
    manifest = project(folder, tiny.tiny_model_folder(folder / "tiny-llama"), **config)
    written = json.loads(manifest.read_text(encoding="utf-8"))
    for name, task in tasks.items():
        task |= {key: write(folder / f"{name}-{key}.jsonl", task[key]) for key in ("train", "valid") if key in task}
    written["training"]["dataset"] = {"type": "multi_task", "tasks": tasks}
    return manifests.write(folder, written)


EVALUATED = {"eval_strategy": "steps", "eval_steps": 2, "max_steps": 4}


def test_each_set_of_validation_rows_has_its_loss(tmp_path: Path) -> None:
    """All but few rows answer 7: the loss on such rows falls below that on sums, and both make the loss of all."""
    sevens: dict[str, Any] = {"train": SEVEN[:24], "valid": SEVEN[24:], "repeat": 2}
    manifest = of_tasks(
        tmp_path / "one",
        {"sums": {"train": ROWS[:32], "valid": ROWS[32:36], "max_rows": 8}, "sevens": sevens},
        **EVALUATED,
    )
    done = train(manifest)
    paths, report = RunPaths(done.output), done.document
    logged = [json.loads(line) for line in paths.metrics.read_text(encoding="utf-8").splitlines()]
    evaluations = [line for line in logged if "eval_loss" in line]
    assert [line["step"] for line in evaluations] == [2, 4]
    assert evaluations[-1]["eval_sevens_loss"] < evaluations[-1]["eval_sums_loss"]
    last = {"sums": evaluations[-1]["eval_sums_loss"], "sevens": evaluations[-1]["eval_sevens_loss"]}
    assert report["eval_losses"] == last == json.loads(paths.report_json.read_text(encoding="utf-8"))["eval_losses"]
    record = json.loads(paths.run_json.read_text(encoding="utf-8"))
    assert record["data"]["train"]["rows"] == 8 + 2 * 24
    assert record["data"]["validation"]["sources"] == [4, 8]
    store = datasets.load_from_disk(record["store"]["path"])
    held_out = store["validation"]["completion_mask"]
    trained = [sum(map(sum, part)) for part in (held_out[:4], held_out[4:])]
    mean = (trained[0] * last["sums"] + trained[1] * last["sevens"]) / sum(trained)
    assert math.isclose(report["eval_loss"], mean, rel_tol=1e-6)
    page = paths.report_html.read_text(encoding="utf-8")
    assert "Evaluation loss: sevens" in page
    assert (
        f'<td class="name">sums</td><td>{evaluations[0]["eval_sums_loss"]:.3f}</td><td>{last["sums"]:.3f}</td>' in page
    )
    assert f"(sums {last['sums']:.3f}, sevens {last['sevens']:.3f})" in done.summary()


def test_rows_split_off_keep_their_task(tmp_path: Path) -> None:
    tasks: dict[str, Any] = {"sums": {"train": ROWS}, "sevens": {"train": SEVEN}}
    manifest = of_tasks(tmp_path / "one", tasks, **EVALUATED)
    whole = train(manifest)
    sources = json.loads(RunPaths(whole.output).run_json.read_text(encoding="utf-8"))["data"]["validation"]["sources"]
    assert (len(sources), sum(sources)) == (2, 5)
    named = {name for name, rows in zip(tasks, sources, strict=True) if rows}
    assert set(whole.document["eval_losses"]) == named == {"sums", "sevens"}


def test_a_store_that_does_not_tell_its_sources_has_one_loss_and_says_so(tmp_path: Path) -> None:
    tasks: dict[str, Any] = {"sums": {"train": ROWS, "valid": ROWS[:2]}, "sevens": {"train": SEVEN, "valid": SEVEN[:2]}}
    manifest = of_tasks(tmp_path / "one", tasks, **EVALUATED)
    plan = make_plan(manifest, here(), Overrides())
    inputs = resolve_inputs(plan.run, NullReporter())
    store = store_for(plan.run, inputs, NullReporter())
    assert set(training_data(store, inputs, plan.run, NullReporter()).validation) == {"sums", "sevens"}
    del store.stats["validation"]["sources"]
    told = Told()
    assert set(training_data(store, inputs, plan.run, told).validation) == {""}
    assert "one evaluation loss; pretokenize --force" in told.warnings[-1]


def test_one_set_has_no_name(tmp_path: Path) -> None:
    manifest = of_tasks(tmp_path / "one", {"sums": {"train": ROWS[:32], "valid": ROWS[32:36]}}, **EVALUATED)
    done = train(manifest)
    assert "eval_losses" not in done.document
    assert "eval_sums_loss" not in RunPaths(done.output).metrics.read_text(encoding="utf-8")


def with_sets(folder: Path, sets: dict[str, Any] | str, **config: Any) -> Path:
    """Write a project whose validation rows are sets by name; return its manifest."""
    manifest = project(folder, tiny.tiny_model_folder(folder / "tiny-llama"), SEVEN[:24], **config)
    write(folder / "sums.jsonl", ROWS[32:36])
    write(folder / "sevens.jsonl", SEVEN[24:28])
    write(folder / "more.jsonl", SEVEN[28:])
    written = json.loads(manifest.read_text(encoding="utf-8"))
    written["training"]["dataset"] |= {"validation_path": sets}
    return manifests.write(folder, written)


BEST = {"load_best_model_at_end": True, "learning_rate": 0.05}


def test_validation_sets_by_name_have_their_losses_and_one_chooses_the_best_step(tmp_path: Path) -> None:
    """The set that expects another answer is soon the worse the longer is trained, and all rows are not: it decides."""
    sets = {"others": "others.jsonl", "sevens": ["sevens.jsonl", "more.jsonl"]}
    config = {**EVALUATED, **BEST, "max_steps": 12, "metric_for_best_model": "eval_others_loss"}
    manifest = with_sets(tmp_path / "one", sets, **config)
    write(manifest.with_name("others.jsonl"), [row | {"output": "12"} for row in SEVEN[24:25]])
    done = train(manifest)
    paths = RunPaths(done.output)
    logged = [json.loads(line) for line in paths.metrics.read_text(encoding="utf-8").splitlines()]
    evaluations = [line for line in logged if "eval_loss" in line]
    best, best_of_all = (
        min(evaluations, key=lambda line: line[metric])["step"] for metric in ("eval_others_loss", "eval_loss")
    )
    assert best < best_of_all
    record = json.loads(paths.run_json.read_text(encoding="utf-8"))
    effects = {row["key"]: row for row in record["effects"]}
    kept = paths.checkpoints / f"checkpoint-{best}" / "adapter_model.safetensors"
    written, chosen = load_file(done.output / "adapter" / "adapter_model.safetensors"), load_file(kept)
    assert all(torch.equal(written[name], chosen[name]) for name in chosen)
    assert effects["training.dataset.validation_path.others"]["status"] == "applied"
    assert set(done.document["eval_losses"]) == {"others", "sevens"}
    assert record["data"]["validation"]["sources"] == [1, 4, 4]


@pytest.mark.parametrize(
    ("sets", "told"),
    [
        (
            {"sums": "sums.jsonl", "sevens": "sevens.jsonl"},
            "there is no eval_summs_loss: eval_sums_loss, eval_sevens_loss",
        ),
        ("sums.jsonl", "there is no eval_summs_loss: the validation rows are one set"),
    ],
    ids=["another name", "one set"],
)
def test_the_best_step_is_chosen_by_a_set_that_is_there(tmp_path: Path, sets: Any, told: str) -> None:
    manifest = with_sets(tmp_path / "one", sets, **EVALUATED, **BEST, metric_for_best_model="eval_summs_loss")
    with pytest.raises(ManifestError, match=told):
        make_plan(manifest, here(), Overrides())


def test_a_set_that_validation_on_the_command_line_replaces_chooses_nothing(tmp_path: Path) -> None:
    sets = {"sums": "sums.jsonl", "sevens": "sevens.jsonl"}
    manifest = with_sets(tmp_path / "one", sets, **EVALUATED, **BEST, metric_for_best_model="eval_sums_loss")
    plan = make_plan(manifest, here(), Overrides(validation=str(manifest.with_name("sums.jsonl"))))
    inputs = resolve_inputs(plan.run, NullReporter())
    store = store_for(plan.run, inputs, NullReporter())
    with pytest.raises(InputError, match="eval_sums_loss: no such set of validation rows: one"):
        training_data(store, inputs, plan.run, NullReporter())


def test_sets_are_the_documents_of_their_sources_in_order() -> None:
    a, b, none = (SourceSpec("file", "x", task=task) for task in ("a", "b", ""))
    assert validation_sets([3, 2], [a, b]) == {"a": range(3), "b": range(3, 5)}
    assert validation_sets([3, 0, 2], [a, b, none]) == {"a": range(3), "": range(3, 5)}
    assert validation_sets([3, 2], [none, none]) == validation_sets([3, 0], [a, b]) == validation_sets([], [a, b]) == {}


def test_the_packs_of_a_set_hold_its_documents(tmp_path: Path) -> None:
    rows = {"sums": {"train": ROWS, "valid": ROWS[:3]}, "sevens": {"train": SEVEN, "valid": SEVEN[:2]}}
    plan = make_plan(of_tasks(tmp_path / "one", rows, **EVALUATED), here(), Overrides())
    inputs = resolve_inputs(plan.run, NullReporter())
    store = store_for(plan.run, inputs, NullReporter())
    ids = datasets.load_from_disk(str(store.home))["validation"]["input_ids"]
    sets = training_data(store, inputs, plan.run, NullReporter()).validation
    for name, its in {"sums": ids[:3], "sevens": ids[3:]}.items():
        packs = sets[name]
        held = [token for pack in range(len(packs)) for token in packs[0, pack]["input_ids"].tolist()]
        assert sorted(held) == sorted(token for document in its for token in document)


@pytest.mark.parametrize("order", [("plain", "told"), ("told", "plain")])
def test_pairs_stand_beside_pairs_with_a_system_message(tmp_path: Path, order: tuple[str, str]) -> None:
    """Each row is what it is alone, under the same masking rule."""
    rows = {"plain": ROWS[:2], "told": [{**row, "system": "Add."} for row in ROWS[2:4]]}

    def documents(name: str, *tasks: str) -> tuple[list[list[int]], str]:
        manifest = of_tasks(tmp_path / name, {task: {"train": rows[task]} for task in tasks})
        run = make_plan(manifest, here(), Overrides()).run
        inputs = resolve_inputs(run, NullReporter())
        stored = datasets.load_from_disk(str(store_for(run, inputs, NullReporter()).home))
        return list(stored["train"]["input_ids"]), inputs.template.masking(inputs.kind)

    together, masking = documents("both", *order)
    alone = {task: documents(task, task) for task in order}
    assert together == alone[order[0]][0] + alone[order[1]][0]
    assert masking == alone["told"][1] == alone["plain"][1]


def test_stored_rows_train_as_local_ones_do(tmp_path: Path, bucket: str) -> None:
    manifest = project(tmp_path / "one", tiny.tiny_model_folder(tmp_path / "tiny-llama"))
    rows, at = StoredFolder(bucket), f"{bucket}/rows/train-*.jsonl"
    rows.put(tmp_path / "one" / "train.jsonl", "rows/train-0.jsonl")
    local = RunPaths(train(manifest, output=tmp_path / "local").output)
    stored = RunPaths(train(manifest, output=tmp_path / "stored", dataset=at).output)
    assert losses(stored) == losses(local) != []
    record = json.loads(stored.run_json.read_text(encoding="utf-8"))
    found = rows.info("rows/train-0.jsonl")
    assert found is not None
    assert record["data"]["files"] == {f"{bucket}/rows/train-0.jsonl": f"{found.version} {found.size}"}
    told = Told()
    train(manifest, RunOptions(resume="auto"), told, output=tmp_path / "stored", dataset=at)
    assert told.warnings == []
    rows.write("rows/train-0.jsonl", b"other")
    train(manifest, RunOptions(resume="auto"), told, output=tmp_path / "stored", dataset=at)
    (warning,) = told.warnings
    assert warning.startswith(
        f"not the data that this run was trained on: {bucket}/rows/train-0.jsonl (changed); --overwrite trains anew"
    )


def losses(paths: RunPaths) -> list[float]:
    lines = map(json.loads, paths.metrics.read_text(encoding="utf-8").splitlines())
    return [line["loss"] for line in lines if "loss" in line]
