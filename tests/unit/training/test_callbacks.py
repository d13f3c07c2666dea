"""When a checkpoint is due, what comes in which order, what a run says of itself, and sick runs end within a step."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import replace
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
import torch
from transformers import TrainerCallback, TrainerControl, TrainerState

from expert_cli.config.run_config import RunConfig
from expert_cli.errors import EnvironmentProblem, InputError, TrainingFailed
from expert_cli.hardware.devices import DEVICES
from expert_cli.manifest.keys.log_save_eval import LogSaveEvalConfig
from expert_cli.manifest.reader import load_manifest
from expert_cli.model.flat_parameters import FlatParameters
from expert_cli.model.flops import Flops
from expert_cli.runs.metrics import read_json
from expert_cli.training import arguments
from expert_cli.training.arguments import training_arguments
from expert_cli.training.callbacks import Done, MetricsCallback, StepCallback, seed_of
from expert_cli.training.health import TrainingHealth, TrainingState
from expert_cli.training.step_timer import StepTimer
from expert_cli.training.trainer import ExpertTrainer
from expert_cli.utils.reporter import Bar
from tests import manifests
from tests.fake_torch import as_if
from tests.machines import CPU
from tests.small_trainer import WATCH, small_trainer


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The clock, which stands still."""
    now = [0.0]
    monkeypatch.setattr("expert_cli.training.callbacks.time.monotonic", lambda: now[0])
    return now


DUE: dict[str, tuple[dict[str, Any], list[float]]] = {
    "by time": ({"save_every_s": 10.0}, [10, 20, 30]),
    "by a longer time: the first one after a minute": ({"save_every_s": 300.0}, [60, 360, 660]),
    "by steps": ({"save_strategy": "steps", "save_every_s": 0.0}, [60]),
    "never": ({"save_strategy": "no", "save_every_s": 0.0}, []),
}


@pytest.mark.parametrize(("watch", "due"), DUE.values(), ids=DUE.keys())
def test_a_checkpoint_is_due_by_the_clock(now: list[float], watch: dict[str, Any], due: list[float]) -> None:
    steps = StepCallback(replace(WATCH, **watch), 999, lambda: False)
    saved = []
    for now[0] in range(0, 700, 5):
        control = TrainerControl()
        steps.on_step_end(EVENT[0], TrainerState(global_step=1, max_steps=9), control)
        if control.should_save:
            saved.append(now[0])
            steps.on_save(*EVENT)
    assert saved[:3] == due


class Events(TrainerCallback):
    """Notes evaluations, checkpoints and the ends of epochs, by their step."""

    def __init__(self) -> None:
        self.seen: list[str] = []


def _noting(what: str) -> Callable[..., None]:
    return lambda self, args, state, control, **_: self.seen.append(f"{what} {state.global_step}")


for _event, _what in (("on_evaluate", "eval"), ("on_save", "save"), ("on_epoch_end", "epoch")):
    setattr(Events, _event, _noting(_what))


def watched(
    folder: Path, watch: LogSaveEvalConfig, stop: Callable[[ExpertTrainer], bool] = lambda _: False
) -> tuple[ExpertTrainer, Events]:
    """A trainer of two epochs of three steps."""
    made = small_trainer(folder, batch=2, accumulation=2, epochs=2.0, watch=watch, stop_asked=lambda: stop(made))
    events = Events()
    made.add_callback(events)
    return made, events


ORDER: dict[str, tuple[Any, Any, float, str]] = {
    "nothing": (("no", 9), ("no", 9), 0.0, "epoch 3, epoch 6"),
    "by steps": (("steps", 2), ("no", 9), 0.0, "save 2, epoch 3, save 4, save 6, epoch 6"),
    "steps, evaluated first": (("steps", 3), ("steps", 3), 0.0, "eval 3, save 3, epoch 3, eval 6, save 6, epoch 6"),
    "epochs, evaluated first": (("epoch", 9), ("epoch", 9), 0.0, "epoch 3, eval 3, save 3, epoch 6, eval 6, save 6"),
    "by time": (("no", 9), ("no", 9), 1e9, "epoch 3, epoch 6, save 6"),
    "by time, evaluated by steps": (("no", 9), ("steps", 4), 1e9, "epoch 3, eval 4, eval 6, epoch 6, save 6"),
}


@pytest.mark.parametrize(("save", "evaluate", "every_s", "order"), ORDER.values(), ids=ORDER.keys())
def test_what_comes_in_which_order_and_no_step_is_written_twice(
    tmp_path: Path, save: Any, evaluate: Any, every_s: float, order: str
) -> None:
    strategies = {"save_strategy": save[0], "save_steps": save[1], "eval_strategy": evaluate[0]}
    watch = replace(WATCH, **strategies, eval_steps=evaluate[1], save_every_s=every_s)
    made, events = watched(tmp_path, watch)
    made.train()
    assert ", ".join(events.seen) == order


def under_way(made: ExpertTrainer) -> bool:
    return bool(made.flat.gradient.any())


STOPPED: dict[str, tuple[int, Callable[[ExpertTrainer], bool], int, str]] = {
    "at a step's end": (2, lambda _: True, 0, "save 2, epoch 2"),
    "within a step": (2, under_way, 0, "epoch 2, save 2"),
    "within an epoch's first step": (3, under_way, 0, "epoch 3, eval 3, epoch 3, save 3"),
    "at an epoch's end": (3, lambda _: True, 0, "epoch 3, save 3"),
    "at an epoch's end that is judged": (3, lambda _: True, 2, "epoch 3, eval 3, save 3"),
    "within an epoch's first step, judged": (3, under_way, 2, "epoch 3, eval 3, epoch 3, save 3"),
}


@pytest.mark.parametrize(("step", "asked", "patience", "order"), STOPPED.values(), ids=STOPPED.keys())
def test_a_run_that_is_asked_to_stop_writes_its_step_once(
    tmp_path: Path, step: int, asked: Callable[[ExpertTrainer], bool], patience: int, order: str
) -> None:
    def stop(made: ExpertTrainer) -> bool:
        return made.state.global_step == step and asked(made)

    watch = replace(WATCH, eval_strategy="epoch", early_stopping_patience=patience)
    made, events = watched(tmp_path, watch, stop)
    made.train()
    assert made.state.global_step == len(made.progress.losses) == step
    assert ", ".join(events.seen) == order
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == [f"checkpoint-{step}"]


def test_every_step_and_process_has_a_seed_of_its_own(tmp_path: Path) -> None:
    seeds = {seed_of(seed, step, rank) for seed in range(3) for step in range(50) for rank in range(3)}
    assert len(seeds) == 450
    assert all(0 <= seed < 2**63 for seed in seeds)
    made, drawn = small_trainer(tmp_path, batch=2), []
    made.model.base.get_decoder().register_forward_hook(lambda *_: drawn.append(torch.initial_seed()))
    made.train()
    assert drawn == [seed_of(made.args.seed, step, 0) for step in range(6)]


MB = 2**20
EVENT: Any = (None, TrainerState(), None)
"""What a callback is handed, of which these read the state alone."""


def line_of(made: MetricsCallback, **logs: float) -> dict[str, Any]:
    """Log, and return the line that was written."""
    made.on_log(*EVENT, logs)
    return read_json(made.metrics)  # type: ignore[no-any-return]


def watching(folder: Path, *, on_gpu: bool) -> MetricsCallback:
    timer, metrics = StepTimer(DEVICES["cuda" if on_gpu else "cpu"]), folder / "metrics.jsonl"
    made = MetricsCallback(TrainingState(), timer, metrics, Flops(1.0, 1.0), 0.0)
    made.bar = Bar()
    return made


@pytest.mark.parametrize("on_gpu", [False, True], ids=["cpu", "gpu"])
def test_memory_is_that_of_the_device_in_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, on_gpu: bool) -> None:
    as_if(monkeypatch, "cuda")
    peak = [9 * MB]  # of a batch that did not fit, before training began
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda: peak[0])
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", lambda: peak.__setitem__(0, 7 * MB))
    metrics_callback = watching(tmp_path, on_gpu=on_gpu)
    metrics_callback.on_train_begin(*EVENT)
    metrics_callback.on_step_end(*EVENT)
    line = line_of(metrics_callback, loss=1.0, learning_rate=0.1)
    if on_gpu:
        assert (metrics_callback.peak_memory_mb, line["memory_mb"], line["spilled_mb"]) == (7.0, 5.0, 10.0)
    else:
        resident = psutil.Process().memory_info().rss / MB
        assert metrics_callback.peak_memory_mb == pytest.approx(resident, rel=0.2)
        assert line["memory_mb"] == pytest.approx(resident, rel=0.2)
        assert line["spilled_mb"] == 0.0


def test_after_a_resume_the_speed_is_that_of_this_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [50.0]
    monkeypatch.setattr("expert_cli.training.callbacks.time", SimpleNamespace(monotonic=lambda: now[0], time=time.time))
    notes: list[str] = []
    metrics_callback = watching(tmp_path, on_gpu=False)
    metrics_callback.bar = SimpleNamespace(update=lambda _, note="": notes.append(note))  # type: ignore[assignment]
    progress = metrics_callback.progress
    progress.real, progress.trained, progress.seconds = 1000, 100, 400.0
    metrics_callback.on_train_begin(*EVENT)
    assert metrics_callback.done_here().tokens_per_s == 0.0, "nothing is done yet"
    progress.real, progress.trained, now[0] = 1600, 160, 53.0
    metrics_callback.on_step_end(*EVENT)
    assert notes[-1].startswith("200 tokens/s")
    assert (progress.seconds, metrics_callback.done_here()) == (403.0, Done(600, 60, 3.0))
    now[0] = 55.0
    assert line_of(metrics_callback, eval_loss=1.0)["seconds"] == 405.0
    assert progress.seconds == 405.0, "a checkpoint that follows counts the evaluation"
    now[0] = 56.0
    metrics_callback.on_train_end(*EVENT)
    assert progress.seconds == 406.0
    assert sum(metrics_callback.timer.totals.values()) > 0, "both clocks stop"


ASKED: dict[str, tuple[Any, ...]] = {
    "eval_strategy": (None, "no", "steps", "epoch"),
    "save_strategy": (None, "no", "steps", "epoch"),
    "eval_steps": (None, 3),
    "save_steps": (None, 5),
    "load_best_model_at_end": (None, True),
}


def run_of(folder: Path, **config: Any) -> RunConfig:
    manifest = manifests.small(**{name: value for name, value in config.items() if value is not None})
    return manifests.resolve(load_manifest(manifests.write(folder, manifest)), CPU)


def test_transformers_takes_every_pair_of_saving_and_evaluating_that_the_manifest_may_ask_for(tmp_path: Path) -> None:
    refused = []
    for values in product(*ASKED.values()):
        asked = dict(zip(ASKED, values, strict=True))
        try:
            run = run_of(tmp_path, **asked)
        except InputError:
            refused.append(asked)
            continue
        made = training_arguments(run, tmp_path / "checkpoints")
        assert made.load_best_model_at_end == bool(asked["load_best_model_at_end"])
        if made.load_best_model_at_end:
            assert made.save_strategy == (made.eval_strategy if run.watch.save_strategy != "no" else "best")
            assert (made.metric_for_best_model, made.greater_is_better) == ("eval_loss", False)
    wanted = {"eval_strategy": "no", "load_best_model_at_end": True}
    assert len(refused) == 16
    assert all(wanted.items() <= one.items() for one in refused)


RENAMED: dict[str, tuple[dict[str, Any], str, Any]] = {
    "paged, by its width": ({"optim": "paged_adamw"}, "optim", "paged_adamw_32bit"),
    "our own schedule": ({"lr_scheduler": "one_cycle"}, "lr_scheduler_type", "constant"),
    "two are kept at least": ({"save_strategy": "epoch", "save_total_limit": 1}, "save_total_limit", 2),
    "all are kept": ({"save_strategy": "epoch"}, "save_total_limit", None),
}


@pytest.mark.parametrize(("config", "name", "value"), RENAMED.values(), ids=RENAMED.keys())
def test_what_transformers_calls_otherwise(tmp_path: Path, config: dict[str, Any], name: str, value: Any) -> None:
    assert getattr(training_arguments(run_of(tmp_path, **config), tmp_path), name) == value


def test_a_tracker_that_is_not_installed_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arguments, "has_package", lambda name: name != "trackio")
    with pytest.raises(EnvironmentProblem, match="report_to: trackio is not installed") as raised:
        training_arguments(run_of(tmp_path, report_to=["tensorboard", "trackio"]), tmp_path)
    assert raised.value.hint.startswith("pip install trackio")
    assert training_arguments(run_of(tmp_path, report_to="tensorboard"), tmp_path).report_to == []


def health(*, scaled: bool = False) -> TrainingHealth:
    flat = FlatParameters([(f"{layer}.lora_A", torch.nn.Parameter(torch.ones(1))) for layer in ("up", "down")])
    return TrainingHealth(TrainingState(), flat, lambda step: f"documents of step {step}", scaled=scaled)


SICK = {
    "nan loss": (math.nan, 1.0, "the loss of step 1 is nan; documents of step 0"),
    "infinite gradients": (1.0, math.inf, "the gradient norm of step 1 is inf"),
    "loss of zero": (0.0, 1.0, "the loss of step 1 is exactly 0.0; documents of step 0"),
}


@pytest.mark.parametrize(("loss", "norm", "message"), SICK.values(), ids=SICK.keys())
def test_a_sick_step_ends_the_run_and_is_named(loss: float, norm: float, message: str) -> None:
    with pytest.raises(TrainingFailed) as caught:
        health().record(torch.tensor([loss, norm, 1.0, 1.0]))
    assert message in caught.value.message
    assert caught.value.hint


def test_fp16_skips_a_step_whose_gradients_overflow() -> None:
    kept = health(scaled=True)
    kept.record(torch.tensor([1.5, math.inf, 1.0, 1.0]))
    assert kept.progress.losses == [1.5]


def test_a_dead_layer_ends_the_run() -> None:
    watched, figures = health(), torch.tensor([1.0, 1.0, 1.0, 0.0])
    for _ in range(2):
        watched.record(figures)
    with pytest.raises(TrainingFailed, match=r"1 adapter layers get no gradient at all, down among them \(step 3\)"):
        watched.record(figures)


def test_on_a_gpu_figures_are_read_when_the_next_step_is_done_or_when_they_are_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    done: list[str] = []
    mark = SimpleNamespace(record=lambda: done.append("mark"), synchronize=lambda: done.append("wait"))
    empty = torch.empty
    monkeypatch.setattr(torch.cuda, "Event", lambda *, enable_timing: mark)
    monkeypatch.setattr("expert_cli.training.health.device_of", lambda _: DEVICES["cuda"])
    monkeypatch.setattr(torch, "empty", lambda count, **_: empty(count))  # there is none to be pinned
    watched = health()
    for step, loss in enumerate((1.5, 1.25)):
        watched.record(torch.tensor([loss, 0.5, 1.0, 1.0]))
        assert len(watched.progress.losses) == step
    assert done == ["mark", "wait", "mark"]
    watched.flush()
    watched.flush()
    assert (watched.progress.losses, watched.grad_norm, done[3:]) == ([1.5, 1.25], 0.5, ["wait"])
    watched.record(torch.tensor([math.nan, 0.5, 1.0, 1.0]))
    with pytest.raises(TrainingFailed, match="the loss of step 3 is nan"):
        watched.record(torch.tensor([1.0, 0.5, 1.0, 1.0]))


def test_a_step_that_trains_no_token_ends_the_run(tmp_path: Path) -> None:
    with pytest.raises(TrainingFailed, match=r"step 1 trains no token; its documents \(counted from 0\): \d+, \d+"):
        small_trainer(tmp_path, batch=2, documents=[(0, 1)] * 12).train()


def test_a_run_ends_in_the_step_that_is_sick_and_names_its_documents(tmp_path: Path) -> None:
    made = small_trainer(tmp_path, batch=2, accumulation=2)
    steps: list[int] = []

    def spoil(_module: Any, _args: Any, out: Any) -> None:
        steps.append(made.state.global_step)
        if made.state.global_step == 1:
            out.last_hidden_state.mul_(math.nan)

    made.model.base.get_decoder().register_forward_hook(spoil)
    _, numbers = made.batches.packs_of(1)
    rows = ", ".join(map(str, sorted(numbers.tolist())))
    with pytest.raises(TrainingFailed) as caught:
        made.train()
    assert caught.value.message == f"the loss of step 2 is nan; its documents (counted from 0): {rows}"
    assert max(steps) == 1
