"""What is a fault in a manifest, where, and what to write instead."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from expert_cli.errors import InputError, ManifestError, ManifestIssue
from expert_cli.manifest.keys.dataset import Dataset, FieldMapping
from expert_cli.manifest.messages import OTHER_TOOLS, nearest
from expert_cli.manifest.reader import load_manifest
from expert_cli.manifest.schema import Base, Manifest
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


def test_every_name_of_another_tool_leads_to_a_key_there_is() -> None:
    blocks = (TrainingConfig, Base, Manifest, Dataset, FieldMapping)
    known = {name for block in blocks for name in block.model_fields}
    assert set(OTHER_TOOLS.values()) <= known
    for foreign, ours in OTHER_TOOLS.items():
        if ours in TrainingConfig.model_fields:
            assert nearest(foreign, TrainingConfig.model_fields) == ours


SETTINGS = {
    "number": ("training.config.rank=8", "rank", 8),
    "text": ("training.config.optim=sgd", "optim", "sgd"),
    "a text like a list": ("system_prompt=[INST] be brief", "system_prompt", "[INST] be brief"),
    "list": ('training.config.target_modules=["q_proj"]', "target_modules", ["q_proj"]),
}


@pytest.mark.parametrize(("setting", "key", "value"), SETTINGS.values(), ids=SETTINGS.keys())
def test_set_changes_one_key(tmp_path: Path, setting: str, key: str, value: Any) -> None:
    loaded = load_manifest(manifests.write(tmp_path, manifests.small()), (setting,))
    assert getattr(loaded.manifest.training.config, key) == value


@pytest.mark.parametrize("setting", ["epochs=3", "num_epochs=3"])
@pytest.mark.parametrize("written", ["epochs", "num_epochs"])
def test_set_beats_every_spelling_in_every_block(tmp_path: Path, written: str, setting: str) -> None:
    manifest = manifests.small(**{written: 1, "max_steps": 9})
    manifest["base_models"][0]["config"] = {"num_epochs": 5, "max_steps": 7}
    loaded = load_manifest(manifests.write(tmp_path, manifest), (setting,))
    kept = loaded.manifest.training.config
    assert (kept.epochs, kept.num_epochs, kept.max_steps) == (3, None, None)
    own = loaded.manifest.bases[0].config
    assert own is not None
    assert (own.num_epochs, own.max_steps) == (None, None)


BROKEN_SETTINGS = {
    "endless brackets": (f"rank={'[' * 100_000}", "must be a whole number"),
    "too many bits": ("seed=4294967296", "must be less than 4294967296"),
    "a wrong type": ("training.config.rank=high", '--set training.config.rank: must be a whole number, is "high"'),
    "a block that is not for --set": ("training.dataset.path=x", "is not of the form KEY=VALUE"),
    "no key": ("training.config.rnk=3", "unknown key training.config.rnk"),
}


@pytest.mark.parametrize(("setting", "message"), BROKEN_SETTINGS.values(), ids=BROKEN_SETTINGS.keys())
def test_a_broken_setting_is_told_as_one(tmp_path: Path, setting: str, message: str) -> None:
    with pytest.raises(InputError, match=re.escape(message)) as caught:
        load_manifest(manifests.write(tmp_path, manifests.small()), (setting,))
    assert caught.value.message.startswith("--set")
    assert len(caught.value.message) < 250
