"""Sweeps: which combinations there are, at which accumulation, and how they are ranked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from expert_cli.benchmark.measured_run import RunCounts, Variant
from expert_cli.benchmark.sweep import as_text, combinations, parse_sweep, sweep
from expert_cli.config.resolve import Overrides
from expert_cli.errors import EnvironmentProblem, InputError, ManifestError, TrainingFailed
from expert_cli.utils.reporter import NullReporter
from tests import manifests
from tests.measurements import MACHINE, measured, runner, valid


@pytest.fixture
def manifest(tmp_path: Path) -> Path:
    (tmp_path / "datasets").mkdir()
    (tmp_path / "datasets" / "train.jsonl").touch()
    return manifests.write(tmp_path, manifests.small(batch_size=4, gradient_accumulation_steps=2))


def swept(manifest: Path, key: str, answer: Any, repeats: int = 1) -> Any:
    """Sweep with runs that measure what `answer` returns; give the document and who was run in turn."""
    asked: list[tuple[str, int]] = []
    runs = runner(answer, asked)
    found = sweep(manifest, [key], Overrides(), RunCounts(3, 1, repeats), MACHINE, NullReporter(), runs)
    return valid(found), asked


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
    "asked", [["batch_size"], ["batch_size=2,,4"], ["batch_size=2", "training.config.batch_size=4"]]
)
def test_what_is_no_sweep(asked: list[str]) -> None:
    with pytest.raises(InputError, match="not of the form"):
        parse_sweep(asked)


@pytest.mark.parametrize(
    ("values", "found"),
    [
        pytest.param({"batch_size": [2, 8]}, [("batch_size=2 gradient_accumulation_steps=4", ""),
                     ("batch_size=8 gradient_accumulation_steps=1", "")], id="accumulation follows"),
        pytest.param({"batch_size": [3, 16]}, [("batch_size=3", "batch_size is 3, the effective batch 8"),
                     ("batch_size=16", "batch_size is 16, the effective batch 8")], id="indivisible"),
        pytest.param({"gradient_accumulation_steps": [2]}, [("gradient_accumulation_steps=2 batch_size=4", "")],
                     id="batch follows"),
        pytest.param({"batch_size": [2, 4], "gradient_accumulation_steps": [2]},
                     [("batch_size=2 gradient_accumulation_steps=2",
                       "batch_size x gradient_accumulation_steps is 4, the effective batch 8"),
                      ("batch_size=4 gradient_accumulation_steps=2", "")], id="both are given"),
        pytest.param({"packing": [True, False]}, [("packing=true", ""), ("packing=false", "")], id="neither"),
    ],
)  # fmt: skip
def test_combinations_keep_the_effective_batch(values: dict[str, list[Any]], found: list[tuple[str, str]]) -> None:
    assert [(one.name, one.reason) for one in combinations(values, 4, 2)] == found


def test_the_fastest_that_fits(manifest: Path) -> None:
    def answer(side: Variant, seed: int) -> Any:
        batch = int(side.name.split()[0].partition("=")[2])
        if batch == 8:
            raise TrainingFailed("b: a full step of 8 packs does not fit the GPU's memory")
        return measured(seed, 10.0 * batch)

    document, asked = swept(manifest, "batch_size=2,3,4,8", answer, 2)
    # the second round runs backwards, without those that cannot be run
    assert [(name.split()[0], seed) for name, seed in asked] == [
        *(("batch_size=2", 42), ("batch_size=4", 42), ("batch_size=8", 42)),
        *(("batch_size=4", 43), ("batch_size=2", 43)),
    ]
    states = [(trial["set"][0][-1], trial["status"]) for trial in document["trials"]]
    assert states == [("4", "ran"), ("2", "ran"), ("8", "failed"), ("3", "not run")]
    flags = ["training.config.batch_size=4", "training.config.gradient_accumulation_steps=2"]
    assert document["fastest"]["set"] == flags
    text = as_text(document)
    assert f"fastest that fits: --set {flags[0]} --set {flags[1]}" in text
    assert "not run: batch_size is 3, the effective batch 8" in text
    assert "failed: b: a full step of 8 packs does not fit" in text


@pytest.mark.parametrize("error", [EnvironmentProblem("the hub cannot be reached"), TrainingFailed("no memory")])
def test_where_nothing_runs_the_error_is_raised(manifest: Path, error: Exception) -> None:
    def answer(side: Variant, seed: int) -> Any:
        raise error

    with pytest.raises(type(error), match=str(error)):
        swept(manifest, "rank=4,8", answer)


@pytest.mark.parametrize("key", ["rank=0,8", "batch_sise=2", "batch_size=large", "batch_size=3"])
def test_every_value_is_checked_before_anything_runs(manifest: Path, key: str) -> None:
    with pytest.raises((ManifestError, InputError), match=r"rank|batch_si[sz]e"):
        swept(manifest, key, None)
