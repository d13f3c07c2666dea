"""A token store that goes away while a run uses it."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
from transformers import TrainerCallback, TrainerState

from expert_cli import api
from expert_cli.pipeline.train import RunOptions
from tests.train.projects import ROWS, project, train


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
