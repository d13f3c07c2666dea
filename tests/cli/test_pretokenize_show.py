"""`pretokenize --show`: which tokens of a document are trained, and why."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from datasets import load_from_disk
from typer.testing import CliRunner

from expert_cli.cli import app
from expert_cli.config.plan import make_plan
from expert_cli.config.resolve import Overrides
from expert_cli.data import mask_reasons
from expert_cli.data.templates.trained import TrainedTurns
from expert_cli.errors import IntegrityError
from expert_cli.hardware.machine import inspect
from expert_cli.pipeline.pretokenize import resolve_inputs, store_for
from expert_cli.pipeline.shown_documents import ShownDocument, shown_documents, token_texts
from expert_cli.utils.reporter import NullReporter
from tests import tiny
from tests.cli.test_pretokenize import pretokenize, project

ENDS = mask_reasons.ends_with("<|im_end|>")
TALK = {
    "messages": [
        {"role": "user", "content": "Say <|im_end|> <script>alert(1)</script>\n\tnow"},
        {"role": "assistant", "content": "no", "weight": 0},
        {"role": "user", "content": "again"},
        {"role": "assistant", "content": "yes yes"},
    ]
}
TRL = {
    "prompt": [
        {"role": "user", "content": "q"},
        {"role": "assistant", "content": "a"},
        {"role": "user", "content": "r"},
    ],
    "completion": [{"role": "assistant", "content": "b"}],
}
CHATML = {"text": "<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\na<|im_end|>\n<|im_start|>user\nr<|im_end|>\n"}
LONG = {"instruction": "word " * 60, "output": "yes " * 60}
ROWS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "pair": ({"instruction": "q", "output": "a"}, {}),
    "conversation": (TALK, {}),
    "prompt of messages": (TRL, {}),
    "written by the template": (
        {"messages": [{"role": "user", "content": ""}, {"role": "assistant", "content": "a"}]},
        {},
    ),
    "chatml": (CHATML, {}),
    "everything": ({"instruction": "q", "output": "a"}, {"completion_only_loss": False}),
    "turns of the user, too": (TALK, {"roles_to_train": ["assistant", "user"]}),
    "the last turn": ({"messages": [*TRL["prompt"], *TRL["completion"]]}, {"mask_history": True}),
    "segments": ({"segments": [{"label": False, "text": "q"}, {"label": True, "text": "a"}]}, {}),
    "truncated": (LONG, {}),
    "concat": (LONG, {"packing": "concat"}),
}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.tiny_model_folder(tmp_path_factory.mktemp("models") / "tiny-llama")


def show(*args: str | Path) -> Any:
    return CliRunner().invoke(app, ["pretokenize", *map(str, args), "--quiet"], catch_exceptions=False)


def without_reason(document: dict[str, Any]) -> list[int]:
    """The tokens at which what is trained or left out changes, and no reason stands."""
    states = list(zip(document["trained"], document["kept"], strict=True))
    borders = [n for n in range(len(states)) if not n or states[n] != states[n - 1]]
    return sorted(set(borders) - {reason["token"] for reason in document["reasons"]})


@pytest.mark.parametrize(("row", "config"), ROWS.values(), ids=ROWS)
def test_every_border_has_its_reason_and_the_tokens_are_the_stores(
    tmp_path: Path, model: Path, row: dict[str, Any], config: dict[str, Any]
) -> None:
    (store,) = pretokenize("-m", project(tmp_path, model, [row] * 3, **config), "--show", "2")
    assert [Path(document["where"]).name for document in store["documents"]] == ["train.jsonl:1", "train.jsonl:2"]
    document = store["documents"][0]
    stored = load_from_disk(store["path"])["train"][0]
    assert document["ids"] == stored["input_ids"]
    assert "".join(document["tokens"]) == tiny.tiny_tokenizer().decode(stored["input_ids"])
    if all(document["kept"]):
        assert document["trained"] == stored["completion_mask"]
    assert without_reason(document) == []


def test_each_reason_stands_at_its_border(tmp_path: Path, model: Path) -> None:
    (store,) = pretokenize("-m", project(tmp_path, model, [TALK] * 2, max_seq_length=256), "--show", "1")
    (document,) = store["documents"]
    ends = [*(reason["token"] for reason in document["reasons"]), len(document["tokens"])]
    runs = ["".join(document["tokens"][start:stop]) for start, stop in pairwise(ends)]
    assert [(reason["reason"], text) for reason, text in zip(document["reasons"], runs, strict=True)] == [
        (
            mask_reasons.PROMPT,
            "<|im_start|>user\nSay <|im_end|> <script>alert(1)</script>\n\tnow<|im_end|>\n<|im_start|>assistant\n",
        ),
        (mask_reasons.not_trained_by("weight"), "no<|im_end|>"),
        (mask_reasons.PROMPT, "\n<|im_start|>user\nagain<|im_end|>\n<|im_start|>assistant\n"),
        (mask_reasons.GENERATION_PROMPT, "yes yes"),
        (ENDS, "<|im_end|>"),
    ]


def test_marks_tell_trained_from_untrained_without_colors(tmp_path: Path, model: Path) -> None:
    manifest = project(tmp_path, model, [TALK] * 2, max_seq_length=256)
    done = show("-m", manifest, "--show", "1")
    lines = done.stdout[done.stdout.index("document 1") :].splitlines()
    assert f"    not trained: {mask_reasons.PROMPT}" in lines
    assert f"    trained: {mask_reasons.GENERATION_PROMPT}" in lines
    assert "".join(line[2:].replace("¦", "") for line in lines if line.startswith("» ")) == "yes yes<|im_end|>"
    assert str(manifest) in done.stdout


def documents_of(manifest: Path, **changed: Any) -> tuple[ShownDocument, ...]:
    """Show a store beside rows or a template that may be others than it was made of."""
    run = make_plan(manifest, inspect(), Overrides()).run
    inputs = resolve_inputs(run, NullReporter())
    store = store_for(run, inputs, NullReporter())
    compiler = replace(inputs.template.compiler, **changed)
    other = replace(inputs, template=replace(inputs.template, compiler=compiler))
    return shown_documents(run, store, other, 5, NullReporter()).documents


def test_a_store_that_is_not_what_its_rows_give_is_told(tmp_path: Path, model: Path) -> None:
    manifest = project(tmp_path, model)
    assert len(documents_of(manifest)) == 5
    with pytest.raises(IntegrityError, match="document 1 has other trained tokens than its row gives now"):
        documents_of(manifest, trained=TrainedTurns(completion_only=False))
    with pytest.raises(IntegrityError, match="document 1 has other ids than its row gives now") as caught:
        documents_of(manifest, bos_token="<|im_end|>")  # noqa: S106
    assert "report it" in caught.value.hint


@pytest.mark.parametrize("text", ["héllo 😀 wörld", " a\n\n b", "\ufffd?", "漢字かな"])
def test_tokens_together_are_the_text(text: str) -> None:
    tokenizer = tiny.tiny_tokenizer().backend_tokenizer
    ids = tokenizer.encode(text, add_special_tokens=False).ids
    texts = token_texts(tokenizer, ids)
    assert len(texts) == len(ids)
    assert "".join(texts) == tokenizer.decode(ids, skip_special_tokens=False) == text


def test_a_secret_is_not_shown_though_it_is_in_several_tokens(tmp_path: Path, model: Path) -> None:
    secret = "hf_" + "aB3" * 12
    row = {"instruction": f"mine is {secret} there", "output": "yes"}
    (store,) = pretokenize("-m", project(tmp_path, model, [row] * 2, max_seq_length=256), "--show", "1")
    shown = "".join(store["documents"][0]["tokens"])
    assert "mine is *** there" in shown
    assert secret not in shown
