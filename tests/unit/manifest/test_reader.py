"""What is a fault in a manifest, where, and what to write instead."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from expert_cli.errors import InputError, ManifestError, ManifestIssue
from expert_cli.manifest.keys.dataset import Dataset, FieldMapping
from expert_cli.manifest.reader import load_manifest
from expert_cli.manifest.schema import Base, Manifest
from expert_cli.manifest.spelling import OTHER_TOOLS, nearest
from expert_cli.manifest.training_config import TrainingConfig
from tests import manifests

Change = Callable[[dict[str, Any]], Any]


def faults_after(tmp_path: Path, change: Change) -> list[ManifestIssue]:
    manifest = manifests.small()
    change(manifest)
    with pytest.raises(ManifestError) as caught:
        load_manifest(manifests.write(tmp_path, manifest))
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
    "a rate without its minus": (
        config(learning_rate=1e9),
        "training.config.learning_rate",
        "equal to 100, is 1000",
        "",
    ),
    "zero rate": (config(learning_rate=0), "training.config.learning_rate", "greater than 0, is 0", ""),
    "dropout 1": (config(dropout=1.0), "training.config.dropout", "less than 1, is 1.0", ""),
    "method": (config(method="dpo"), "training.config.method", 'must be one of "sft", "rft", is "dpo"', ""),
    "rewards": (config(method="grpo"), "training.config.method", 'docs/RECIPES.md, "Rewards in TRL"', ""),
    "optimizer": (config(optim="adam"), "training.config.optim", '"adamw_torch_fused"', ""),
    "scheduler": (config(lr_scheduler="cos"), "training.config.lr_scheduler", '"one_cycle"', ""),
    "checkpointing": (
        config(gradient_checkpointing="some"),
        "training.config.gradient_checkpointing",
        '"selective"',
        "",
    ),
    "modules": (config(target_modules=[1]), "training.config.target_modules", "list of texts, is [1]", ""),
    "a key of a base model": (
        config(quantization="int4"),
        "training.config.quantization",
        "unknown key",
        "it belongs in base_models[i].quantization",
    ),
    "another tool's name of one": (
        config(load_in_4bit=True),
        "training.config.load_in_4bit",
        "unknown key",
        "it belongs in base_models[i].quantization",
    ),
    "a key of the data set": (
        config(val_set_size=0.1),
        "training.config.val_set_size",
        "unknown key",
        "it belongs in training.dataset.validation_split",
    ),
    "a setting in the base model": (
        lambda m: m["base_models"][0].update(learning_rate=1e-4),
        "base_models[0].learning_rate",
        "unknown key",
        "it belongs in training.config.learning_rate",
    ),
    "two base models of one name": (
        lambda m: m["base_models"].append({"name": "qwen/qwen3-0.6b"}),
        "base_models[1].name",
        "base_models[0] has the same name",
        "an alias of its own",
    ),
    "two aliases": (
        lambda m: m.update(base_models=[{"name": "a/b", "alias": "x"}, {"name": "a/c", "alias": "X"}]),
        "base_models[1].alias",
        "base_models[0] has the same alias",
        "an alias of its own",
    ),
    "a time of two words": (config(save_every="5 min"), "training.config.save_every", 'such as "5m", is "5 min"', ""),
    "a time without end": (config(save_every="9" * 400 + "h"), "training.config.save_every", 'such as "5m"', ""),
    "a seed of 33 bits": (config(seed=2**32), "training.config.seed", "less than 4294967296, is 4294967296", ""),
    "endless epochs": (config(epochs=1e308), "training.config.epochs", "less than or equal to 100000", ""),
    "endless steps": (config(max_steps=10**30), "training.config.max_steps", "less than or equal to 2147483647", ""),
    "endless documents": (
        config(max_seq_length=10**12),
        "training.config.max_seq_length",
        "less than or equal to 16777216",
        "",
    ),
    "endless scale": (config(alpha=1e300), "training.config.alpha", "less than or equal to 1000000", ""),
    "endless weight": (
        lambda m: m["training"]["dataset"].update(tasks={"a": {"train": "a.jsonl", "weight": 1e9}}),
        "training.dataset.tasks.a.weight",
        "less than or equal to 1000",
        "",
    ),
    "endless base models": (
        lambda m: m.update(base_models=[{"name": f"a/{n}"} for n in range(101)]),
        "base_models",
        "at most 100 entries",
        "",
    ),
    "no base model in the list": (lambda m: m.update(base_models=[]), "base_models", "of at least 1 entry, is []", ""),
    "no list of base models": (lambda m: m.update(base_models={"name": "x"}), "base_models", "a list of objects", ""),
    "a key of a block that may be text": (
        lambda m: m.update(evaluation={"every_steps": "3"}),
        "evaluation.every_steps",
        'must be a whole number, is "3": write 3 without quotes',
        "",
    ),
    "a key of old filters": (
        lambda m: m["training"]["dataset"].update(validation={"min_length": -1}),
        "training.dataset.validation.min_length",
        "greater than or equal to 0, is -1",
        "",
    ),
    "the opposite": (
        config(train_on_inputs=False),
        "training.config.train_on_inputs",
        "unknown key",
        "did you mean completion_only_loss? (it means the opposite)",
    ),
    "true that is a name here": (
        lambda m: m["base_models"][0].update(load_in_8bit=True),
        "base_models[0].load_in_8bit",
        "unknown key",
        'did you mean quantization? (true is written "int8" there)',
    ),
    "a column by its usual name": (
        lambda m: m["training"]["dataset"].update(field_mapping={"output": "sql"}),
        "training.dataset.field_mapping.output",
        "unknown key",
        "did you mean response?",
    ),
    "a folder no system has": (
        config(pretokenized_cache="a\0b"),
        "training.config.pretokenized_cache",
        "must be text without a NUL character",
        "",
    ),
    "a long name": (lambda m: m.update(name="n" * 300), "name", "at most 100 letters long", ""),
    "a long alias": (lambda m: m["base_models"][0].update(alias="n" * 300), "base_models[0].alias", "100 letters", ""),
    "a long path of a model": (
        lambda m: m["base_models"][0].update(name="n/" * 3000),
        "base_models[0].name",
        "at most 4096 letters",
        "",
    ),
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
    with pytest.raises(ManifestError, match=r"training\.config\.learning_rate: 1e999 is no finite number"):
        load_manifest(path)


def test_a_fault_stands_where_the_key_stands(tmp_path: Path) -> None:
    path = manifests.write(tmp_path, manifests.small(bacth_size=1))
    with pytest.raises(ManifestError) as caught:
        load_manifest(path)
    fault = caught.value.faults[0]
    line = path.read_text(encoding="utf-8").splitlines()[fault.line - 1]
    assert line[fault.column - 1 :].startswith('"bacth_size"')


def test_unknown_keys_come_first(tmp_path: Path) -> None:
    faults = faults_after(tmp_path, config(rank="x", zzz=1))
    assert [fault.key for fault in faults] == ["training.config.zzz", "training.config.rank"]


def test_free_keys_are_kept_with_a_warning(tmp_path: Path) -> None:
    manifest = manifests.small()
    manifest["favorite_color"] = "blue"
    loaded = load_manifest(manifests.write(tmp_path, manifest))
    assert [warning.key for warning in loaded.warnings] == ["favorite_color"]


def test_every_name_of_another_tool_leads_to_a_key_there_is() -> None:
    blocks = (TrainingConfig, Base, Manifest, Dataset, FieldMapping)
    known = {name for block in blocks for name in block.model_fields}
    assert set(OTHER_TOOLS.values()) <= known
    for foreign, ours in OTHER_TOOLS.items():
        if ours in TrainingConfig.model_fields:
            assert nearest(foreign, TrainingConfig.model_fields) == ours


@pytest.mark.parametrize("written", [json.dumps([1, 2]), '"text"', "3"])
def test_a_manifest_is_an_object(tmp_path: Path, written: str) -> None:
    path = tmp_path / "manifest.json"
    path.write_text(written, encoding="utf-8")
    with pytest.raises(ManifestError, match="is not an object"):
        load_manifest(path)


SETTINGS = {
    "number": ("training.config.rank=8", "rank", 8),
    "text": ("training.config.optim=sgd", "optim", "sgd"),
    "false": ("training.config.packing=false", "packing", False),
    "list": ('training.config.target_modules=["q_proj"]', "target_modules", ["q_proj"]),
}


@pytest.mark.parametrize(("setting", "key", "value"), SETTINGS.values(), ids=SETTINGS.keys())
def test_set_changes_one_key(tmp_path: Path, setting: str, key: str, value: Any) -> None:
    loaded = load_manifest(manifests.write(tmp_path, manifests.small()), (setting,))
    assert getattr(loaded.manifest.training.config, key) == value


def test_set_knows_old_names(tmp_path: Path) -> None:
    loaded = load_manifest(manifests.write(tmp_path, manifests.small(epochs=2)), ("num_epochs=3",))
    assert (loaded.manifest.training.config.epochs, loaded.manifest.training.config.num_epochs) == (3, None)


def test_set_beats_every_spelling_in_every_block(tmp_path: Path) -> None:
    manifest = manifests.small(num_epochs=1, max_steps=9)
    manifest["base_models"][0]["config"] = {"num_epochs": 5, "max_steps": 7}
    loaded = load_manifest(manifests.write(tmp_path, manifest), ("epochs=3",))
    assert (loaded.manifest.training.config.epochs, loaded.manifest.training.config.max_steps) == (3, None)
    own = loaded.manifest.bases[0].config
    assert own is not None
    assert (own.num_epochs, own.max_steps) == (None, None)


def test_set_on_a_manifest_without_a_list_of_base_models_leaves_the_fault_to_the_check(tmp_path: Path) -> None:
    with pytest.raises(ManifestError, match="must be a list of objects, is 5"):
        load_manifest(manifests.write(tmp_path, {**manifests.small(), "base_models": 5}), ("rank=3",))


BROKEN_SETTINGS = {
    "brackets": ("rank=[[[", "--set rank=[[[: is not JSON: a value is missing"),
    "endless brackets": (f"rank={'[' * 100_000}", "brackets nested more than 64 deep"),
    "an endless number": ("alpha=1e999", 'must be a number, is "1e999"'),
    "no number": ("rank=NaN", 'must be a whole number, is "NaN"'),
    "nothing": ("rank=", 'must be a whole number, is ""'),
    "an open list": ('target_modules=["q_proj",]', "trailing comma"),
    "too many bits": ("seed=4294967296", "must be less than 4294967296"),
}


@pytest.mark.parametrize(("setting", "message"), BROKEN_SETTINGS.values(), ids=BROKEN_SETTINGS.keys())
def test_a_broken_setting_is_told_as_one(tmp_path: Path, setting: str, message: str) -> None:
    with pytest.raises(InputError, match=re.escape(message)) as caught:
        load_manifest(manifests.write(tmp_path, manifests.small()), (setting,))
    assert caught.value.message.startswith("--set ")
    assert len(caught.value.message) < 250


def test_a_text_that_begins_like_a_list_is_a_text_where_texts_go(tmp_path: Path) -> None:
    loaded = load_manifest(manifests.write(tmp_path, manifests.small()), ("system_prompt=[INST] be brief",))
    assert loaded.manifest.training.config.system_prompt == "[INST] be brief"


@pytest.mark.parametrize("setting", ["rank", "training.dataset.path=x", "training.config.rnk=3"])
def test_set_refuses_what_it_does_not_know(tmp_path: Path, setting: str) -> None:
    with pytest.raises(InputError):
        load_manifest(manifests.write(tmp_path, manifests.small()), (setting,))


def test_set_values_are_checked_like_written_ones(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"--set training\.config\.rank=high: must be a whole number"):
        load_manifest(manifests.write(tmp_path, manifests.small()), ("training.config.rank=high",))
