"""A run whose epochs go in several portions: broken off in the middle of one, it goes on bit for bit."""

from __future__ import annotations

from functools import partialmethod
from pathlib import Path
from typing import Any

import pytest

from expert_cli.data.packing.dataset import PackedDataset
from tests import tiny
from tests.train.projects import project, train
from tests.train.test_resume import RESUME, Crash, CrashingAt, losses


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.tiny_model_folder(tmp_path_factory.mktemp("models") / "tiny-llama")


IN_PORTIONS = partialmethod(PackedDataset.__init__, portion=5)

CASES: dict[str, dict[str, Any]] = {
    "random packs, two workers": {"dataloader_num_workers": 2},
    "one document a pack, grouped": {"packing": False, "group_by_length": True},
}


@pytest.mark.parametrize("config", CASES.values(), ids=CASES.keys())
def test_a_run_of_several_portions_goes_on_bit_for_bit(
    tmp_path: Path, model: Path, monkeypatch: pytest.MonkeyPatch, config: dict[str, Any]
) -> None:
    config = {"save_steps": 1, "max_steps": None, "epochs": 2, "batch_size": 2, "max_seq_length": 64, **config}
    manifest = project(tmp_path, model, **config)
    at_once = train(manifest, output=tmp_path / "at once").document
    monkeypatch.setattr(PackedDataset, "__init__", IN_PORTIONS)
    straight = train(manifest, output=tmp_path / "a").document
    assert straight["tokens"] == at_once["tokens"], "every document is trained as often"
    assert straight["adapter_sha256"] != at_once["adapter_sha256"]
    for crash in (2, straight["steps"] - 1):
        with pytest.raises(Crash):
            train(manifest, RESUME, CrashingAt(crash), output=tmp_path / "b")
    resumed = train(manifest, RESUME, output=tmp_path / "b").document
    assert resumed["adapter_sha256"] == straight["adapter_sha256"]
    assert losses(tmp_path / "b") == losses(tmp_path / "a")
