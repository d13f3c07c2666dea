"""Sweeps: which combinations there are, at which accumulation, and how they are ranked."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from expert_cli.benchmark.measured_run import StepCounts, Variant
from expert_cli.benchmark.sweep import combinations, parse_sweep, sweep
from expert_cli.benchmark.tables import as_text
from expert_cli.config.resolve import Overrides
from expert_cli.errors import EnvironmentProblem, ExpertError, InputError, ManifestError, TrainingFailed
from expert_cli.utils.reporter import NullReporter
from tests import manifests
from tests.measurements import MACHINE, measured, runner, valid


@pytest.fixture
def manifest(tmp_path: Path) -> Path:
    (tmp_path / "datasets").mkdir()
    (tmp_path / "datasets" / "train.jsonl").touch()
    return manifests.write(tmp_path, manifests.small(batch_size=4, gradient_accumulation_steps=2))


def swept(
    manifest: Path, keys: list[str], answer: Any, repeats: int = 1, asked: list[tuple[str, int]] | None = None
) -> Any:
    """Sweep with runs that measure what `answer` returns; `asked` gets (side, seed) of each."""
    runs = runner(answer, [] if asked is None else asked)
    return sweep(manifest, keys, Overrides(), StepCounts(3, 1), repeats, MACHINE, NullReporter(), runs)


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        (["batch_size=2,4,8"], {"batch_size": [2, 4, 8]}),
        (["training.config.batch_size=2"], {"batch_size": [2]}),
        (["packing=true,false,concat"], {"packing": [True, False, "concat"]}),
        ([" rank = 8 , 16 ", "optim=adamw_torch"], {"rank": [8, 16], "optim": ["adamw_torch"]}),
    ],
)
def test_what_is_swept(asked: list[str], found: dict[str, list[Any]]) -> None:
    assert parse_sweep(asked) == found


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (["batch_size"], "not of the form"),
        (["batch_size=2,,4"], "not of the form"),
        (["batch_size=2,2"], "names a value twice"),
        (["batch_size=2", "training.config.batch_size=4"], "--sweep batch_size is there twice"),
    ],
)
def test_what_is_no_sweep(asked: list[str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        parse_sweep(asked)


@pytest.mark.parametrize(
    ("values", "found"),
    [
        pytest.param({"batch_size": [2, 8]}, [("batch_size=2 gradient_accumulation_steps=4", ""),
                     ("batch_size=8 gradient_accumulation_steps=1", "")], id="accumulation follows"),
        pytest.param({"batch_size": [3, 16]}, [("batch_size=3", "batch_size 3 does not divide the effective batch 8"),
                     ("batch_size=16", "batch_size 16 does not divide the effective batch 8")], id="indivisible"),
        pytest.param({"gradient_accumulation_steps": [2]}, [("gradient_accumulation_steps=2 batch_size=4", "")],
                     id="batch follows"),
        pytest.param({"batch_size": [2, 4], "gradient_accumulation_steps": [2]},
                     [("batch_size=2 gradient_accumulation_steps=2", "its effective batch is 4, not 8"),
                      ("batch_size=4 gradient_accumulation_steps=2", "")], id="both are given"),
        pytest.param({"packing": [True, False]}, [("packing=true", ""), ("packing=false", "")], id="neither"),
    ],
)  # fmt: skip
def test_combinations_keep_the_effective_batch(values: dict[str, list[Any]], found: list[tuple[str, str]]) -> None:
    assert [(trial.name, trial.reason) for trial in combinations(values, 4, 2)] == found


def test_every_combination_is_there() -> None:
    assert len(combinations({"batch_size": [1, 2, 4], "dataloader_num_workers": [0, 2, 4]}, 4, 2)) == 9
    with pytest.raises(InputError, match="batch_size=large: must be whole numbers"):
        combinations({"batch_size": ["large"]}, 4, 2)


def test_the_fastest_that_fits(manifest: Path) -> None:
    def answer(side: Variant, seed: int) -> Any:
        batch = int(side.name.split()[0].partition("=")[2])
        if batch == 8:
            raise TrainingFailed("b: a full step of 8 packs does not fit the GPU's memory")
        if batch == 1:
            raise TrainingFailed("b: the loss of step 1 is nan")
        return measured(seed, 10.0 * batch)

    asked: list[tuple[str, int]] = []
    keys = ["batch_size=1,2,3,4,8"]
    found = swept(manifest, keys, answer, 2, asked)
    document = valid(found.as_json())
    # the second round runs backwards, without those that cannot be run
    assert [(name.split()[0], seed) for name, seed in asked] == [
        *(("batch_size=1", 42), ("batch_size=2", 42), ("batch_size=4", 42), ("batch_size=8", 42)),
        *(("batch_size=4", 43), ("batch_size=2", 43)),
    ]
    states = [(trial["settings"]["batch_size"], trial["status"]) for trial in document["trials"]]
    assert states == [(4, "ran"), (2, "ran"), (1, "failed"), (3, "not run"), (8, "does not fit")]
    assert document["fastest"]["manifest"] == {
        "training": {"config": {"batch_size": 4, "gradient_accumulation_steps": 2}}
    }
    text = as_text(document)
    assert "--set training.config.batch_size=4 --set training.config.gradient_accumulation_steps=2" in text
    assert "not run: batch_size 3 does not divide the effective batch 8" in text
    assert document["notes"] == []
    assert found.exit_code == 0


def test_what_is_too_close_to_call(manifest: Path) -> None:
    found = swept(manifest, ["rank=4,8"], lambda side, seed: measured(seed, 100.0 if "4" in side.name else 99.0))
    assert found.as_json()["notes"] == ["the first two are 1.0% apart: more --steps and --repeats tell which is faster"]


def test_a_missing_model_ends_the_sweep(manifest: Path) -> None:
    def answer(side: Variant, seed: int) -> Any:
        raise EnvironmentProblem("rank=4: the hub cannot be reached")

    with pytest.raises(EnvironmentProblem, match="the hub"):
        swept(manifest, ["rank=4,8"], answer)


@pytest.mark.parametrize(
    ("error", "status"),
    [
        pytest.param(TrainingFailed("the loss of step 1 is nan"), "failed", id="not finite"),
        pytest.param(TrainingFailed("out of GPU memory at step 3"), "does not fit", id="in training"),
        pytest.param(EnvironmentProblem("m does not fit into the GPU's memory"), "does not fit", id="in loading"),
        pytest.param(
            TrainingFailed("killed by the system, most likely for want of memory"), "does not fit", id="killed"
        ),
        pytest.param(EnvironmentProblem("Base model memory-7b is not on this machine"), "", id="a missing model"),
    ],
)  # fmt: skip
def test_a_setting_that_speaks_of_memory_is_no_want_of_it(manifest: Path, error: ExpertError, status: str) -> None:
    def answer(side: Variant, seed: int) -> Any:
        raise type(error)(f"{side.name}: {error.message}")

    keys = ["dataloader_pin_memory=true,false"]
    if status:
        found = swept(manifest, keys, answer)
        assert [trial.status for trial in found.trials] == [status, status]
        assert found.exit_code == 4
    else:
        with pytest.raises(EnvironmentProblem, match="memory-7b"):
            swept(manifest, keys, answer)


def test_interrupted_with_what_there_is(manifest: Path) -> None:
    def answer(side: Variant, seed: int) -> Any:
        if side.name == "rank=8":
            raise KeyboardInterrupt
        return measured(seed, 10.0)

    found = swept(manifest, ["rank=4,8"], answer)
    document = valid(found.as_json())
    assert [(t["status"], t["reason"]) for t in document["trials"]] == [
        ("ran", ""),
        ("not run", "interrupted before it ran"),
    ]
    assert as_text(document).endswith("interrupted: not every combination was run")
    assert found.exit_code == 130


@pytest.mark.parametrize("key", ["rank=0,8", "batch_sise=2"])
def test_every_value_is_checked_before_anything_runs(manifest: Path, key: str) -> None:
    asked: list[tuple[str, int]] = []
    with pytest.raises((ManifestError, InputError), match=r"rank|batch_sise"):
        swept(manifest, [key], lambda _, seed: measured(seed, 1), asked=asked)
    assert asked == []


def test_nothing_ran(manifest: Path) -> None:
    found = swept(manifest, ["batch_size=3"], lambda _, seed: measured(seed, 1))
    document = valid(found.as_json())
    assert found.exit_code == 2
    assert document["fastest"] is None
    assert as_text(document).endswith("nothing ran")
    assert json.loads(json.dumps(document)) == document
