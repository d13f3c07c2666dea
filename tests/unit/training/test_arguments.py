"""What a manifest may write of logs, evaluations and checkpoints is what transformers takes."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import pytest

from expert_cli.config.resolve import resolve
from expert_cli.config.run_config import RunConfig
from expert_cli.errors import EnvironmentProblem, InputError
from expert_cli.manifest.reader import load_manifest
from expert_cli.training import arguments
from expert_cli.training.arguments import training_arguments
from tests import manifests
from tests.machines import CPU

ASKED: dict[str, tuple[Any, ...]] = {
    "eval_strategy": (None, "no", "steps", "epoch"),
    "save_strategy": (None, "no", "steps", "epoch"),
    "eval_steps": (None, 3),
    "save_steps": (None, 5),
    "load_best_model_at_end": (None, True),
    "metric_for_best_model": (None, "execution_accuracy"),
}


def run_of(folder: Path, every_steps: int | None = None, **config: Any) -> RunConfig:
    manifest = manifests.small(**{name: value for name, value in config.items() if value is not None})
    if every_steps:
        manifest["evaluation"] = {"every_steps": every_steps, "sample": 2}
    return resolve(load_manifest(manifests.write(folder, manifest)), CPU)


def test_transformers_takes_every_pair_of_saving_and_evaluating_that_the_manifest_may_ask_for(tmp_path: Path) -> None:
    refused = []
    for values in product(*ASKED.values()):
        asked = dict(zip(ASKED, values, strict=True))
        by_answers = bool(asked["metric_for_best_model"])
        try:
            run = run_of(tmp_path, 4 if by_answers else None, **asked)
        except InputError:
            refused.append(asked)
            continue
        made = training_arguments(run, tmp_path / "checkpoints")
        assert made.load_best_model_at_end == bool(asked["load_best_model_at_end"])
        if made.load_best_model_at_end:
            assert made.save_strategy == (made.eval_strategy if run.watch.save_strategy != "no" else "best")
            assert made.metric_for_best_model == (asked["metric_for_best_model"] or "eval_loss")
            assert made.greater_is_better == by_answers
            assert (made.eval_strategy, made.eval_steps) == ("steps", 4) or not by_answers
    wanted = {"eval_strategy": "no", "load_best_model_at_end": True, "metric_for_best_model": None}
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
