"""What a probe's process answers, and with what it is started."""

from __future__ import annotations

from pathlib import Path

import pytest

from expert_cli.config.resolve import Overrides, resolve
from expert_cli.errors import InputError
from expert_cli.estimate.throughput import probe, probe_overrides, speed
from expert_cli.manifest.reader import load_manifest
from tests import manifests
from tests.machines import CPU


def test_a_probe_that_cannot_train_says_why(tmp_path: Path) -> None:
    path = manifests.write(tmp_path, manifests.small())
    with pytest.raises(InputError, match=r"the probe failed: .*train\.jsonl"):
        probe(resolve(load_manifest(path), CPU), Overrides(offline=True))


def test_the_first_step_does_not_count_and_the_spread_is_told() -> None:
    rate, spread = speed([(100, 9.0), (200, 10.0), (300, 12.0), (400, 13.0)])
    assert rate == 75.0
    assert spread == 50.0  # 50 to 100 tokens a second


@pytest.mark.parametrize("chosen_by", ["execution_accuracy", "eval_loss"])
def test_a_run_that_chooses_its_best_step_can_be_probed(tmp_path: Path, chosen_by: str) -> None:
    best = {"load_best_model_at_end": True, "early_stopping_patience": 2, "metric_for_best_model": chosen_by}
    steps = {"eval_strategy": "steps", "save_strategy": "steps"} if chosen_by == "eval_loss" else {}
    written = {**manifests.small(**best, **steps), "evaluation": {"every_steps": 5}}
    path, machine = manifests.write(tmp_path, written), CPU
    settings = probe_overrides(resolve(load_manifest(path), machine), Overrides()).settings
    watch = resolve(load_manifest(path, settings), machine).watch
    assert (watch.execution_eval_steps, watch.load_best_model_at_end) == (0, False)
    assert watch.eval_strategy == ("steps" if steps else "no"), "the store has the same rows"


def test_what_was_set_by_hand_gives_way_to_the_probe(tmp_path: Path) -> None:
    path, by_hand = manifests.write(tmp_path, manifests.small()), "training.config.gradient_accumulation_steps=8"
    overrides = Overrides(settings=(by_hand, "training.config.rank=2"))
    found = probe_overrides(resolve(load_manifest(path, overrides.settings), CPU), overrides)
    run = resolve(load_manifest(path, found.settings), CPU)
    assert (run.optim.gradient_accumulation_steps, run.adapter.rank) == (1, 2)
