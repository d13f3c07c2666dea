"""What `train` says of its token store."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from expert_cli.pipeline.train import RunOptions
from expert_cli.utils.reporter import NullReporter
from tests import tiny
from tests.train.projects import ROWS, project, train


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.tiny_model_folder(tmp_path_factory.mktemp("models") / "tiny-llama")


class Lines(NullReporter):
    def __init__(self) -> None:
        self.said: list[str] = []

    def info(self, text: str) -> None:
        self.said.append(text)

    def of_the_store(self) -> list[str]:
        """Return what was said of the token store, times and hashes left out."""
        return [re.sub(r"[0-9a-f]{12}|[0-9.]+(?= s$)", "#", line) for line in self.said if line.startswith("store  ")]


def test_what_becomes_of_the_store_is_said_and_why(tmp_path: Path, model: Path) -> None:
    stores = tmp_path / "datasets_optimized" / "expert-small" / "tokenized"
    told = []
    for rows in (ROWS, ROWS, ROWS[1:]):
        report = Lines()
        found = train(project(tmp_path, model, rows, max_steps=1), RunOptions(overwrite=True), report)
        told.append(report.of_the_store())
    assert told[:2] == [[f"store     built: {stores}/#, in # s"], [f"store     hit: {stores}/#"]]
    assert told[2] == [
        f"store     stale: {stores}/# was made from something else",
        "store     train data: # -> #",
        f"store     rebuilt: {stores}/#, in # s",
    ]
    (stores / found.document["store"]["key"][:12] / "stats.json").write_text("{}", encoding="utf-8")
    report = Lines()
    train(project(tmp_path, model, ROWS[1:], max_steps=1), RunOptions(overwrite=True), report)
    damaged, rebuilt = report.of_the_store()
    assert damaged.startswith("store     damaged: ")
    assert "stats.json" in damaged
    assert rebuilt == f"store     rebuilt: {stores}/#, in # s"
