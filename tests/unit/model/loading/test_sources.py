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
from tests.reporters import Heard
from tests.tiny_gguf import write_gguf

CONFIG, WEIGHTS, INDEX = "config.json", "model.safetensors", "model.safetensors.index.json"


def find(name: str, search: Path, sha256: str = "", report: NullReporter | None = None) -> LocalModel:
    told = report or NullReporter()
    return fetch_model(name, search=[search], sha256=sha256, cache=search / "cache", offline=True, report=told)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return tiny.tiny_model_folder(tmp_path / "model", "qwen3")


def edit(path: Path, **changes: Any) -> None:
    document = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    path.write_text(json.dumps(document | changes), encoding="utf-8")


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_a_folder_is_taken_as_it_is(model: Path, tmp_path: Path) -> None:
    assert find("model", tmp_path) == LocalModel("model", "folder", model, sha256(model / WEIGHTS))


def shard(folder: Path) -> None:
    tiny.tiny_model("qwen3").save_pretrained(folder, max_shard_size="100KB")
    (folder / WEIGHTS).unlink()


def test_shards_count_as_sha256sum_prints_them(model: Path, tmp_path: Path) -> None:
    shard(model)
    lines = "".join(f"{sha256(file)}  {file.name}\n" for file in sorted(model.glob("*.safetensors")))
    assert lines.count("\n") > 1
    assert find("model", tmp_path).sha256 == hashlib.sha256(lines.encode()).hexdigest()


def lose_a_shard(folder: Path) -> None:
    shard(folder)
    max(folder.glob("*.safetensors")).unlink()


OWN_TYPE = {"model_type": "mine", "auto_map": {"AutoModelForCausalLM": "modeling_mine.Mine"}}
ELSEWHERE = {"weight_map": {"a": "../other.safetensors"}}
KERNEL = r'{"a": [{"_attn_implementation\u005finternal": "evil/kernel"}]}'
REFUSED: dict[str, tuple[Callable[[Path], Any], type[ExpertError], str]] = {
    "no config": (lambda f: (f / CONFIG).unlink(), EnvironmentProblem, "no config.json"),
    "adapter": (lambda f: (f / CONFIG).rename(f / "adapter_config.json"), EnvironmentProblem, "is an adapter"),
    "torn config": (lambda f: (f / CONFIG).write_text("{"), IntegrityError, "cannot be read"),
    "odd config": (lambda f: (f / CONFIG).write_text("[]"), IntegrityError, "JSON object"),
    "pickle only": (lambda f: (f / WEIGHTS).rename(f / "pytorch_model.bin"), InputError, "pickled weights only"),
    "no weights": (lambda f: (f / WEIGHTS).unlink(), EnvironmentProblem, "lacks model.safetensors"),
    "shard lost": (lose_a_shard, EnvironmentProblem, "lacks model-0"),
    "shards elsewhere": (lambda f: edit(f / INDEX, **ELSEWHERE), InputError, "outside of its folder"),
    "own code": (lambda f: edit(f / CONFIG, **OWN_TYPE), InputError, "brings its own code"),
    "kernel to fetch": (lambda f: (f / CONFIG).write_text(KERNEL), InputError, "_attn_implementation_internal"),
    "cut weights": (lambda f: os.truncate(f / WEIGHTS, 1000), IntegrityError, "is damaged"),
}


@pytest.mark.parametrize(("change", "error", "words"), REFUSED.values(), ids=REFUSED.keys())
def test_refused(
    model: Path, tmp_path: Path, change: Callable[[Path], Any], error: type[ExpertError], words: str
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
    edit(model / CONFIG, auto_map=names)
    AutoModelForCausalLM.from_pretrained(find("model", tmp_path).folder)
    assert not (tmp_path / "ran").exists()


def test_the_sha256_of_the_manifest_is_compared(model: Path, tmp_path: Path) -> None:
    right = sha256(model / WEIGHTS)
    assert find("model", tmp_path, right.upper()).sha256 == right
    with pytest.raises(IntegrityError, match=f"has sha256 {right}, the manifest says {'0' * 64}"):
        find("model", tmp_path, "0" * 64)


@pytest.mark.parametrize("placeholder", ["abc123...", "0" * 63])
def test_a_placeholder_is_not_compared(model: Path, tmp_path: Path, placeholder: str) -> None:
    report = Heard()
    assert find("model", tmp_path, placeholder, report).folder == model
    assert "not checked" in report.warned[0]


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
