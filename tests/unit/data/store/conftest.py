"""The base model of the stores that are made here."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import tiny


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.tiny_model_folder(tmp_path_factory.mktemp("models") / "tiny-llama")
