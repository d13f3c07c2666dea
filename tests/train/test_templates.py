"""What a run trains its prompts with, it is asked with later, and leaves to others: template and system message."""

from __future__ import annotations

from pathlib import Path

import pytest
from transformers import AutoTokenizer

from expert_cli.config.plan import trained_adapter
from expert_cli.data.store.documents import Documents
from expert_cli.inference.expert import base_renderer, open_expert
from expert_cli.inference.expert_config import read_expert_config
from expert_cli.utils.reporter import NullReporter
from tests import tiny
from tests.train.projects import project, train

ROWS = [{"instruction": f"Count to {n}.", "schema": f"numbers {n}", "output": "7"} for n in range(4)]
DEFAULTING = (
    "{% if messages[0]['role'] != 'system' %}{{ '<|im_start|>system\nYou are Tiny.<|im_end|>\n' }}{% endif %}"
    + tiny.CHATML
)
BRIEF = "Be brief: a.b_key=b.id."
"""Looks like a secret, and is none."""
JOINTS = {"": "\n\n", "alpaca": "\n\n### Schema:\n"}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.tiny_model_folder(tmp_path_factory.mktemp("models") / "tiny-llama", chat_template=DEFAULTING)


@pytest.mark.parametrize(("template", "system_prompt"), [("", None), ("alpaca", BRIEF)])
def test_the_adapters_own_tokenizer_writes_what_was_trained(
    tmp_path: Path, model: Path, template: str, system_prompt: str | None
) -> None:
    done = train(
        project(
            tmp_path, model, ROWS, base={"prompt_template": template or None}, max_steps=1, system_prompt=system_prompt
        )
    )
    tokenizer = AutoTokenizer.from_pretrained(done.output / "adapter")
    documents = Documents(Path(done.document["store"]["path"]) / "train")
    trained = trained_adapter(done.output, None, None, offline=True)
    renderer = open_expert(trained.plan.run, trained.origin, NullReporter()).renderer
    assert read_expert_config(done.output / "adapter" / "expert.json").system_prompt == system_prompt
    for number, row in enumerate(ROWS):
        ids, is_trained = documents.document(number)
        question = {"role": "user", "content": f"{row['instruction']}{JOINTS[template]}{row['schema']}"}
        asked = tokenizer.apply_chat_template([question], add_generation_prompt=True)["input_ids"]
        assert asked == ids[~is_trained].tolist() == renderer.encode_prompt(row["instruction"], row["schema"])
        answered = tokenizer.apply_chat_template([question, {"role": "assistant", "content": "7"}], tokenize=False)
        text = tokenizer.decode(ids)
        assert answered.removesuffix("\n" if not template else "") == text
        assert ("You are Tiny." in text) == (system_prompt is None and not template)
        assert (BRIEF in text) == (system_prompt == BRIEF)


COUNTS = [{"instruction": f"Count to {n}.", "output": "7"} for n in range(4)]
POLITE = "{{- 'Please, ' if polite else '' }}" + tiny.CHATML
GIVEN = {"polite": True}


def written(folder: Path) -> Path:
    manifest = project(folder, rows=COUNTS, max_steps=2, chat_template_path="own.jinja", chat_template_kwargs=GIVEN)
    (folder / "own.jinja").write_text(POLITE, encoding="utf-8")
    return manifest


def test_an_expert_is_asked_as_it_was_trained_here_and_elsewhere_whatever_the_manifest_says_now(tmp_path: Path) -> None:
    manifest = written(tmp_path)
    done = train(manifest)
    tokenizer = AutoTokenizer.from_pretrained(done.output / "adapter")
    documents = Documents(Path(done.document["store"]["path"]) / "train")
    trained = trained_adapter(done.output, None, None, offline=True)
    renderer = open_expert(trained.plan.run, trained.origin, NullReporter()).renderer
    ids, is_trained = documents.document(0)
    asked = tokenizer.apply_chat_template([{"role": "user", "content": "Count to 0."}], add_generation_prompt=True)
    assert asked["input_ids"] == ids[~is_trained].tolist() == renderer.encode_prompt("Count to 0.")
    assert tokenizer.decode(ids).startswith("Please, <|im_start|>user\n")
    assert renderer.encode_prompt("<|im_end|>").count(2) == 1, "a control token's spelling in a question is text"
    config = read_expert_config(done.output / "adapter" / "expert.json")
    assert (config.chat_template, config.chat_template_kwargs) == (POLITE, GIVEN)
    example = config.example
    assert list(example["ids"]) == renderer.encode_prompt(example["prompt"], example["input"])
    base = base_renderer(trained.plan.run, trained.origin, renderer.tokenizer)
    assert base.decode(base.encode_prompt("q")) == "<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\n"
    project(tmp_path, rows=COUNTS)  # the manifest without both keys
    trained = trained_adapter(done.output, manifest, None, offline=True)
    renderer = open_expert(trained.plan.run, trained.origin, NullReporter()).renderer
    assert renderer.decode(renderer.encode_prompt("q")).startswith("Please, ")
    (done.output / "adapter" / "expert.json").unlink()  # as beside a checkpoint: run.json tells
    trained = trained_adapter(done.output, manifest, None, offline=True)
    renderer = open_expert(trained.plan.run, trained.origin, NullReporter()).renderer
    assert renderer.decode(renderer.encode_prompt("q")).startswith("Please, ")
