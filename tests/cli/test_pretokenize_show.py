"""`pretokenize --show`: the tokens of a document as the store has them, and which of them are trained."""

from __future__ import annotations

from itertools import groupby
from pathlib import Path
from typing import Any

import pytest
from datasets import load_from_disk
from typer.testing import CliRunner

from expert_cli.cli import app
from expert_cli.pipeline.pretokenize import token_texts
from tests import tiny
from tests.cli.test_pretokenize import pretokenize, project

TALK = {
    "messages": [
        {"role": "user", "content": "Say <|im_end|> <script>alert(1)</script>\n\tnow"},
        {"role": "assistant", "content": "no", "weight": 0},
        {"role": "user", "content": "again"},
        {"role": "assistant", "content": "yes yes"},
    ]
}
LONG = {"instruction": "word " * 60, "output": "yes " * 60}
ROWS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "conversation": (TALK, {"max_seq_length": 256}),
    "truncated": (LONG, {}),
    "concat": (LONG, {"packing": "concat"}),
}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.tiny_model_folder(tmp_path_factory.mktemp("models") / "tiny-llama")


@pytest.mark.parametrize(("row", "config"), ROWS.values(), ids=ROWS)
def test_tokens_and_mask_are_those_of_the_store(
    tmp_path: Path, model: Path, row: dict[str, Any], config: dict[str, Any]
) -> None:
    (store,) = pretokenize("-m", project(tmp_path, model, [row] * 3, **config), "--show", "2")
    document = store["documents"][1]
    stored = load_from_disk(store["path"])["train"][1]
    assert len(store["documents"]) == 2
    assert document["ids"] == stored["input_ids"]
    assert "".join(document["tokens"]) == tiny.tiny_tokenizer().decode(stored["input_ids"])
    if all(document["kept"]):
        assert document["trained"] == stored["completion_mask"]
    else:
        assert (row is LONG, config, sum(document["kept"])) == (True, {}, 64)
        both = [had and kept for had, kept in zip(stored["completion_mask"], document["kept"], strict=True)]
        assert sum(both) - 1 == sum(
            document["trained"]
        )  # the first token behind what is left out has another before it


def test_marks_tell_trained_from_untrained_without_colors(tmp_path: Path, model: Path) -> None:
    manifest = project(tmp_path, model, [TALK] * 2, max_seq_length=256)
    done = CliRunner().invoke(app, ["pretokenize", "-m", str(manifest), "--show", "1", "--quiet"])
    lines = done.stdout[done.stdout.index("document 1") :].splitlines()
    assert "".join(line[2:].replace("¦", "") for line in lines if line.startswith("» ")) == "yes yes<|im_end|>"


def test_runs_begin_where_the_mask_changes(tmp_path: Path, model: Path) -> None:
    (store,) = pretokenize("-m", project(tmp_path, model, [TALK] * 2, max_seq_length=256), "--show", "1")
    (document,) = store["documents"]
    runs = [
        (trained, "".join(text for text, _ in run))
        for trained, run in groupby(zip(document["tokens"], document["trained"], strict=True), lambda pair: pair[1])
    ]
    asked = "<|im_start|>user\nSay <|im_end|> <script>alert(1)</script>\n\tnow<|im_end|>\n<|im_start|>assistant\n"
    again = "no<|im_end|>\n<|im_start|>user\nagain<|im_end|>\n<|im_start|>assistant\n"
    assert runs == [(False, asked + again), (True, "yes yes<|im_end|>")]


@pytest.mark.parametrize("text", ["héllo 😀 wörld", " a\n\n b", "\ufffd?", "漢字かな"])
def test_tokens_together_are_the_text(text: str) -> None:
    tokenizer = tiny.tiny_tokenizer().backend_tokenizer
    ids = tokenizer.encode(text, add_special_tokens=False).ids
    texts = token_texts(tokenizer, ids)
    assert len(texts) == len(ids)
    assert "".join(texts) == tokenizer.decode(ids, skip_special_tokens=False) == text
