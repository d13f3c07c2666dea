"""What a run trains its prompts with, it is asked with later, and leaves to others: template and system message."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoTokenizer

from expert_cli.config.plan import trained_adapter
from expert_cli.data.store.documents import Documents
from expert_cli.errors import InputError, IntegrityError
from expert_cli.inference.expert import open_expert
from expert_cli.inference.expert_config import read_expert_config
from expert_cli.pipeline.train import RunOptions
from expert_cli.utils.reporter import NullReporter
from tests import manifests, tiny
from tests.train.projects import Told, project, train

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


def written(folder: Path, model: Path, template: str = "", **config: Any) -> Path:
    manifest = project(folder, model, ROWS, **{"max_steps": 1, "logging_steps": 1, **config})
    text = json.loads(manifest.read_text(encoding="utf-8"))
    text["base_models"][0] |= {"prompt_template": template} if template else {}
    return manifests.write(folder, text)


@pytest.mark.parametrize(("template", "system_prompt"), [("", None), ("", ""), ("alpaca", BRIEF)])
def test_the_adapters_own_tokenizer_writes_what_was_trained(
    tmp_path: Path, model: Path, template: str, system_prompt: str | None
) -> None:
    done = train(written(tmp_path, model, template, system_prompt=system_prompt))
    tokenizer = AutoTokenizer.from_pretrained(done.output / "adapter")
    documents = Documents(Path(done.document["store"]["path"]) / "train")
    renderer = open_expert(
        trained_adapter(done.output, None, None, offline=True).plan.run, origin(done.output), NullReporter()
    ).renderer
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


def test_a_system_prompt_that_looks_like_a_secret_is_trained_on_and_another_is_not(tmp_path: Path, model: Path) -> None:
    done = train(written(tmp_path, model, system_prompt=BRIEF))
    on = train(written(tmp_path, model, system_prompt=BRIEF), output=tmp_path / "on", init_adapter=done.output)
    assert read_expert_config(on.output / "adapter" / "expert.json").system_prompt == BRIEF
    with pytest.raises(InputError, match="was trained with the prompt template"):
        train(written(tmp_path, model, system_prompt="Be long."), output=tmp_path / "no", init_adapter=done.output)


def origin(output: Path) -> Any:
    return trained_adapter(output, None, None, offline=True).origin


def test_another_system_prompt_is_another_run_and_another_store(tmp_path: Path, model: Path) -> None:
    first = train(written(tmp_path, model, max_steps=2, save_steps=1))
    checkpoint = RunOptions(resume=str(first.output / "checkpoints" / "checkpoint-1"))
    again = train(written(tmp_path, model, max_steps=2, save_steps=1), checkpoint)
    assert again.document["store"]["key"] == first.document["store"]["key"]
    changed = written(tmp_path, model, max_steps=2, save_steps=1, system_prompt="")
    with pytest.raises(IntegrityError, match=r'model\.system_prompt: null -> ""'):
        train(changed, checkpoint)
    other = train(changed, RunOptions(overwrite=True))
    assert other.document["store"]["key"] != first.document["store"]["key"]
    assert other.document["tokens"]["real"] < first.document["tokens"]["real"]


def test_whole_documents_are_trained_as_they_are_which_is_said(tmp_path: Path, model: Path) -> None:
    manifest = project(tmp_path, model, [{"text": "once upon a time"}], max_steps=1, system_prompt="Be brief.")
    report = Told()
    done = train(manifest, report=report)
    assert any("rows of whole documents are trained as they are" in line for line in report.warnings)
    ids, _ = Documents(Path(done.document["store"]["path"]) / "train").document(0)
    assert tiny.tiny_backend().decode(ids.tolist(), skip_special_tokens=False) == "once upon a time<|im_end|>"


def test_a_base_model_that_takes_none_is_named_before_training(tmp_path: Path) -> None:
    refusing = (
        "{% if messages[0]['role'] == 'system' %}{{ raise_exception('no system turns') }}{% endif %}" + tiny.CHATML
    )
    folder = tiny.tiny_model_folder(tmp_path / "refusing", chat_template=refusing)
    with pytest.raises(InputError, match="takes no system message, so no system_prompt: no system turns"):
        train(written(tmp_path / "project", folder, system_prompt="Be brief."))
