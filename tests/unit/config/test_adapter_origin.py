"""An adapter is used as its run left it, or not at all."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from expert_cli.config.adapter_origin import CONFIG, WEIGHTS, find_adapter
from expert_cli.errors import IntegrityError
from expert_cli.utils.files import sha256_of


@pytest.fixture
def run(tmp_path: Path) -> Path:
    (tmp_path / "adapter").mkdir()
    (tmp_path / "run.json").write_text("{}", encoding="utf-8")
    (tmp_path / "adapter" / CONFIG).write_text(json.dumps({"lora_alpha": 8}), encoding="utf-8")
    (tmp_path / "adapter" / WEIGHTS).write_bytes(b"weights")
    lines = (f"{sha256_of(tmp_path / 'adapter' / name)}  adapter/{name}\n" for name in (WEIGHTS, CONFIG))
    (tmp_path / "COMPLETE").write_text("".join(lines), encoding="utf-8")
    return tmp_path


@pytest.mark.parametrize("folder", [".", "adapter"])
@pytest.mark.parametrize(("name", "changed"), [(WEIGHTS, b"weightz"), (CONFIG, b'{"lora_alpha": 999}')])
def test_a_file_that_is_not_what_was_sealed_is_refused(run: Path, folder: str, name: str, changed: bytes) -> None:
    assert find_adapter(run / folder).sealed
    (run / "adapter" / name).write_bytes(changed)
    with pytest.raises(IntegrityError, match=f"{name} is not the file that the run wrote"):
        find_adapter(run / folder)
    (run / "COMPLETE").unlink()
    assert not find_adapter(run / folder).sealed


def test_a_checkpoint_of_a_sealed_run_and_an_adapter_of_elsewhere_are_not_sealed(run: Path) -> None:
    checkpoint = run / "checkpoints" / "checkpoint-1"
    checkpoint.mkdir(parents=True)
    for name in (WEIGHTS, CONFIG):
        (checkpoint / name).write_bytes(b"{}")
    assert not find_adapter(checkpoint).sealed
    (run / "run.json").unlink()
    (run / "adapter" / WEIGHTS).write_bytes(b"other")
    assert not find_adapter(run / "adapter").sealed
