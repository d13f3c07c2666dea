"""A run that broke off or was killed goes on as if nothing had happened: the same losses, the same adapter, bit for bit."""

from __future__ import annotations

import errno
import json
import os
import shlex
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import TrainerCallback

import expert_cli
from benchmarks import kill_test
from benchmarks.kill_test import WORKERS, Moment
from expert_cli.errors import EnvironmentProblem, InputError, IntegrityError, TrainingFailed
from expert_cli.pipeline.train import RunOptions
from expert_cli.runs.metrics import read_json
from expert_cli.runs.run_paths import RunPaths
from expert_cli.training import checkpoint
from expert_cli.utils.reporter import Bar
from tests import manifests, tiny
from tests.forked_cli import Forked
from tests.small_trainer import IMPOSSIBLE
from tests.train.projects import ROWS, command, project, train
from tests.words import Words

RESUME = RunOptions(resume="auto")


class Crash(Exception):
    """The end of a process, as far as a test can have it in its own."""


class CrashingAt(Words):
    """A reporter under which training dies at the end of a step, before that step is saved; -1: of none."""

    def __init__(self, step: int = -1) -> None:
        super().__init__()
        self.step = step

    def update(self, done: float, note: str = "") -> None:
        if done == self.step:
            raise Crash

    @contextmanager
    def progress(self, title: str, total: float | None, unit: str = "") -> Iterator[Bar]:
        yield self if title == "training" else Bar()  # type: ignore[misc]


def losses(output: Path) -> list[float]:
    found = checkpoint.latest_valid(RunPaths(output).checkpoints)[0]
    assert found is not None
    return checkpoint.read(found).tensors["losses"].tolist()  # type: ignore[no-any-return]


def metrics(output: Path) -> list[tuple[Any, ...]]:
    lines = [json.loads(line) for line in RunPaths(output).metrics.read_text(encoding="utf-8").splitlines()]
    return [
        tuple(line.get(key) for key in ("step", "loss", "grad_norm", "learning_rate", "eval_loss")) for line in lines
    ]


CASES: dict[str, dict[str, Any]] = {
    "one cycle, grouped, noise, dora": {
        "lr_scheduler": "one_cycle",
        "packing": False,
        "group_by_length": True,
        "adapter_type": "dora",
        "neftune_noise_alpha": 5.0,
        "optim": "adafactor",
        "max_steps": None,
        "epochs": 3,
        "batch_size": 12,
    },
    "evaluations, best": {"eval_steps": 1, "load_best_model_at_end": True, "learning_rate": 0.3},
    "by evaluations": {"lr_scheduler": "reduce_lr_on_plateau", "lr_scheduler_kwargs": {"patience": 0}, "eval_steps": 1},
    "greedy": {"lr_scheduler": "greedy", "lr_scheduler_kwargs": {"patience": 1}, "eval_steps": 1},
    "other packs in every epoch": {"max_steps": None, "epochs": 3, "batch_size": 2},
}


@pytest.mark.parametrize("config", CASES.values(), ids=CASES.keys())
def test_it_goes_on_bit_for_bit(tmp_path: Path, config: dict[str, Any]) -> None:
    """From the newest checkpoint that is whole: the one that is damaged is named."""
    manifest = project(tmp_path, save_steps=1, logging_steps=1, save_total_limit=3, **config)
    straight = train(manifest, output=tmp_path / "a")
    steps = straight.document["steps"]
    with pytest.raises(Crash):
        train(manifest, RESUME, CrashingAt(steps - 1), output=tmp_path / "b")
    broken = tmp_path / "b" / "checkpoints" / f"checkpoint-{steps - 2}" / "optimizer.safetensors"
    broken.write_bytes(broken.read_bytes()[:-100] + b"\1" * 100)
    report = CrashingAt()
    resumed = train(manifest, RESUME, report, output=tmp_path / "b")
    told = [line for line in report.lines if f"checkpoint-{steps - 2} is damaged" in line]
    assert ["using the one before it" in line for line in told] == [True]
    assert resumed.document["resumed_from"].endswith(f"checkpoint-{steps - 3}")
    assert losses(tmp_path / "b") == losses(tmp_path / "a")
    for key in ("adapter_sha256", "steps", "epochs", "loss", "eval_loss", "tokens"):
        assert resumed.document[key] == straight.document[key], key
    assert metrics(tmp_path / "b") == metrics(tmp_path / "a")
    older = RunOptions(resume=str(tmp_path / "a" / "checkpoints" / f"checkpoint-{steps - 2}"))
    with pytest.raises(Crash):
        train(manifest, older, CrashingAt(steps), output=tmp_path / "c")
    moved = train(manifest, RESUME, output=tmp_path / "c")
    assert moved.document["adapter_sha256"] == straight.document["adapter_sha256"]


def test_a_checkpoint_goes_on_whose_best_step_is_gone(tmp_path: Path) -> None:
    best = {"load_best_model_at_end": True, "eval_steps": 1, "save_steps": 1, "learning_rate": 5.0, "seed": 12}
    done = train(project(tmp_path, **best, max_steps=8))
    last = RunPaths(done.output).checkpoints / "checkpoint-7"
    assert checkpoint.read(last).trainer_state["best_global_step"] < 7
    alone = shutil.copytree(last, tmp_path / "moved" / "checkpoints" / last.name)
    again = train(tmp_path / "manifest.json", RunOptions(resume=str(alone)), output=tmp_path / "moved")
    assert losses(again.output) == losses(done.output)


def test_settings_that_may_differ_count_from_the_checkpoint_on(tmp_path: Path) -> None:
    old: dict[str, Any] = {"lr_scheduler": "one_cycle", "save_steps": 1, "logging_steps": 1, "eval_steps": 1}
    old |= {"learning_rate": 0.3, "max_steps": 4, "early_stopping_patience": 9}
    with pytest.raises(Crash):
        train(project(tmp_path, **old), RESUME, CrashingAt(4))
    new = project(tmp_path, **{**old, "learning_rate": 0.2, "max_steps": 12, "early_stopping_patience": 2})
    straight = train(new, output=tmp_path / "straight").output
    changed = ("optim.learning_rate", "optim.max_steps", "best model")
    done = train(new, RunOptions(resume="auto", allow_drift=changed))
    rates = [
        {step: rate for step, _, _, rate, _ in metrics(run) if rate and step > 3} for run in (done.output, straight)
    ]
    assert rates[0].items() >= rates[1].items() or rates[1].items() >= rates[0].items()
    assert rates[0]
    assert "early_stopping_patience is 2" in done.document["stop_reason"]


@pytest.mark.parametrize("schedule", ["reduce_lr_on_plateau", "greedy"])
def test_a_schedule_has_the_patience_of_the_run_that_goes_on(tmp_path: Path, schedule: str) -> None:
    often: dict[str, Any] = {"lr_scheduler": schedule, "save_steps": 1, "logging_steps": 1, "eval_steps": 1}
    often |= {"learning_rate": 5.0, "max_steps": 9, "lr_scheduler_kwargs": {"patience": 50}}
    with pytest.raises(Crash):
        train(project(tmp_path, **often), RESUME, CrashingAt(3))
    new = project(tmp_path, **{**often, "lr_scheduler_kwargs": {"patience": 0}})
    done = train(new, RunOptions(resume="auto", allow_drift=("optim.scheduler_kwargs",)))
    rates = [rate for _, _, _, rate, _ in metrics(done.output) if rate]
    assert min(rates) < rates[0]


def test_a_run_that_is_complete_returns_its_result_unless_settings_or_data_are_others(tmp_path: Path) -> None:
    def told() -> list[str]:
        report = CrashingAt()
        assert train(manifest, RESUME, report).document == done.document
        assert report.lines.pop() == f"the run in {done.output} is complete: nothing is left to do"
        return report.lines

    manifest, rows, report = project(tmp_path, save_steps=4), tmp_path / "train.jsonl", CrashingAt(3)
    with pytest.raises(Crash):
        train(manifest, RESUME, report)
    assert "no checkpoint to resume from: training starts" in report.lines
    done = train(manifest, RESUME)
    assert done.document["resumed_from"] is None
    written, before = (done.output / "COMPLETE").stat().st_mtime_ns, rows.read_bytes()
    os.utime(rows, (1, 1))
    assert told() == []
    assert (done.output / "COMPLETE").stat().st_mtime_ns == written
    rows.write_bytes(before.replace(b"Add 1", b"Add 2"))
    with pytest.raises(IntegrityError, match=r"run\.json belongs to another run: store\.train data: "):
        train(manifest, RESUME)
    rows.unlink()
    assert told() == []
    other = project(tmp_path, save_steps=4, max_steps=8, completion_only_loss=False)
    with pytest.raises(
        IntegrityError, match=r"run\.json belongs to another run: optim.max_steps: 6 -> 8; store.trained turns: "
    ):
        train(other, RESUME)
    with pytest.raises(IntegrityError, match=r"another run: optim\.max_steps: 6 -> 8;") as caught:
        train(other, RunOptions(resume="auto", allow_drift=("optim.max_steps", "store.trained turns")))
    assert caught.value.hint.endswith(f"--overwrite, or train on with --from {done.output} and another --output")
    weights = done.output / "adapter" / "adapter_model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1])
    with pytest.raises(IntegrityError, match="is not the adapter that "):
        train(project(tmp_path, save_steps=4), RESUME)


def test_a_damaged_run_json_is_written_anew(tmp_path: Path) -> None:
    manifest, damage, paths = project(tmp_path, save_steps=2), '{"resumes": 3}', RunPaths(tmp_path / "run")
    with pytest.raises(Crash):
        train(manifest, report=CrashingAt(3), output=paths.output)
    paths.run_json.write_text(damage, encoding="utf-8")
    with paths.metrics.open("ab") as metrics_file:
        metrics_file.write(b'{\n\xff\n[]\n{"step": "2"}\n')
    done = train(manifest, RESUME, output=paths.output)
    assert done.document["resumed_from"].endswith("checkpoint-2")
    assert len(read_json(paths.run_json)["resumes"]) == 1
    assert [line[0] for line in metrics(done.output)] == [1, 2, 4, 6]
    paths.report_json.write_text(damage, encoding="utf-8")
    with pytest.raises(IntegrityError, match=r"report\.json of a complete run names"):
        train(manifest, RESUME, output=paths.output)


REFUSED: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "mask": ({}, {"completion_only_loss": False}, r"store.trained turns: answers -> everything"),
    "columns": (
        {"field_mapping": {"instruction": "output", "response": "instruction"}},
        {},
        r"store.mapping: \{\} -> ",
    ),
    "learning rate": ({}, {"learning_rate": 0.5}, r"optim.learning_rate: 0.02 -> 0.5"),
    "batch": ({}, {"batch_size": 4}, r"optim.batch_size: 8 -> 4"),
}


def test_a_run_that_differs_is_refused_with_what_differs(tmp_path: Path) -> None:
    def changed(dataset: dict[str, Any], config: dict[str, Any]) -> Path:
        manifest = project(tmp_path, save_steps=2, **config)
        written = read_json(manifest)
        written["training"]["dataset"] |= dataset
        return manifests.write(tmp_path, written)

    with pytest.raises(Crash):
        train(changed({}, {}), report=CrashingAt(3))
    recorded = RunPaths(tmp_path / "weights" / "tiny-llama").run_json
    for dataset, config, message in REFUSED.values():
        with pytest.raises(IntegrityError, match=message) as caught:
            train(changed(dataset, config), RESUME)
        assert "--allow-drift" in caught.value.hint
        with pytest.raises(IntegrityError, match=message):
            train(changed(dataset, config), RunOptions(locked=recorded), output=tmp_path / "other")
    with pytest.raises(IntegrityError, match="data: "):
        train(project(tmp_path, rows=ROWS[1:], save_steps=2), RESUME)
    assert not (tmp_path / "other").exists()
    resumed = train(changed({}, {"dataloader_num_workers": 2}), RESUME)
    assert resumed.document["resumed_from"].endswith("checkpoint-2")


def test_a_full_disk_names_the_checkpoints_that_there_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(checkpoint, "_fill", full)
    hints = []
    for _ in range(2):
        with pytest.raises(EnvironmentProblem) as caught:
            checkpoint.write(tmp_path, 2, checkpoint.CheckpointState({}, {}, {}, {}, {}))
        hints.append(caught.value.hint)
        (tmp_path / "checkpoint-1").mkdir(exist_ok=True)
    before = "; the checkpoints before are intact: continue with --resume auto"
    assert hints == [f"free some space, or give another folder with --output{told}" for told in ("", before)]


class Full(TrainerCallback):
    """Asks once for more memory than there is, in the middle of a run."""

    def __init__(self, step: int) -> None:
        self.step = step

    def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if state.global_step == self.step:
            torch.empty(IMPOSSIBLE, dtype=torch.uint8)


def test_the_command_after_a_lack_of_memory_trains_with_less_and_says_so(tmp_path: Path) -> None:
    config = {"batch_size": 8, "gradient_accumulation_steps": 1}
    manifest = project(tmp_path, save_steps=2, max_seq_length=16, **config)
    straight = train(manifest, output=tmp_path / "a")
    with pytest.raises(TrainingFailed, match=r"out of memory at step 4; the checkpoints in .* are safe") as caught:
        expert_cli.train(manifest, output=tmp_path / "b", callbacks=[Full(3)])
    program, *words = shlex.split(caught.value.hint.removeprefix("continue: "))
    assert program == "expert-cli"
    done = command(*words)
    assert done.exit_code == 0, done.output
    recorded = read_json(RunPaths(tmp_path / "b").run_json)
    assert len(recorded["resumes"]) == 1
    optim = recorded["config"]["optim"]
    assert (optim["batch_size"], optim["gradient_accumulation_steps"]) == (4, 2)
    assert losses(tmp_path / "b") == pytest.approx(losses(tmp_path / "a"), rel=1e-4)
    assert straight.document["steps"] == 6


def test_a_finished_run_that_goes_on_is_not_complete_until_it_ends_again(tmp_path: Path) -> None:
    manifest = project(tmp_path, save_steps=2)
    done = train(manifest)
    paths = RunPaths(done.output)
    for wrong in (tmp_path / "nothing", paths.adapter):
        with pytest.raises(InputError, match="is no checkpoint"):
            train(manifest, RunOptions(resume=str(wrong)), output=tmp_path / "d")
    elsewhere = train(manifest, RunOptions(resume=str(paths.checkpoints / "checkpoint-4")), output=tmp_path / "c")
    assert elsewhere.document["adapter_sha256"] == done.document["adapter_sha256"]
    with pytest.raises(Crash):
        train(manifest, RunOptions(resume=str(paths.checkpoints / "checkpoint-4")), CrashingAt(5))
    assert not paths.complete.exists()
    for again in ("checkpoint-4", "checkpoint-6"):
        resumed = train(manifest, RunOptions(resume=str(paths.checkpoints / again)))
        assert resumed.document["adapter_sha256"] == done.document["adapter_sha256"]
        assert resumed.document["steps"] == 6
        assert paths.complete.read_text(encoding="utf-8").startswith(done.document["adapter_sha256"])


STEPS = 8
MOMENTS = (
    Moment("between two checkpoints", lambda now: 0 < max(now.saved, default=0) < now.logged and not now.writing),
    Moment("a later one half written", lambda now: now.writing and bool(now.saved)),
    Moment("after the last checkpoint", lambda now: STEPS in now.saved and not now.complete),
)
KILLED = {**WORKERS, "gradient_accumulation_steps": 2, "dropout": 0.1, "optim": "adamw_8bit", "rank": 64, "bf16": True}
KILLED |= {"batch_size": 2, "max_steps": STEPS, "save_steps": 2}


@pytest.mark.skipif(sys.platform != "linux", reason="forks, stops and kills processes")
def test_a_killed_run_ends_like_an_unbroken_one(tmp_path: Path) -> None:
    model = tiny.tiny_model_folder(tmp_path / "model")
    manifest = kill_test.write_project(tmp_path / "project", model, "int4", KILLED)
    kill_test.finish(Forked(kill_test.command(manifest, tmp_path / "unbroken"), tmp_path))
    broken = kill_test.command(manifest, tmp_path / "broken")
    for moment in MOMENTS:
        left = kill_test.kill(Forked(broken, tmp_path), tmp_path / "broken", moment)
        assert left is not None, f"ended before: {moment.name}"
        assert moment.reached(left)
    kill_test.finish(Forked(broken, tmp_path))
    assert kill_test.traces(tmp_path / "broken") == kill_test.traces(tmp_path / "unbroken")
    assert len(kill_test.traces(tmp_path / "broken")["losses"]) == STEPS
