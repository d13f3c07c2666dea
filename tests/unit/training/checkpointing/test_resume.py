"""A checkpoint goes on with the packs that it was written among, or not at all."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from expert_cli.errors import InputError
from expert_cli.training.checkpointing import checkpoint, resume
from tests.packs import packed
from tests.small_trainer import small_trainer


def test_a_checkpoint_of_other_portions_is_refused(tmp_path: Path) -> None:
    made = small_trainer(tmp_path / "one")
    parts = checkpoint.read(resume.save(made, made.model.model, tmp_path / "checkpoints", {}).path)
    resume.restore(made, made.model.model, parts)
    of_earlier_versions = dict(parts.trainer)
    assert of_earlier_versions.pop("portions") == 1
    resume.restore(made, made.model.model, replace(parts, trainer=of_earlier_versions))
    made.train_dataset = packed(tmp_path / "two", *[(4, 4)] * 12, packing="off", portion=6)
    with pytest.raises(InputError, match="packs are of 1 portion of the documents, they are now of 2"):
        resume.restore(made, made.model.model, parts)
