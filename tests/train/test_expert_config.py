"""How an expert is asked: expert.json of a real run, and that chat, evaluations and exports go by it."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoTokenizer, GenerationConfig

from expert_cli import api
from expert_cli.artifacts.export import export_expert
from expert_cli.config.plan import TrainedAdapter, trained_adapter
from expert_cli.errors import InputError
from expert_cli.inference.expert_config import DecodingConfig, Grammar, decoding_for
from expert_cli.utils.reporter import NullReporter
from tests import manifests
from tests.train.projects import manifest_with, valid


@pytest.fixture(scope="module")
def expert(trained_expert: Callable[..., Path]) -> Path:
    return trained_expert(template="alpaca", system_prompt="Be brief.")


@pytest.fixture
def changed(expert: Path, tmp_path: Path) -> Path:
    """A run whose generation_config.json, edited, ends answers at "7", where the manifest does not."""
    run = shutil.copytree(expert, tmp_path / "run")
    generation(run, stop_strings=["7"], top_k=5, num_beams=2, max_new_tokens=9)
    return run


def document(file: Path) -> dict[str, Any]:
    read: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    valid(read, "expert")
    return read


def generation(run: Path, **values: Any) -> None:
    GenerationConfig(**{"do_sample": True, "eos_token_id": [2], **values}).save_pretrained(run / "adapter")


def by(folder: Path, manifest: Path | None = None) -> TrainedAdapter:
    return trained_adapter(folder, manifest, None, offline=True)


def test_a_run_says_how_its_expert_is_asked(expert: Path) -> None:
    found = document(expert / "adapter" / "expert.json")
    tokenizer = AutoTokenizer.from_pretrained(expert / "adapter")
    example = found.pop("example")
    turn = example["prompt"] + found["input_separator"] + example["input"]
    asked = [{"role": "user", "content": turn}]
    assert tokenizer.apply_chat_template(asked, add_generation_prompt=True)["input_ids"] == example["ids"]
    assert tokenizer.decode(example["ids"]) == example["text"]
    assert example["text"].startswith("Be brief.")
    asked_so = [found[key] for key in ("template", "system_prompt", "input_separator", "decoding")]
    assert asked_so == ["alpaca", "Be brief.", "\n\n### Input:\n", {"grammar": None}]
    assert found["template_fingerprint"] == by(expert).origin.template
    written = json.loads((expert / "adapter" / "generation_config.json").read_text(encoding="utf-8"))
    del written["transformers_version"]
    shaped = {"do_sample": True, "temperature": 0.7, "top_p": 0.9, "max_new_tokens": 256}
    # that of the template, then the tokenizer's own, which a base model of texts may end with all the same
    assert written == {"eos_token_id": [2, 0], "stop_strings": ["###"], **shaped}
    card = (expert / "adapter" / "README.md").read_text(encoding="utf-8")
    assert json.dumps(example["text"]) in card


def test_chat_evaluations_and_exports_go_by_it(changed: Path, tmp_path: Path) -> None:
    assert api.load_expert(changed, offline=True).ask("Which number is 3?") == ""
    settings = api.evaluate(changed, limit=2, offline=True).as_json()["generation"]
    shaped = ("stops", "temperature", "num_beams", "max_new_tokens")
    assert [settings[key] for key in shaped] == [("7",), 0, 2, 9]
    prompts = [("Which number is 3?", "")]
    export_expert(by(changed), tmp_path / "out", prompts, NullReporter(), merge=True, gguf="f16")
    assert document(tmp_path / "out" / "expert.json") == document(changed / "adapter" / "expert.json")
    modelfile = (tmp_path / "out" / "Modelfile").read_text(encoding="utf-8")
    assert 'PARAMETER top_k 5\nPARAMETER stop """<|im_end|>"""\nPARAMETER stop """7"""\n' in modelfile
    defaults = GenerationConfig.from_pretrained(tmp_path / "out")
    assert defaults.to_dict() == GenerationConfig.from_pretrained(changed / "adapter").to_dict()


def test_end_tokens_may_be_changed(changed: Path) -> None:
    seven = AutoTokenizer.from_pretrained(changed / "adapter").encode("7", add_special_tokens=False)
    generation(changed, eos_token_id=seven)
    assert api.load_expert(changed, offline=True).ask("Which number is 3?") == ""


def test_an_adapter_of_an_earlier_version_says_all_in_its_expert_json(expert: Path, tmp_path: Path) -> None:
    run = shutil.copytree(expert, tmp_path / "run")
    file = run / "adapter" / "expert.json"
    (run / "adapter" / "generation_config.json").unlink()
    old = {"temperature": 0.1, "top_p": None, "top_k": 5, "min_p": None, "stop_sequences": ["7"], "grammar": None}
    written = {**document(file), "end_tokens": {"<|im_end|>": 2}, "decoding": {**old, "num_beams": 3}}
    file.write_text(json.dumps(written), encoding="utf-8")
    assert decoding_for(by(run)) == DecodingConfig(0.1, top_k=5, stop_sequences=("7",), num_beams=3)


def test_a_manifest_that_is_named_goes_before_it(changed: Path, expert: Path) -> None:
    manifest = manifest_with(expert, stop_sequences=["x"], use_grammar=True, grammar_type="json")
    used = decoding_for(by(changed, manifest))
    (checkpoint,) = (changed / "checkpoints").iterdir()
    assert decoding_for(by(checkpoint)).stop_sequences == ("7",), "a checkpoint is asked as its run's"
    assert (used.stop_sequences, used.temperature, used.grammar) == (("x",), 0.7, Grammar("json"))


def test_an_exported_adapter_keeps_its_system_prompt(expert: Path, tmp_path: Path) -> None:
    """Far from its run, with a manifest that has none: the prompt is that of training."""
    export_expert(by(expert), tmp_path / "out", [], NullReporter(), merge=False, gguf=None)
    written = json.loads(by(expert).plan.run.manifest.read_text(encoding="utf-8"))
    del written["training"]["config"]["system_prompt"]
    manifest = manifests.write(tmp_path, written)
    assert api.load_expert(tmp_path / "out", manifest=manifest, offline=True).ask("Which number is 3?") == "7"


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("expert.json", "{", "EOF"),
        ("expert.json", "{}", "template: Field required"),
        ("generation_config.json", '{"top_p": 2}', "top_p: Input should be less than or equal to 1"),
    ],
)
def test_one_that_cannot_be_read_is_refused(changed: Path, name: str, text: str, words: str) -> None:
    (changed / "adapter" / name).write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=rf"{re.escape(name)}.*{words}"):
        decoding_for(by(changed))
