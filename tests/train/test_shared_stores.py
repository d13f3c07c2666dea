"""Runs that use one folder of token stores: what is said of a store, and what happens to it while it is used."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
from transformers import TrainerCallback, TrainerState

from expert_cli import api
from expert_cli.pipeline.train import RunOptions
from expert_cli.utils.files import stamp
from expert_cli.utils.filesystem import files_below
from expert_cli.utils.reporter import NullReporter
from tests.train.projects import ROWS, project, train


class AnotherIsFirst(NullReporter):
    """Lets another process build the same store once this one has found that it must."""

    def __init__(self, manifest: Path) -> None:
        self.manifest, self.files = manifest, dict[Path, list[int]]()

    def info(self, text: str) -> None:
        if "stale" in text and not self.files:
            home = api.pretokenize(self.manifest).store.home
            self.files = {path: stamp(path) for path in files_below(home)}


def test_who_waits_for_the_store_that_another_builds_uses_it_beside_an_older_one_too(tmp_path: Path) -> None:
    manifest = project(tmp_path)
    api.pretokenize(manifest)
    (tmp_path / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS[1:]), encoding="utf-8")
    another = AnotherIsFirst(manifest)
    mine = api.pretokenize(manifest, reporter=another).store.home
    assert mine / "fingerprint.json" in another.files
    assert {path: stamp(path) for path in files_below(mine)} == another.files


class StoreIsRemoved(TrainerCallback):
    """Removes the stores while the last step is trained, as `--prune` of a colleague does."""

    def __init__(self, stores: Path) -> None:
        self.stores = stores

    def on_step_end(self, args: Any, state: TrainerState, control: Any, **kwargs: Any) -> None:
        if state.global_step == state.max_steps:
            shutil.rmtree(self.stores)


@pytest.mark.skipif(sys.platform == "win32", reason="nothing that is mapped can be removed there")
def test_a_run_whose_store_is_removed_while_it_trains_comes_to_its_end(tmp_path: Path) -> None:
    manifest = project(tmp_path)
    stores = api.pretokenize(manifest).store.home.parent
    done = train(manifest, RunOptions(callbacks=(StoreIsRemoved(stores),)))
    assert (done.output / "COMPLETE").is_file()
    assert done.document["store"]["rows"] == len(ROWS)
