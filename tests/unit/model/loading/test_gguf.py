"""GGUF files: the same weights and the same tokens as the model they were written from."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from gguf import GGMLQuantizationType as Kind
from transformers import AutoModelForCausalLM

from expert_cli.errors import ExpertError, InputError, IntegrityError
from expert_cli.model.loading.base_model import LocalModel, fetch_model
from expert_cli.model.tokenizer import load_tokenizer
from expert_cli.utils.reporter import NullReporter
from tests import tiny
from tests.tiny_gguf import write_gguf

TEXT = "SELECT name FROM customers<|im_end|>\n    12345 don't été"


def find(file: Path, sha256: str = "") -> LocalModel:
    return fetch_model(
        str(file), search=[], sha256=sha256, cache=file.parent / "cache", offline=True, report=NullReporter()
    )


@pytest.mark.parametrize("kind", [Kind.F32, Kind.F16, Kind.Q8_0], ids=lambda kind: kind.name)
def test_every_weight_is_exact_in_bf16(tmp_path: Path, kind: Kind, capfd: pytest.CaptureFixture[str]) -> None:
    expected = write_gguf(tmp_path / "tiny.gguf", kind)
    found = find(tmp_path / "tiny.gguf")
    assert capfd.readouterr() == ("", "")
    loaded = AutoModelForCausalLM.from_pretrained(found.folder, dtype="auto").state_dict()
    for name, value in expected.items():
        assert torch.equal(loaded[name], value.bfloat16()), name
    assert set(loaded) == {*expected, "lm_head.weight"}
    assert "quantization_config" not in json.loads((found.folder / "config.json").read_text(encoding="utf-8"))


def test_the_model_computes_the_same(tmp_path: Path) -> None:
    write_gguf(tmp_path / "tiny.gguf")
    ids = torch.tensor([tiny.tiny_backend().encode(TEXT).ids])
    loaded = AutoModelForCausalLM.from_pretrained(find(tmp_path / "tiny.gguf").folder, dtype=torch.float32)
    rounded = tiny.tiny_model("llama", rms_norm_eps=1e-6).bfloat16().float()
    with torch.no_grad():
        torch.testing.assert_close(loaded(ids).logits, rounded(ids).logits, rtol=1e-5, atol=1e-5)


def test_the_tokenizer_is_the_one_of_the_file(tmp_path: Path) -> None:
    write_gguf(tmp_path / "tiny.gguf")
    info = load_tokenizer(find(tmp_path / "tiny.gguf").folder)
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
    backend = load_tokenizer(find(tmp_path / "tiny.gguf").folder).backend
    assert backend.pre_tokenizer is not None
    split = [piece.replace("Ġ", " ") for piece, _ in backend.pre_tokenizer.pre_tokenize_str("    12's")]
    assert split == pieces


def test_unpacked_once_and_known_by_its_content(tmp_path: Path) -> None:
    write_gguf(tmp_path / "tiny.gguf")
    first = find(tmp_path / "tiny.gguf")
    made = (first.folder / "model.safetensors").stat().st_ino
    (tmp_path / "tiny.gguf").rename(tmp_path / "other.gguf")
    again = find(tmp_path / "other.gguf", first.sha256)
    assert (again.folder, again.sha256) == (first.folder, first.sha256)
    assert (again.folder / "model.safetensors").stat().st_ino == made


def cut(file: Path) -> None:
    write_gguf(file)
    os.truncate(file, file.stat().st_size - 5000)


def one_short(file: Path) -> None:
    write_gguf(file, leave_out="model.layers.1.mlp.up_proj.weight")


REFUSED: dict[str, tuple[Callable[[Path], Any], type[ExpertError], str]] = {
    "another file": (lambda file: file.write_bytes(b"PK\x03\x04"), IntegrityError, "no GGUF file"),
    "cut": (cut, IntegrityError, "cut off or damaged"),
    "a tensor short": (one_short, IntegrityError, "lacks 1 weights of the model: model.layers.1.mlp.up_proj.weight"),
    "architecture": (lambda file: write_gguf(file, architecture="starcoder9"), InputError, "starcoder9"),
}


@pytest.mark.parametrize(("make", "error", "words"), REFUSED.values(), ids=REFUSED.keys())
def test_refused(tmp_path: Path, make: Callable[[Path], Any], error: type[ExpertError], words: str) -> None:
    make(tmp_path / "tiny.gguf")
    with pytest.raises(error, match=words) as caught:
        find(tmp_path / "tiny.gguf")
    assert str(tmp_path / "tiny.gguf") in caught.value.message
    assert not list((tmp_path / "cache").glob("gguf/*"))
