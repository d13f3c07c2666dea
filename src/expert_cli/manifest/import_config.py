"""Converts a configuration of axolotl or TRL into a manifest; keys without an equivalent are reported.

https://docs.axolotl.ai/docs/config-reference.html, https://huggingface.co/docs/trl/sft_trainer
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel

from expert_cli.errors import InputError
from expert_cli.manifest.json_text import Path_
from expert_cli.manifest.keys.dataset import Dataset, FieldMapping
from expert_cli.manifest.messages import BY_HAND, OTHER_TOOLS, unfit
from expert_cli.manifest.schema import Base
from expert_cli.manifest.training_config import TrainingConfig
from expert_cli.utils.text import shortened

_MODEL = {"base_model": ("axolotl", "adapter"), "model_name_or_path": ("TRL", "use_peft")}
"""The key of the base model -> the program that has it, and the key without which that program trains all weights."""
_NUMBER = re.compile(r"[+-]?\d+(\.\d*)?[eE][+-]?\d+")
_NOTHING: tuple[Any, ...] = (None, False, "", [], {})
BASE: Path_ = ("base_models", 0)
CONFIG: Path_ = ("training", "config")
DATASET: Path_ = ("training", "dataset")
MAPPING: Path_ = ("training", "dataset", "field_mapping")
_BLOCKS: dict[Path_, type[BaseModel]] = {CONFIG: TrainingConfig, DATASET: Dataset, BASE: Base, MAPPING: FieldMapping}
_SAME: Sequence[tuple[str, Any, tuple[Path_, str, Any]]] = (
    ("adapter", "qlora", (BASE, "quantization", "int4")),
    ("load_in_4bit", True, (BASE, "quantization", "int4")),
    ("load_in_8bit", True, (BASE, "quantization", "int8")),
    ("type", "alpaca", (BASE, "prompt_template", "alpaca")),
    ("peft_use_dora", True, (CONFIG, "adapter_type", "dora")),
    ("use_dora", True, (CONFIG, "adapter_type", "dora")),
    ("peft_use_rslora", True, (CONFIG, "adapter_type", "rslora")),
    ("use_rslora", True, (CONFIG, "adapter_type", "rslora")),
    ("lora_target_linear", True, (CONFIG, "target_modules", "all-linear")),
    ("train_on_inputs", True, (CONFIG, "completion_only_loss", False)),
    ("train_on_inputs", False, (CONFIG, "completion_only_loss", True)),
    ("assistant_only_loss", False, (CONFIG, "completion_only_loss", False)),
    ("attn_implementation", "sdpa", (CONFIG, "use_sdpa", True)),
    ("attn_implementation", "flash_attention_2", (CONFIG, "flash_attention_2", True)),
)
"""Keys whose values have other forms here: key, value, and the equivalent here."""
_ANYWAY = (
    *(("adapter", "lora"), ("use_peft", True), ("bf16", "auto")),
    *(("type", "chat_template"), ("type", "sharegpt"), ("type", "completion"), ("type", "input_output")),
)
"""Keys and values that request what is always done here."""
_OF_ALL_STEPS = "batch_size"
"""In axolotl: the rows of all processes and micro-steps. Our key of this name is axolotl's `micro_batch_size`."""


@dataclass(frozen=True)
class NotCarried:
    """A key that the manifest cannot express, its value as shown, and why."""

    key: str
    value: str
    reason: str


@dataclass(frozen=True)
class Imported:
    """A manifest made from a configuration. carried: names of the converted keys -> their names here."""

    program: str
    manifest: Mapping[str, Any]
    carried: Mapping[str, str]
    not_carried: Sequence[NotCarried]

    @property
    def text(self) -> str:
        """The JSON text of the manifest."""
        return json.dumps(self.manifest, indent=2, ensure_ascii=False) + "\n"


def import_config(file: Path, home: Path) -> Imported:
    """Convert a YAML file of axolotl or TRL into the manifest of the expert in `home`. Raises InputError."""
    told = _read(file)
    model = next((key for key in _MODEL if told.get(key)), "")
    if not model:
        raise InputError(f"{file}: no base model is named by {' or '.join(_MODEL)}", "name the file of a training")
    if told.get("completion_only_loss") is not None:
        told.pop("assistant_only_loss", None)
    blocks: dict[Path_, dict[str, Any]] = {block: {} for block in _BLOCKS}
    blocks[BASE] = {"name": _place(str(told.pop(model)), file, home), "quantization": "none"}
    carried, lost = {model: "name"}, list[NotCarried]()
    program, switch = _MODEL[model]
    if not told.get(switch):
        lost.append(NotCarried(switch, "not set: all weights", "a LoRA adapter is trained instead"))
    keys: list[tuple[str, str, Any, Sequence[Path_]]] = []
    for where, entries in _data_sets(told).items():
        name = {"datasets": "path", "test_datasets": "validation_path"}[where]
        if sources := [_source(entry, file, home) for entry in entries]:
            blocks[DATASET][name] = sources[0] if len(sources) == 1 else sources
            carried[where] = name
        for n, entry in enumerate(entries):
            keys += [(f"{where}[{n}].{key}", key, value, (MAPPING, BASE)) for key, value in entry.items()]
    if "path" not in blocks[DATASET]:
        raise InputError(f"{file}: names no rows", "name them in datasets (axolotl) or dataset_name (TRL)")
    keys += [(key, key, value, (CONFIG, DATASET, BASE)) for key, value in told.items()]
    for where, key, value, places in keys:
        here = _here(key, value, places)
        why = unfit(_BLOCKS[here[0]], (*here[0], here[1]), here[2]) if here else ""
        if here and here[1] != "quantization" and blocks[here[0]].get(here[1], here[2]) != here[2]:
            why = "contradicts another key"
        if here and not why:
            block, name, value_here = here
            blocks[block][name] = value_here
            carried[where] = name
        elif value not in _NOTHING and (key, value) not in _ANYWAY:
            reason = f"{here[1]} {why}" if here else "not carried over"
            lost.append(NotCarried(where, shortened(str(value), 48), reason))
    return Imported(program, _manifest(file, home, blocks, lost), carried, lost)


def _here(key: str, value: Any, places: Sequence[Path_]) -> tuple[Path_, str, Any] | None:
    """Return the equivalent block, key and value; None for none."""
    for theirs, said, here in _SAME:
        if (theirs, said) == (key, value):
            return here
    if key in BY_HAND or key == _OF_ALL_STEPS or (key, value) in _ANYWAY:
        return None
    name = OTHER_TOOLS.get(key, key)
    return next(((place, name, value) for place in places if name in _BLOCKS[place].model_fields), None)


def _read(file: Path) -> dict[str, Any]:
    try:
        with file.open(encoding="utf-8") as text:
            value = yaml.safe_load(text)
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise InputError(f"{file}: {error}", "give a YAML file of axolotl or TRL with --from-config") from error
    if not isinstance(value, dict):
        raise InputError(f"{file}: holds no keys", "give a YAML file of axolotl or TRL with --from-config")
    return {str(key): _number(one) for key, one in value.items() if one is not None}


def _number(value: Any) -> Any:
    """Convert numbers that YAML 1.1 reads as text, such as 2e-4, which has no decimal point."""
    if isinstance(value, dict):
        return {name: _number(one) for name, one in value.items()}
    return float(value) if isinstance(value, str) and _NUMBER.fullmatch(value) else value


def _data_sets(told: dict[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """Remove the data sets from a configuration, axolotl's lists or TRL's single name, and return the keys of each."""
    found = {key: told.pop(key, []) for key in ("datasets", "test_datasets")}
    if name := told.pop("dataset_name", None):
        config = told.pop("dataset_config", None)
        for key, option in (("datasets", "dataset_train_split"), ("test_datasets", "dataset_test_split")):
            split = told.pop(option, None)
            if split or key == "datasets":
                found[key] = [{"path": name, "name": config, "split": split}]
    return {key: [_flat(one if isinstance(one, dict) else {"path": one}) for one in found[key]] for key in found}


def _flat(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Flatten the keys of a data set, which may have a block of column names."""
    inner = [entry[key] for key in ("type", "message_property_mappings") if isinstance(entry.get(key), dict)]
    return {key: value for one in (entry, *inner) for key, value in one.items() if value not in inner}


def _source(entry: dict[str, Any], file: Path, home: Path) -> str:
    """Remove the keys that name the rows from a data set's entry; return the source as it is written in a manifest."""
    path = _place(str(entry.pop("path", "")), file, home)
    split, config = entry.pop("split", None) or "train", entry.pop("name", None)
    return f"{path}::{split}::{config}" if config else path if split == "train" else f"{path}::{split}"


def _place(written: str, file: Path, home: Path) -> str:
    """Return an existing path relative to the manifest's folder, any other name (a hub id) unchanged."""
    found = next((place for place in (Path(written), file.parent / written) if written and place.exists()), None)
    if found and found.absolute().drive != home.absolute().drive:  # no relative path leads to another drive of Windows
        return found.absolute().as_posix()
    return Path(os.path.relpath(found, home)).as_posix() if found else written


def _manifest(file: Path, home: Path, blocks: Mapping[Path_, Any], lost: Sequence[NotCarried]) -> dict[str, Any]:
    columns = {"field_mapping": blocks[MAPPING]} if blocks[MAPPING] else {}
    return {
        "_from": file.name,
        "name": home.name,
        "version": "0.1.0",
        "schema_version": "2.0",
        "base_models": [blocks[BASE]],
        "training": {"dataset": blocks[DATASET] | columns, "config": blocks[CONFIG]},
        "_not_carried": {one.key: one.reason for one in lost},
    }
