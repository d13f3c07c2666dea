"""validate --fix: which keys get their right name, and that no other byte of the file changes."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from expert_cli.errors import EnvironmentProblem, ManifestError
from expert_cli.manifest.fixes import BY_HAND, apply_fixes, diff, find_fixes, read_raw, write_raw
from expert_cli.manifest.json_parser import read_json_text
from expert_cli.manifest.keys.dataset import Dataset
from expert_cli.manifest.reader import load_manifest
from expert_cli.manifest.spelling import OTHER_TOOLS
from expert_cli.manifest.training_config import TrainingConfig
from tests import manifests


def fixed(path: Path) -> tuple[str, list[str]]:
    """Return the text that one round of fixes makes of a file, and the remarks."""
    try:
        load_manifest(path)
        faults = []
    except ManifestError as error:
        faults = error.faults
    fixes, remarks = find_fixes(read_raw(path), read_json_text(path), faults)
    return apply_fixes(read_raw(path), fixes), [remark.message for remark in remarks]


@pytest.mark.parametrize("block", [TrainingConfig, Dataset])
def test_the_documentation_says_which_names_are_old(block: type[TrainingConfig | Dataset]) -> None:
    said = {name: re.match(r"Old name of `(\w+)`", info.description or "") for name, info in block.model_fields.items()}
    assert {name: match[1] for name, match in said.items() if match} == block.old_names


RENAMED = {
    "typo": ("learning_rte", "learning_rate"),
    "swapped letters": ("lerning_rate", "learning_rate"),
    "another tool's name": ("per_device_train_batch_size", "batch_size"),
    "old name": ("num_epochs", "epochs"),
    "old strategy": ("evaluation_strategy", "eval_strategy"),
    "typo of an old name": ("num_epoch", "epochs"),
    "dashes": ("max-seq-length", "max_seq_length"),
}


@pytest.mark.parametrize(("old", "new"), RENAMED.values(), ids=RENAMED.keys())
def test_a_key_gets_its_right_name(tmp_path: Path, old: str, new: str) -> None:
    manifest = manifests.small()
    manifest["training"]["config"] = {"rank": 4, old: "value"}
    text, remarks = fixed(manifests.write(tmp_path, manifest))
    assert json.loads(text)["training"]["config"] == {"rank": 4, new: "value"}
    assert remarks == []


# In every text E stands for a key to rename: "num_epochs" before, "epochs" after; R for "lora_r" and "rank".
BYTES = {
    "CRLF": b'{"name": "x",\r\n\t"training": {\r\n"config": {E :1 ,\r\nR: 4}}}\r\n',
    "byte order mark": b'\xef\xbb\xbf{"training": {"config": {E: 1, R: 4}}}',
    "byte order mark, further lines": b'\xef\xbb\xbf\n{"training": {"config": {\nE: 1, R: 4}}}',
    "one line": b'{"training":{"config":{E:1,R:4}},"_num_epochs":"lora_r"}',
    "values that look like keys": b'{"name": "num_epochs", "training": {"config": {E: 1, R: "lora_r", "optim": "lora_r"}}}',
    "other characters": '{"name": "日本 é\u2028", "training": {"config": {E: 1, R: 4}}}'.encode(),
    "comments": b'{"training": {"config": {"_x": {"num_epochs": 2}, "_x": 1, E: 1, R: 4}}}',
    "free-form data": b'{"runtime": {"config": {"num_epochs": 9}}, "training": {"config": {E: 1, R: 4}}}',
    "tabs": b'{\n\t"training":\t{"config":\t{E:\t1,\tR:\t4}}}',
}


@pytest.mark.parametrize(
    "spelled", [(b'"num_epochs"', b'"lora_r"'), (b'"num\\u005fepochs"', b'"\\u006cora_r"')], ids=["plain", "escaped"]
)
@pytest.mark.parametrize("text", BYTES.values(), ids=BYTES.keys())
def test_every_other_byte_stays(tmp_path: Path, text: bytes, spelled: tuple[bytes, bytes]) -> None:
    path = tmp_path / "manifest.json"
    path.write_bytes(text.replace(b"E", spelled[0]).replace(b"R", spelled[1]))
    write_raw(path, fixed(path)[0])
    assert path.read_bytes() == text.replace(b"E", b'"epochs"').replace(b"R", b'"rank"')
    assert list(tmp_path.iterdir()) == [path]


def config(**values: Any) -> Callable[[dict[str, Any]], Any]:
    return lambda manifest: manifest["training"]["config"].update(values)


REMARKS = {
    "right name there": (config(lora_r=8), "is not renamed to rank: rank stands there already"),
    "old name beside the new": (
        config(num_epochs=1, epochs=2),
        "is not renamed to epochs: epochs stands there already",
    ),
    "opposite meaning": (config(train_on_inputs=True), "is not renamed to completion_only_loss: it means the opposite"),
    "another kind of value": (
        lambda m: m["base_models"].append({"name": "b", "load_in_4bit": True}),
        'is not renamed to quantization: true is written "int4" there',
    ),
}


@pytest.mark.parametrize(("change", "remark"), REMARKS.values(), ids=REMARKS.keys())
def test_a_key_that_cannot_be_renamed_is_named(tmp_path: Path, change: Callable[[Any], Any], remark: str) -> None:
    manifest = manifests.small()
    change(manifest)
    path = manifests.write(tmp_path, manifest)
    assert fixed(path) == (read_raw(path), [remark])


def test_of_two_keys_with_one_right_name_the_first_gets_it(tmp_path: Path) -> None:
    manifest = manifests.small()
    manifest["training"]["config"] = {"lora_r": 4, "r": 8}
    text, remarks = fixed(manifests.write(tmp_path, manifest))
    assert json.loads(text)["training"]["config"] == {"rank": 4, "r": 8}
    assert remarks == ["is not renamed to rank: rank stands there already"]


def test_keys_left_to_their_author_are_names_of_other_tools() -> None:
    assert set(BY_HAND) <= set(OTHER_TOOLS)


def test_the_old_name_of_filters_is_renamed_unless_it_is_a_text(tmp_path: Path) -> None:
    manifest = manifests.small()
    manifest["training"]["dataset"]["validation"] = {"deduplicate": True}
    assert '"filters": {' in fixed(manifests.write(tmp_path, manifest))[0]
    manifest["training"]["dataset"]["validation"] = "by hand"
    assert '"validation": "by hand"' in fixed(manifests.write(tmp_path, manifest))[0]


def test_base_models_and_schema_1_are_fixed_too(tmp_path: Path) -> None:
    manifest = manifests.small()
    manifest["base_models"].append({"nme": "second", "config": {"num_epochs": 3, "lr": 1}})
    assert json.loads(fixed(manifests.write(tmp_path, manifest))[0])["base_models"][1] == {
        "name": "second",
        "config": {"epochs": 3, "learning_rate": 1},
    }
    manifest["base_model"] = {"name": "one", "config": {"evaluation_strategy": "no"}}
    del manifest["base_models"], manifest["schema_version"]
    text = fixed(manifests.write(tmp_path, manifest))[0]
    assert json.loads(text)["base_model"]["config"] == {"eval_strategy": "no"}


def test_the_diff_shows_lines_without_their_ends() -> None:
    assert diff('{\r\n"a": 1\r\n}\r\n', '{\r\n"b": 1\r\n}\r\n', "m.json") == [
        "--- m.json",
        "+++ m.json",
        "@@ -1,4 +1,4 @@",
        " {",
        '-"a": 1',
        '+"b": 1',
        " }",
        " ",
    ]


def test_writing_keeps_a_link_the_permissions_and_what_looks_like_a_secret(tmp_path: Path) -> None:
    real = tmp_path / "real.json"
    real.write_text("old", encoding="utf-8")
    real.chmod(0o640)
    link = tmp_path / "link.json"
    if os.name == "posix":
        link.symlink_to("real.json")
    else:
        link = real
    write_raw(link, '{"hf_key": "hf_abcdefghijklmnopqrstuvwxyzABCDEFGH"}\r\n')
    assert real.read_bytes() == b'{"hf_key": "hf_abcdefghijklmnopqrstuvwxyzABCDEFGH"}\r\n'
    if os.name == "posix":
        assert link.is_symlink()
        assert real.stat().st_mode & 0o777 == 0o640
    assert {path.name for path in tmp_path.iterdir()} == {link.name, "real.json"}


def test_a_file_that_cannot_be_written_is_an_error_of_the_machine(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentProblem, match="cannot be written"):
        write_raw(tmp_path, "{}")
    assert list(tmp_path.iterdir()) == []
