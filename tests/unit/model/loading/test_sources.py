"""Base models in folders: what is taken, what is refused, which hash counts."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoModelForCausalLM

from expert_cli.errors import EnvironmentProblem, ExpertError, InputError, IntegrityError
from expert_cli.model.loading.sources import LocalModel, fetch_model
from expert_cli.utils.reporter import NullReporter
from tests import tiny
from tests.tiny_gguf import write_gguf


class Warned(NullReporter):
    """Keeps what is warned of."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def warning(self, text: str) -> None:
        self.lines.append(text)


def find(name: str, search: Path, sha256: str = "", report: NullReporter | None = None) -> LocalModel:
    return fetch_model(
        name, search=[search], sha256=sha256, cache=search / "cache", offline=True, report=report or NullReporter()
    )


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return tiny.tiny_model_folder(tmp_path / "model", "qwen3")


def edit(path: Path, **changes: Any) -> None:
    document = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    path.write_text(json.dumps(document | changes), encoding="utf-8")


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_a_folder_is_taken_as_it_is(model: Path, tmp_path: Path) -> None:
    assert find("model", tmp_path) == LocalModel("model", "folder", model, sha256(model / "model.safetensors"))


def shard(folder: Path) -> None:
    tiny.tiny_model("qwen3").save_pretrained(folder, max_shard_size="100KB")
    (folder / "model.safetensors").unlink()


def test_shards_count_as_sha256sum_prints_them(model: Path, tmp_path: Path) -> None:
    shard(model)
    lines = "".join(f"{sha256(file)}  {file.name}\n" for file in sorted(model.glob("*.safetensors")))
    assert lines.count("\n") > 1
    assert find("model", tmp_path).sha256 == hashlib.sha256(lines.encode()).hexdigest()


def lose_a_shard(folder: Path) -> None:
    shard(folder)
    max(folder.glob("*.safetensors")).unlink()


def shards_elsewhere(folder: Path) -> None:
    edit(folder / "model.safetensors.index.json", weight_map={"a": "../other.safetensors"})


def pickle_only(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")


def adapter(folder: Path) -> None:
    (folder / "config.json").rename(folder / "adapter_config.json")


def own_type(folder: Path) -> None:
    edit(folder / "config.json", model_type="mine", auto_map={"AutoModelForCausalLM": "modeling_mine.Mine"})


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        pytest.param(lambda f: (f / "config.json").unlink(), EnvironmentProblem, "no config.json", id="no config"),
        pytest.param(adapter, EnvironmentProblem, "is an adapter", id="adapter"),
        pytest.param(lambda f: (f / "config.json").write_text("{"), IntegrityError, "cannot be read", id="torn config"),
        pytest.param(lambda f: (f / "config.json").write_text("[]"), IntegrityError, "JSON object", id="odd config"),
        pytest.param(pickle_only, InputError, "pickled weights only", id="pickle only"),
        pytest.param(
            lambda f: (f / "model.safetensors").unlink(), EnvironmentProblem, "lacks model.safetensors", id="no weights"
        ),
        pytest.param(lose_a_shard, EnvironmentProblem, "lacks model-0", id="shard lost"),
        pytest.param(shards_elsewhere, InputError, "outside of its folder", id="shards elsewhere"),
        pytest.param(own_type, InputError, "brings its own code", id="own code"),
        pytest.param(
            lambda f: (f / "config.json").write_text(r'{"a": [{"_attn_implementation\u005finternal": "evil/kernel"}]}'),
            InputError,
            "_attn_implementation_internal",
            id="kernel to fetch, spelled with an escape",
        ),
        pytest.param(
            lambda f: os.truncate(f / "model.safetensors", 1000), IntegrityError, "is damaged", id="cut weights"
        ),
    ],
)
def test_refused(
    model: Path, tmp_path: Path, change: Callable[[Path], None], error: type[ExpertError], words: str
) -> None:
    change(model)
    with pytest.raises(error, match=words) as caught:
        find("model", tmp_path)
    assert str(model) in caught.value.message
    assert caught.value.hint


def test_code_beside_a_known_type_never_runs(model: Path, tmp_path: Path) -> None:
    """Phi-3 and others keep an auto_map from before transformers knew them."""
    (model / "modeling_mine.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')", encoding="utf-8")
    names = {"AutoConfig": "modeling_mine.C", "AutoModelForCausalLM": "modeling_mine.M"}
    edit(model / "config.json", auto_map=names)
    AutoModelForCausalLM.from_pretrained(find("model", tmp_path).folder)
    assert not (tmp_path / "ran").exists()


def test_the_sha256_of_the_manifest_is_compared(model: Path, tmp_path: Path) -> None:
    right = sha256(model / "model.safetensors")
    assert find("model", tmp_path, right.upper()).sha256 == right
    with pytest.raises(IntegrityError, match=f"has sha256 {right}, the manifest says {'0' * 64}"):
        find("model", tmp_path, "0" * 64)


@pytest.mark.parametrize("placeholder", ["abc123...", "0" * 63])
def test_a_placeholder_is_not_compared(model: Path, tmp_path: Path, placeholder: str) -> None:
    report = Warned()
    assert find("model", tmp_path, placeholder, report).folder == model
    assert "not checked" in report.lines[0]


def test_a_gguf_file_is_taken_from_a_folder_that_holds_one(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    write_gguf(tmp_path / "model" / "a.gguf")
    assert (find("model", tmp_path).kind, find("model", tmp_path).gguf) == ("gguf", "a.gguf")
    (tmp_path / "model" / "b.gguf").write_bytes(b"GGUF")
    with pytest.raises(InputError, match=r"2 GGUF files: a\.gguf, b\.gguf"):
        find("model", tmp_path)
    (tmp_path / "model.bin").write_bytes(b"x")
    with pytest.raises(InputError, match="neither a folder nor a GGUF file"):
        find("model.bin", tmp_path)
