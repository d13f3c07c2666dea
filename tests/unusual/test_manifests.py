"""Unusual manifests: what each key does is told as it is, or the fault is named with its place; never a surprise later."""

from __future__ import annotations

import copy
import json
import re
from pathlib import Path
from typing import Any

import pytest

from expert_cli.config.plan import Validation, validate
from tests import manifests
from tests.machines import CPU

Change = dict[str, Any]
MISSING = object()


def changed(changes: Change) -> dict[str, Any]:
    """Return a small manifest with values put at dotted places; MISSING takes a key away."""
    document = copy.deepcopy(manifests.small())
    for place, value in changes.items():
        *way, last = place.split(".")
        holder: Any = document
        for key in way:
            holder = holder[int(key)] if isinstance(holder, list) else holder.setdefault(key, {})
        if value is MISSING:
            del holder[last]
        else:
            holder[last] = value
    return document


def checked(folder: Path, raw: str | bytes | Change) -> Validation:
    """Write a manifest and return what `validate` finds."""
    path = folder / "manifest.json"
    text = json.dumps(changed(raw)) if isinstance(raw, dict) else raw
    path.write_bytes(text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text)
    return validate(path, CPU, None)


C = "training.config."
D = "training.dataset."
GOOD = json.dumps(manifests.small())
# id -> change or text, key that the fault names, what it says
FAULTS: dict[str, tuple[Change | str | bytes, str, str]] = {
    "a megabyte": (GOOD + " " * 1_000_000, "", "a manifest may have 1,000,000"),
    "a base model without a name": ({"base_models": [{}]}, "base_models[0].name", "."),
    "two base models of one name, the second wrong": ({"base_models": [{"name": "a/b"}, {"name": "a/b", "quantization": "int3"}]}, "base_models[1].quantization", "int3"),
    "two base models of one name, the second's settings wrong": ({"base_models": [{"name": "a/b"}, {"name": "a/b", "config": {"rank": -1}}]}, "base_models[1].config.rank", "-1"),
    "another schema": ({"schema_version": "3.0"}, "schema_version", "3.0"),
    "a schema that is a number": ({"schema_version": 2.0}, "schema_version", "."),
    "a rank of zero": ({C + "rank": 0}, C + "rank", "0"),
    "a rate of 1e999": (GOOD.replace("0.001", "1e999"), C + "learning_rate", "1e999|large|finite"),
    "a length of one": ({C + "max_seq_length": 1}, C + "max_seq_length", "1"),
    "workers beyond all": ({C + "dataloader_num_workers": 10**6}, C + "dataloader_num_workers", "1000000|1,000,000|most|large"),
    "settings of another scheduler": ({C + "lr_scheduler": "linear", C + "lr_scheduler_kwargs": {"num_cycles": 2}}, C + "lr_scheduler_kwargs", "num_cycles"),
    "llama3's positions without their factors": ({"base_models.0.rope_scaling": {"rope_type": "llama3", "factor": 8}}, "rope_scaling", "low_freq_factor"),
    "positions by a word": ({"base_models.0.rope_scaling": {"rope_type": "yarn", "factor": "x"}}, "rope_scaling", "factor"),
    "a power below zero": ({C + "lr_scheduler": "polynomial", C + "lr_scheduler_kwargs": {"power": -1}}, C + "lr_scheduler_kwargs", "power"),
    "a peak behind the end": ({C + "lr_scheduler": "one_cycle", C + "lr_scheduler_kwargs": {"pct_start": 2}}, C + "lr_scheduler_kwargs", "pct_start"),
    "both number formats": ({C + "fp16": True, C + "bf16": True}, C, "fp16.*bf16|bf16.*fp16"),
    "a slice of words": ({D + "path": "x.jsonl::train[abc]"}, D + "path", "abc"),
    "a path whose backslashes are none": ({D + "path": "C:\new\rows.jsonl"}, D + "path", r"without control characters \(write a backslash as"),
    "a share of one": ({D + "validation_split": 1.0}, D + "validation_split", "1"),
    "tasks without their type": ({D + "tasks": {}, D + "type": "multi_task"}, D + "tasks", "."),
    "a mapping of numbers": ({D + "field_mapping": {"instruction": 1}}, D + "field_mapping.instruction", "."),
    "best without evaluation": ({C + "load_best_model_at_end": True, C + "eval_strategy": "no"}, "load_best_model_at_end", "eval_strategy|steps"),
    "stopping early without evaluation": ({C + "early_stopping_patience": 3, C + "eval_strategy": "no"}, "early_stopping_patience", "eval_strategy|steps"),
    "accuracy that nobody measures": ({C + "metric_for_best_model": "execution_accuracy", C + "load_best_model_at_end": True}, C + "metric_for_best_model", "every_steps"),
    "a list": ("[]", "", "is not an object"),
    "a comma too many": (GOOD[:-1] + ",}", "", "comma"),
    "typo": ({C + "learning_rte": 1}, C + "learning_rte", r"unknown key.*did you mean learning_rate\?"),
    "other tool": ({C + "lora_r": 8}, C + "lora_r", r"unknown key.*did you mean rank\?"),
    "number as string": ({C + "batch_size": '4'}, C + "batch_size", 'is "4": write 4 without quotes'),
    "whole number": ({C + "rank": 1.5}, C + "rank", r"must be a whole number, is 1\.5"),
    "true as number": ({C + "rank": True}, C + "rank", "must be a whole number, is true"),
    "number as true": ({C + "bf16": 1}, C + "bf16", "must be true or false, is 1"),
    "method": ({C + "method": 'dpo'}, C + "method", 'must be one of "sft", "rft", is "dpo"'),
    "rewards": ({C + "method": 'grpo'}, C + "method", r'docs/RECIPES\.md, "Rewards in TRL"'),
    "modules": ({C + "target_modules": [1]}, C + "target_modules", r"list of texts, is \[1\]"),
    "a key of a base model": ({C + "quantization": 'int4'}, C + "quantization", r"unknown key.*it belongs in base_models\[i\]\.quantization"),
    "another tool's name of one": ({C + "load_in_4bit": True}, C + "load_in_4bit", r"unknown key.*it belongs in base_models\[i\]\.quantization"),
    "a key of the data set": ({C + "val_set_size": 0.1}, C + "val_set_size", r"unknown key.*it belongs in training\.dataset\.validation_split"),
    "a setting in the base model": ({'base_models.0.learning_rate': 0.0001}, "base_models[0].learning_rate", r"unknown key.*it belongs in training\.config\.learning_rate"),
    "a time of two words": ({C + "save_every": '5 min'}, C + "save_every", 'such as "5m", is "5 min"'),
    "a time without end": ({C + "save_every": "9" * 400 + "h"}, C + "save_every", 'such as "5m"'),
    "endless base models": ({"base_models": [{"name": f"a/{n}"} for n in range(101)]}, "base_models", "at most 100 entries"),
    "a key of a block that may be text": ({'evaluation': {'sample_answers': '3'}}, "evaluation.sample_answers", 'must be a whole number, is "3": write 3 without quotes'),
    "a key of old filters": ({D + "validation": {'min_length': -1}}, D + "validation.min_length", "greater than or equal to 0, is -1"),
    "the opposite": ({C + "train_on_inputs": False}, C + "train_on_inputs", r"unknown key.*did you mean completion_only_loss\? \(it means the opposite\)"),
    "true that is a name here": ({'base_models.0.load_in_8bit': True}, "base_models[0].load_in_8bit", r'unknown key.*did you mean quantization\? \(true is written "int8" there\)'),
    "a column by its usual name": ({D + "field_mapping": {'output': 'sql'}}, D + "field_mapping.output", r"unknown key.*did you mean response\?"),
    "a folder no system has": ({C + "pretokenized_cache": 'a\x00b'}, C + "pretokenized_cache", "must be text without control characters"),
    "an empty name": ({"name": ""}, "name", 'must be text that is not empty, is ""'),
    "an empty list": ({"base_models": []}, "base_models", "must be a list of at least 1 entry"),
    "a long name": ({'name': "n" * 300}, "name", "at most 100 letters long"),
    "a long path of a model": ({"base_models.0.name": "n/" * 3000}, "base_models[0].name", "at most 4096 letters"),
    "old and new name": ({C + "epochs": 1, C + "num_epochs": 2}, C + "num_epochs", "old name of epochs.*remove"),
    "checkpointing setting": ({C + "gradient_checkpointing_kwargs": {'reentrant': True}}, C + "gradient_checkpointing_kwargs.reentrant", "unknown setting"),
    "block misspelt": ({'trainig': {'dataset': {'path': 'datasets/train.jsonl'}, 'config': {'adapter_type': 'lora', 'rank': 4, 'alpha': 8, 'learning_rate': 0.001}}, 'training': MISSING}, "trainig", r"unknown key.*did you mean training\?"),
    "required misspelt": ({'base_models.0.nme': 'Qwen/Qwen3-0.6B', 'base_models.0.name': MISSING}, "base_models[0].nme", r"unknown key.*did you mean name\?"),
    "missing": ({'training.dataset': MISSING}, "training.dataset", "is missing"),
    "not an object": ({'training.dataset': []}, "training.dataset", r"must be an object, is \[\]"),
    "no base model": ({'base_models': MISSING}, "base_models", "no base model is named"),
    "both schemas": ({'base_model': {'name': 'x'}}, "base_model", "exclude each other.*keep base_models"),
    "adapters at the top": ({'adapters': [{'r': 1}]}, "adapters", r"schema 1\.0"),
    "no data": ({'training.dataset': {}}, D + "path", "no data is named"),
    "no tasks": ({D + "type": 'multi_task'}, D + "tasks", "is missing"),
    "a text column beside another": ({D + "text_field": "a", D + "field_mapping": {"text": "b"}}, "text", "field_mapping.text"),
    "tasks of a single set": ({D + "type": "single", D + "tasks": {"a": {"train": "y.jsonl"}}}, D + "type", "tasks"),
    "template": ({'base_models.0.prompt_template': 'vicuna'}, "base_models[0].prompt_template", '"alpaca"'),
}  # fmt: skip

# id -> change, key, status, what the row says
TOLD: dict[str, tuple[Change, str, str, str]] = {
    "a comment": ({"_note": "x"}, "name", "applied", ""),
    "epochs beside steps": ({C + "max_steps": 3, C + "epochs": 2}, C + "epochs", "not_used", "max_steps"),
    "a ratio beside warm-up steps": ({C + "warmup_steps": 3, C + "warmup_ratio": 0.1}, C + "warmup_ratio", "not_used", "warmup_steps"),
    "evaluation steps without evaluation": ({C + "eval_steps": 3, C + "eval_strategy": "no"}, C + "eval_steps", "not_used", "."),
    "steps between saves by epoch": ({C + "save_strategy": "epoch", C + "save_steps": 3}, C + "save_steps", "not_used", "epoch"),
    "prefetch without workers": ({C + "dataloader_num_workers": 0, C + "dataloader_prefetch_factor": 4}, C + "dataloader_prefetch_factor", "not_used", "worker"),
    "lasting workers without workers": ({C + "dataloader_num_workers": 0, C + "dataloader_persistent_workers": True}, C + "dataloader_persistent_workers", "not_used", "worker"),
    "pinned memory without a GPU": ({C + "dataloader_pin_memory": True}, C + "dataloader_pin_memory", "not_used", "GPU|CPU"),
    "TF32 without a GPU": ({C + "use_tf32": True}, C + "use_tf32", "not_used", "GPU|CPU"),
    "unsloth": ({C + "use_unsloth": True}, C + "use_unsloth", "not_used", "."),
    "a compiler that is off": ({C + "torch_compile": False, C + "torch_compile_mode": "default"}, C + "torch_compile_mode", "not_used", "torch_compile"),
    "a path beside tasks": ({D + "type": "multi_task", D + "path": "x.jsonl", D + "tasks": {"a": {"train": "y.jsonl"}}}, D + "path", "not_used", "tasks"),
    "old filters beside filters": ({D + "filters": {"min_length": 1}, D + "validation": {"min_length": 2}}, D + "validation.min_length", "not_used", "filters"),
    "a share beside validation rows": ({D + "validation_split": 0.1, D + "validation_path": "v.jsonl"}, D + "validation_split", "not_used", "validation"),
    "positions by a list": ({"base_models.0.rope_scaling": {"type": []}}, "base_models[0].rope_scaling.type", "informational", "not a form"),
    "a key of another block": ({"training.rank": 4}, "training.rank", "informational", "card"),
    "feed-forward layers of LoRA": ({C + "feedforward_modules": ["up_proj"]}, C + "feedforward_modules", "not_used", "IA3"),
    "a direction without a metric": ({C + "greater_is_better": True}, C + "greater_is_better", "not_used", "."),
}  # fmt: skip


@pytest.mark.parametrize(("raw", "key", "why"), FAULTS.values(), ids=FAULTS.keys())
def test_the_fault_is_named(tmp_path: Path, raw: Change | str | bytes, key: str, why: str) -> None:
    found = checked(tmp_path, raw)
    assert len({fault.key for fault in found.errors}) == 1, found.as_json()
    first = found.errors[0]
    assert key in (first.key or "") or key in first.message, first
    assert re.search(why, f"{first.message} {first.suggestion}"), first
    assert first.line >= 1
    assert first.message.isprintable()


@pytest.mark.parametrize("name", ["../../x", "/srv/x", "..", ".", "~", "C:\\x", "con", "专家一", "a/../../b", "-rf"])
def test_whatever_an_expert_is_called_its_folders_lie_in_the_project(tmp_path: Path, name: str) -> None:
    found = checked(tmp_path, {"name": name})
    assert found.plan
    for folder in (found.plan.run.store, found.plan.run.output):
        assert folder.is_relative_to(tmp_path)
        assert all(part not in ("", ".", "..") and part.isprintable() for part in folder.relative_to(tmp_path).parts)


@pytest.mark.parametrize(("change", "key", "status", "why"), TOLD.values(), ids=TOLD.keys())
def test_what_a_key_does_is_told(tmp_path: Path, change: Change, key: str, status: str, why: str) -> None:
    found = checked(tmp_path, change)
    assert not found.errors
    assert found.plan
    (row,) = [row for row in found.plan.effects if row.key == key]
    assert (row.status, bool(re.search(why, f"{row.effect} {row.reason}"))) == (status, True), row
