"""Ids that a base model has no row for are refused before it is loaded."""

from __future__ import annotations

from pathlib import Path

import pytest

from expert_cli.errors import InputError
from expert_cli.pipeline.training_data import require_embedding
from tests import tiny


@pytest.mark.parametrize(
    ("ids", "pad", "message"),
    [
        ((0, 384), 0, "validation ids are from 0 to 384, but the base model's embedding has 384 rows"),
        ((-1, 5), 0, "validation ids are from -1 to 5"),
        ((0, 383), 384, "pad token's ids are from 384 to 384, but the base model's embedding has 384 rows"),
    ],
)
def test_ids_beyond_the_embedding_are_refused(tmp_path: Path, ids: tuple[int, int], pad: int, message: str) -> None:
    folder = tiny.tiny_model_folder(tmp_path)
    require_embedding(folder, {"train": (0, 383), "validation": (0, -1)}, 383)
    with pytest.raises(InputError, match=message):
        require_embedding(folder, {"train": (0, 383), "validation": ids}, pad)
