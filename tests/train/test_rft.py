"""Rounds of learning from answers that were run, on tiny models."""

from __future__ import annotations

import gc
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
from transformers import LlamaForCausalLM, TrainerCallback

from expert_cli import api
from expert_cli.config.plan import trained_adapter
from expert_cli.data.store.inspect import read_stats
from expert_cli.errors import EnvironmentProblem, IntegrityError, Interrupted
from expert_cli.evaluation.verifiers import typescript
from expert_cli.inference.expert import open_expert
from expert_cli.pipeline.options import RunOptions
from expert_cli.runs.paths import RunPaths
from expert_cli.utils import reporter
from expert_cli.utils.files import sha256_of
from expert_cli.utils.reporter import NullBar, NullReporter
from tests.train.projects import Told, train
from tests.train.rft_project import prompt, sharp_model, unsure_expert


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return sharp_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def learned(tmp_path_factory: pytest.TempPathFactory, model: Path) -> Path:
    """A run of one round; its folder. No model is in memory any more when the next one is."""
    manifest = unsure_expert(tmp_path_factory.mktemp("learned"), model)
    written = read(manifest)
    written["training"]["decoding"] = {"num_beams": 2}
    manifest.write_text(json.dumps(written), encoding="utf-8")
    alive, folder = Alive(), manifest.parent
    seen: list[set[str]] = []

    def written() -> None:
        seen.append({path.relative_to(folder).as_posix().rpartition("round-1/")[2] for path in folder.rglob("*")})

    output = train(manifest, RunOptions(callbacks=(alive,), written=written)).output
    assert alive.models == [1, 1]
    for there, not_yet in {
        "samples/block-0001.jsonl": "samples/block-0002.jsonl",
        "run/checkpoints": "run/COMPLETE",
    }.items():
        assert any(there in files and not_yet not in files for files in seen), "what is kept elsewhere is kept in time"
    return output


class Alive(TrainerCallback):
    """Counts the models in memory when a training begins."""

    def __init__(self) -> None:
        self.models: list[int] = []

    def on_train_begin(self, *args: Any, **kwargs: Any) -> None:
        self.models.append(sum(isinstance(one, LlamaForCausalLM) for one in gc.get_objects()))


def read(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text(encoding="utf-8"))


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_a_round_learns_what_was_right_and_proves_it_on_what_was_held_back(learned: Path) -> None:
    told = read(learned / "report.json")["rft"]
    assert told["held_back"] == {"prompts": 16, "parts": 2, "of": 8, "by": "categories of prompts"}
    assert told["before"]["correct"] == 0
    (record,) = told["rounds"]
    assert (record["prompts"], record["samples"], record["asked"]) == (48, 4, 192)
    assert 0 < record["right"] < 192
    assert record["correct"] == 16
    assert record["gain"]["ci95"][0] > 0
    assert told["best_round"] == 1
    judged = [read(learned / f"round-{number}" / "evaluation.json") for number in (0, 1)]
    assert [one["generation"]["num_beams"] for one in judged] == [1, 1], (
        "greedily, whatever search the expert answers by"
    )


def test_what_is_trained_is_what_was_right_and_says_where_it_is_from(learned: Path) -> None:
    rows = lines(learned / "round-1" / "rows.jsonl")
    (record,) = read(learned / "report.json")["rft"]["rounds"]
    assert len(rows) == record["kept"]
    assert all(row["output"] == "7" and row["round"] == 1 and row["sample"] in range(1, 5) for row in rows)
    held_back = {row["id"] for row in read(learned / "round-0" / "evaluation.json")["answers"]}
    assert len(held_back) == 16
    assert not held_back & {row["case"] for row in rows}


def test_the_folder_is_that_of_a_run_with_the_best_adapter(learned: Path) -> None:
    paths = RunPaths(learned)
    weights = sha256_of(paths.adapter / "adapter_model.safetensors")
    assert weights == sha256_of(learned / "round-1" / "run" / "adapter" / "adapter_model.safetensors")
    assert paths.complete.read_text(encoding="utf-8").startswith(weights)
    assert read(paths.report_json)["adapter_sha256"] == weights
    assert read(paths.run_json)["rft"] == read(paths.report_json)["rft"]
    assert read(paths.status)["state"] == "complete"
    assert "Learned from answers that were run" in (paths.adapter / "README.md").read_text(encoding="utf-8")
    trained = trained_adapter(learned, None, None, offline=True)
    assert open_expert(trained.plan.run, trained.origin, NullReporter()).renderer.template.name


@pytest.mark.parametrize(("name", "file"), [("train", "report.json"), ("status", "status.json")])
def test_what_programs_read_has_the_form_that_they_are_told(learned: Path, name: str, file: str) -> None:
    schema = read(Path(__file__).parents[2] / "docs" / "schemas" / f"{name}.schema.json")
    command = {"schema_version": 1, "command": "train"} if name == "train" else {}
    jsonschema_rs.validator_for(schema).validate(read(learned / file) | command)


def test_the_report_shows_the_rounds(learned: Path) -> None:
    page = RunPaths(learned).report_html.read_text(encoding="utf-8")
    assert "16 prompts of 2 of 8 categories of prompts" in page
    assert "100.0%" in page
    assert "round 1, learned" in page


def test_a_run_that_is_complete_is_not_made_again_and_another_is_refused(learned: Path, model: Path) -> None:
    folder = learned.parents[1]
    manifest = folder / "manifest.json"
    blocks = {path: path.stat().st_mtime_ns for path in learned.rglob("block-*.jsonl")}
    assert train(manifest, RunOptions(resume="auto")).document["rft"]["best_round"] == 1
    assert {path: path.stat().st_mtime_ns for path in learned.rglob("block-*.jsonl")} == blocks
    with pytest.raises(IntegrityError, match=r"rft\.samples: .*4.*5"):
        train(manifest_with(manifest, samples=5), RunOptions(resume="auto"))


def manifest_with(manifest: Path, **rft: Any) -> Path:
    written = read(manifest)
    written["training"]["rft"] |= rft
    path = manifest.with_name("other.json")
    path.write_text(json.dumps(written), encoding="utf-8")
    return path


NOTHING: dict[str, tuple[list[dict[str, Any]], dict[str, Any], str, str]] = {
    "nothing is right": (
        [prompt(n, 5) for n in range(100, 164)],
        {"gold": "always"},
        "none of 192 answers is right",
        "none of 192 answers is right",
    ),
    "all answers are the same, and right": (
        [prompt(n, 8) for n in range(100, 164)],
        {"temperature": 0.01},
        "all 192 answers are right",
        "the 4 answers to each prompt are the same, pass@4 = pass@1: drawing can not help",
    ),
    "no prompt has both": (
        [prompt(n, 8 if n % 16 < 8 else 5) for n in range(100, 164)],
        {"temperature": 0.01, "gold": "never"},
        "no prompt has some right answers and some wrong ones",
        "the 4 answers to each prompt are the same",
    ),
}


@pytest.mark.parametrize(("prompts", "rft", "reason", "warning"), NOTHING.values(), ids=NOTHING.keys())
def test_a_round_that_has_nothing_to_learn_from_ends_the_run_with_what_there_was(
    tmp_path: Path,
    learned: Path,
    model: Path,
    prompts: list[dict[str, Any]],
    rft: dict[str, Any],
    reason: str,
    warning: str,
) -> None:
    told = Told()
    manifest = unsure_expert(tmp_path, model, prompts, **rft)
    done = train(manifest, report=told, init_adapter=learned / "sft")
    assert reason in done.document["stop_reason"]
    assert not (done.output / "round-1" / "run").exists()
    assert done.document["adapter_sha256"] == read(learned / "sft" / "report.json")["adapter_sha256"]
    assert [line for line in told.warnings if warning in line]
    assert RunPaths(done.output).complete.exists()


def test_a_judge_that_is_missing_is_told_before_anything_is_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(typescript, "find_node", lambda: None)
    programs = [
        {"verifier": "typescript", "prompt": f"Write {n}.", "tests": "f();", "category": f"c{n % 4}"} for n in range(8)
    ]
    with pytest.raises(EnvironmentProblem, match=r"Node\.js 20"):
        train(unsure_expert(tmp_path, tmp_path / "no-model-is-here", programs))


def test_the_file_stop_ends_the_run_between_two_blocks(tmp_path: Path, learned: Path, model: Path) -> None:
    manifest = unsure_expert(tmp_path, model)
    output = tmp_path / "out"
    output.mkdir()
    (output / "STOP").touch()
    with pytest.raises(Interrupted, match=r"stopped by the file .*STOP in judging the first adapter") as ended:
        train(manifest, RunOptions(resume="auto"), output=output, init_adapter=learned / "sft")
    assert not ended.value.by_signal
    assert not (output / "STOP").exists()


class JudgingBars(NullReporter):
    """Notes how many answers each bar says are judged."""

    def __init__(self) -> None:
        self.answers: list[float | None] = []

    @contextmanager
    def progress(self, title: str, total: float | None, unit: str = "") -> Iterator[NullBar]:
        self.answers += [total] if title == "judging" else []
        yield NullBar()


def test_a_run_that_goes_on_does_not_try_every_prompt_again(
    tmp_path: Path, learned: Path, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reporter, "QUIET_S", -1)
    manifest, output, first, second = unsure_expert(tmp_path, model), tmp_path / "out", JudgingBars(), JudgingBars()
    for told in (first, second):
        output.mkdir(exist_ok=True)
        (output / "STOP").touch()
        with pytest.raises(Interrupted):
            train(manifest, RunOptions(resume="auto"), told, output=output, init_adapter=learned / "sft")
    assert (first.answers, second.answers) == ([64], [1])


class StopWhenTrainingBegins(TrainerCallback):
    """Puts the file STOP into a folder; steps are slow, since the file is looked for once a second."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def on_train_begin(self, *args: Any, **kwargs: Any) -> None:
        (self.folder / "STOP").touch()

    def on_step_end(self, *args: Any, **kwargs: Any) -> None:
        time.sleep(0.3)


def test_the_file_stop_ends_a_training_within_the_run_which_goes_on_from_there(tmp_path: Path, model: Path) -> None:
    output = tmp_path / "out"
    manifest = unsure_expert(tmp_path, model, rounds=1)
    with pytest.raises(Interrupted, match=r"stopped by the file .*out/sft/STOP"):
        train(manifest, RunOptions(callbacks=(StopWhenTrainingBegins(output),)), output=output)
    assert read(output / "status.json")["state"] == "stopped"
    assert 1 <= read(output / "sft" / "status.json")["step"] < 16
    assert not [*output.rglob("STOP")]
    assert train(manifest, RunOptions(resume="auto"), output=output).document["rft"]["best_round"] == 1


def test_a_plan_says_what_a_round_needs_at_most(tmp_path: Path, model: Path) -> None:
    told = api.estimate_run(unsure_expert(tmp_path, model, limit=40, keep=3, replay=0.5)).as_json()
    found, rows = told["rft"], read_stats(Path(told["store"]["path"]))["train"]
    assert (found["rounds"], found["prompts"], found["held_back"], found["answers"]) == (1, 40, 16, 160)
    assert found["tokens_at_most"] == 160 * 256
    assert found["rows_at_most"] == 40 * 3 + 64
    assert found["training_seconds_at_most"] > 0
    assert found["tokens"] == round(160 * rows["trained_tokens"] / rows["rows"]) < found["tokens_at_most"]
    assert found["sampling_seconds"] == pytest.approx(found["tokens"] / (0.5 * told["tokens_per_s"]))
    blocks = tmp_path / "drawn" / "round-1" / "samples"
    blocks.mkdir(parents=True)
    (blocks / "block-0001.jsonl").write_text('{"tokens": 640, "seconds": 16.0}\n', encoding="utf-8")
    found = api.estimate_run(unsure_expert(tmp_path, model, limit=40, keep=0, gold="failed", replay=0)).as_json()["rft"]
    assert found["rows_at_most"] == 40, "expected ones, of all prompts at most"
    manifest = unsure_expert(tmp_path, model, limit=40)
    found = api.estimate_run(manifest, output=tmp_path / "drawn").as_json()["rft"]
    assert found["sampling_seconds_at_most"] == found["tokens_at_most"] / 40
