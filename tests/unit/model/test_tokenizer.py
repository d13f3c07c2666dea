"""What training needs to know of a tokenizer."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from transformers import AutoTokenizer

from expert_cli.errors import EnvironmentProblem
from expert_cli.inference.prompts import PromptRenderer
from expert_cli.model.tokenizer import TokenizerInfo, load_tokenizer
from expert_cli.runs.metrics import read_json
from tests import tiny

THINKING = tiny.CHATML.replace(
    "message['content']",
    "('<think>\n\n</think>\n\n' if message['role'] == 'assistant' and not enable_thinking else '') + message['content']",
)
NO_END = "{% for message in messages %}{{ message['role'] + ': ' + message['content'] + '\n' }}{% endfor %}"


def info(folder: Path, template: str | None = tiny.CHATML, **tokens: str | None) -> TokenizerInfo:
    tokenizer = tiny.tiny_tokenizer(chat_template=template)
    for name, token in tokens.items():
        setattr(tokenizer, f"{name}_token", token)
    tokenizer.save_pretrained(folder)
    return load_tokenizer(folder)


@pytest.mark.parametrize(
    ("template", "token"),
    [(tiny.CHATML, "<|im_end|>"), (THINKING, "<|im_end|>"), (NO_END, "<|endoftext|>"), (None, "<|endoftext|>")],
    ids=["the template's own", "after a thinking block", "a template without one", "no template"],
)
def test_the_end_token(tmp_path: Path, template: str | None, token: str) -> None:
    found = info(tmp_path, template)
    assert (found.eos_token, found.eos_id) == (token, tiny.CONTROL_TOKENS.index(token))


@pytest.mark.parametrize(("ends", "found"), [("[2, 5]", [2, 0, 5]), ("6", [2, 0, 6]), ("null", [2, 0])])
def test_answers_end_at_the_end_tokens_of_the_publishers_generation_config_too(
    tmp_path: Path, ends: str, found: list[int]
) -> None:
    """As Qwen3's, whose pad token is the second one; the trained end comes first."""
    (tmp_path / "generation_config.json").write_text(f'{{"eos_token_id": {ends}}}', encoding="utf-8")
    of_base = info(tmp_path)
    assert PromptRenderer(of_base, tiny.template_for(of_base.hf)).ends == found


def test_the_pad_token(tmp_path: Path) -> None:
    assert info(tmp_path / "without").pad_id == 0
    assert info(tmp_path / "with", pad="<|im_start|>").pad_id == 1


def test_the_hash_follows_file_template_and_end(tmp_path: Path) -> None:
    tiny.tiny_tokenizer(380).save_pretrained(tmp_path / "smaller")
    found = [
        *(info(tmp_path / name) for name in "ab"),
        info(tmp_path / "c", THINKING),
        info(tmp_path / "d", None),
        info(tmp_path / "e", None, eos="<|im_end|>"),
        load_tokenizer(tmp_path / "smaller"),
    ]
    settings = tmp_path / "b" / "tokenizer_config.json"
    told = {
        "content": "<more>",
        "lstrip": False,
        "normalized": False,
        "rstrip": False,
        "single_word": False,
        "special": True,
    }
    settings.write_text(json.dumps(read_json(settings) | {"added_tokens_decoder": {"384": told}}), encoding="utf-8")
    found.append(load_tokenizer(tmp_path / "b"))
    assert found[0].sha256 == found[1].sha256
    assert len({one.sha256 for one in found}) == 6


@pytest.mark.parametrize("content", ["", "{", "{}"], ids=["absent", "torn", "empty"])
def test_no_tokenizer(tmp_path: Path, content: str) -> None:
    file = tiny.tiny_model_folder(tmp_path) / "tokenizer.json"
    file.unlink()
    if content:
        file.write_text(content, encoding="utf-8")
    with pytest.raises(EnvironmentProblem, match="cannot be loaded") as caught:
        load_tokenizer(tmp_path)
    assert str(tmp_path) in caught.value.message
    assert "\n" not in caught.value.message


def test_no_token_ends_an_answer(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentProblem, match="no token ends an answer"):
        info(tmp_path, None, eos=None)


def test_code_of_the_folder_never_runs(tmp_path: Path) -> None:
    folder = tiny.tiny_model_folder(tmp_path / "model")
    (folder / "mine.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')", encoding="utf-8")
    config = folder / "tokenizer_config.json"
    text = config.read_text(encoding="utf-8").replace("{", '{"auto_map": {"AutoTokenizer": [null, "mine.Mine"]},', 1)
    config.write_text(text.replace("TokenizersBackend", "Mine"), encoding="utf-8")
    assert load_tokenizer(folder).eos_token == "<|im_end|>"
    (folder / "tokenizer.json").unlink()
    with pytest.raises(EnvironmentProblem):
        load_tokenizer(folder)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("name", ["GPT2Tokenizer", "CodeLlamaTokenizer"])
def test_text_is_split_as_the_file_says_whatever_class_is_named(tmp_path: Path, name: str) -> None:
    folder = tiny.tiny_model_folder(tmp_path)
    file, config = folder / "tokenizer.json", folder / "tokenizer_config.json"
    said = read_json(file)
    said["model"]["vocab"]["20"] = 384
    said["model"]["merges"].append(["2", "0"])
    digits = {"type": "Digits", "individual_digits": True}
    said["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [digits, said["pre_tokenizer"]]}
    file.write_text(json.dumps(said), encoding="utf-8")
    config.write_text(config.read_text(encoding="utf-8").replace("TokenizersBackend", name), encoding="utf-8")
    found = load_tokenizer(folder)
    assert found.backend.encode("in 2023", add_special_tokens=False).tokens == ["in", "Ġ", "2", "0", "2", "3"]
    found.hf.save_pretrained(tmp_path / "saved")
    assert AutoTokenizer.from_pretrained(tmp_path / "saved").tokenize("in 2023") == ["in", "Ġ", "2", "0", "2", "3"]
