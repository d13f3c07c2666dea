"""What is a fault in a manifest, where, and what to write instead."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import manifests
import pytest

from expert_cli.errors import Fault, InputError, ManifestError
from expert_cli.manifest.names import OTHER_TOOLS, nearest
from expert_cli.manifest.reader import load
from expert_cli.manifest.schema import Base, Manifest
from expert_cli.manifest.training_config import TrainingConfig

Change = Callable[[dict[str, Any]], Any]


def faults_after(tmp_path: Path, change: Change) -> list[Fault]:
    manifest = manifests.small()
    change(manifest)
    with pytest.raises(ManifestError) as caught:
        load(manifests.write(tmp_path, manifest))
    return caught.value.faults


def config(**values: Any) -> Change:
    return lambda manifest: manifest["training"]["config"].update(values)


CASES: dict[str, tuple[Change, str, str, str]] = {
    "typo": (config(learning_rte=1), "training.config.learning_rte", "unknown key", "did you mean learning_rate?"),
    "other tool": (config(lora_r=8), "training.config.lora_r", "unknown key", "did you mean rank?"),
    "number as string": (config(batch_size="4"), "training.config.batch_size", 'is "4": write 4 without quotes', ""),
    "whole number": (config(rank=1.5), "training.config.rank", "must be a whole number, is 1.5", ""),
    "true as number": (config(rank=True), "training.config.rank", "must be a whole number, is true", ""),
    "number as true": (config(bf16=1), "training.config.bf16", "must be true or false, is 1", ""),
    "zero rate": (config(learning_rate=0), "training.config.learning_rate", "greater than 0, is 0", ""),
    "dropout 1": (config(dropout=1.0), "training.config.dropout", "less than 1, is 1.0", ""),
    "method": (config(method="dpo"), "training.config.method", 'must be "sft", is "dpo"', ""),
    "optimizer": (config(optim="adam"), "training.config.optim", '"adamw_torch_fused"', ""),
    "scheduler": (config(lr_scheduler="cos"), "training.config.lr_scheduler", '"one_cycle"', ""),
    "checkpointing": (
        config(gradient_checkpointing="some"),
        "training.config.gradient_checkpointing",
        '"selective"',
        "",
    ),
    "modules": (config(target_modules=[1]), "training.config.target_modules", "list of texts, is [1]", ""),
    "both precisions": (config(fp16=True, bf16=True), "training.config.fp16", "both true", "keep bf16"),
    "old and new name": (config(epochs=1, num_epochs=2), "training.config.num_epochs", "old name of epochs", "remove"),
    "checkpointing setting": (
        config(gradient_checkpointing_kwargs={"reentrant": True}),
        "training.config.gradient_checkpointing_kwargs.reentrant",
        "unknown setting",
        "",
    ),
    "block misspelt": (
        lambda m: m.update(trainig=m.pop("training")),
        "trainig",
        "unknown key",
        "did you mean training?",
    ),
    "required misspelt": (
        lambda m: m["base_models"][0].update(nme=m["base_models"][0].pop("name")),
        "base_models[0].nme",
        "unknown key",
        "did you mean name?",
    ),
    "missing": (lambda m: m["training"].pop("dataset"), "training.dataset", "is missing", ""),
    "not an object": (lambda m: m["training"].update(dataset=[]), "training.dataset", "must be an object, is []", ""),
    "quantization": (
        lambda m: m["base_models"][0].update(quantization="int3"),
        "base_models[0].quantization",
        '"int4"',
        "",
    ),
    "no base model": (lambda m: m.pop("base_models"), "base_models", "no base model is named", ""),
    "both schemas": (lambda m: m.update(base_model={"name": "x"}), "base_model", "both there", "keep base_models"),
    "adapters at the top": (
        lambda m: m.update(adapters=[]) or m.update(adapters=[{"r": 1}]),
        "adapters",
        "schema 1.0",
        "",
    ),
    "own config": (
        lambda m: m["base_models"][0].update(config={"batch_sze": 1}),
        "base_models[0].config.batch_sze",
        "unknown",
        "",
    ),
    "no data": (lambda m: m["training"]["dataset"].pop("path"), "training.dataset.path", "no data is named", ""),
    "no tasks": (
        lambda m: m["training"]["dataset"].update(type="multi_task"),
        "training.dataset.tasks",
        "is missing",
        "",
    ),
    "near miss in a loose block": (
        lambda m: m["training"]["dataset"].update(fieldmapping={}),
        "training.dataset.fieldmapping",
        "unknown",
        "",
    ),
    "template": (
        lambda m: m["base_models"][0].update(prompt_template="vicuna"),
        "base_models[0].prompt_template",
        '"alpaca"',
        "",
    ),
}


@pytest.mark.parametrize(("change", "key", "message", "hint"), CASES.values(), ids=CASES.keys())
def test_one_fault_one_row(tmp_path: Path, change: Change, key: str, message: str, hint: str) -> None:
    faults = faults_after(tmp_path, change)
    assert [fault.key for fault in faults] == [key]
    assert message in faults[0].message
    assert hint in faults[0].suggestion
    assert faults[0].line > 0


def test_a_number_too_large_for_a_float_is_refused(tmp_path: Path) -> None:
    path = manifests.write(tmp_path, manifests.small())
    path.write_text(path.read_text(encoding="utf-8").replace("0.001", "1e999"), encoding="utf-8")
    with pytest.raises(ManifestError, match=r"training\.config\.learning_rate"):
        load(path)


def test_a_fault_stands_where_the_key_stands(tmp_path: Path) -> None:
    path = manifests.write(tmp_path, manifests.small(bacth_size=1))
    with pytest.raises(ManifestError) as caught:
        load(path)
    fault = caught.value.faults[0]
    line = path.read_text(encoding="utf-8").splitlines()[fault.line - 1]
    assert line[fault.column - 1 :].startswith('"bacth_size"')


def test_unknown_keys_come_first(tmp_path: Path) -> None:
    faults = faults_after(tmp_path, config(rank="x", zzz=1))
    assert [fault.key for fault in faults] == ["training.config.zzz", "training.config.rank"]


def test_free_keys_are_kept_with_a_warning(tmp_path: Path) -> None:
    manifest = manifests.small()
    manifest["favourite_colour"] = "blue"
    loaded = load(manifests.write(tmp_path, manifest))
    assert [warning.key for warning in loaded.warnings] == ["favourite_colour"]


def test_every_name_of_another_tool_leads_to_a_key_there_is() -> None:
    known = {*TrainingConfig.model_fields, *Base.model_fields, *Manifest.model_fields, "validation_split"}
    assert set(OTHER_TOOLS.values()) <= known
    for foreign, ours in OTHER_TOOLS.items():
        if ours in TrainingConfig.model_fields:
            assert nearest(foreign, TrainingConfig.model_fields) == ours


@pytest.mark.parametrize("written", [json.dumps([1, 2]), '"text"', "3"])
def test_a_manifest_is_an_object(tmp_path: Path, written: str) -> None:
    path = tmp_path / "manifest.json"
    path.write_text(written, encoding="utf-8")
    with pytest.raises(ManifestError, match="is not an object"):
        load(path)


SETTINGS = {
    "number": ("training.config.rank=8", "rank", 8),
    "text": ("training.config.optim=sgd", "optim", "sgd"),
    "false": ("training.config.packing=false", "packing", False),
    "list": ('training.config.target_modules=["q_proj"]', "target_modules", ["q_proj"]),
}


@pytest.mark.parametrize(("setting", "key", "value"), SETTINGS.values(), ids=SETTINGS.keys())
def test_set_changes_one_key(tmp_path: Path, setting: str, key: str, value: Any) -> None:
    loaded = load(manifests.write(tmp_path, manifests.small()), (setting,))
    assert getattr(loaded.manifest.training.config, key) == value


@pytest.mark.parametrize("setting", ["rank", "training.dataset.path=x", "training.config.rnk=3"])
def test_set_refuses_what_it_does_not_know(tmp_path: Path, setting: str) -> None:
    with pytest.raises(InputError):
        load(manifests.write(tmp_path, manifests.small()), (setting,))


def test_set_values_are_checked_like_written_ones(tmp_path: Path) -> None:
    with pytest.raises(ManifestError, match="must be a whole number"):
        load(manifests.write(tmp_path, manifests.small()), ("training.config.rank=high",))
