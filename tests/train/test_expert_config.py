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
from expert_cli.data.store.store_files import Documents
from expert_cli.errors import InputError
from expert_cli.inference.expert import open_expert
from expert_cli.inference.expert_config import GenerationConfig as Decoding
from expert_cli.inference.expert_config import Grammar, decoding_for
from expert_cli.inference.prompts import PromptRenderer, base_renderer
from expert_cli.runs.metrics import read_json
from expert_cli.utils.reporter import NullReporter
from tests import tiny
from tests.schemas import valid
from tests.train.projects import manifest_with, project, train, trained_in


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
    read: dict[str, Any] = read_json(file)
    valid(read, "expert")
    return read


def generation(run: Path, **values: Any) -> None:
    GenerationConfig(**{"do_sample": True, "eos_token_id": [2], **values}).save_pretrained(run / "adapter")


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
    assert found["template_fingerprint"] == trained_in(expert).origin.template
    written = read_json(expert / "adapter" / "generation_config.json")
    del written["transformers_version"]
    shaped = {"do_sample": True, "temperature": 0.7, "top_p": 0.9, "max_new_tokens": 256}
    # that of the template, then the tokenizer's own, which a base model of texts may end with all the same
    assert written == {"eos_token_id": [2, 0], "stop_strings": ["###"], **shaped}
    assert "`expert.json` and `generation_config.json` beside" in (expert / "adapter" / "README.md").read_text("utf-8")


def test_chat_evaluations_and_exports_go_by_it(changed: Path, tmp_path: Path) -> None:
    assert api.load_expert(changed, offline=True).ask("Which number is 3?") == ""
    settings = api.evaluate(changed, limit=2, offline=True).as_json()["generation"]
    shaped = ("stops", "temperature", "num_beams", "max_new_tokens")
    assert [settings[key] for key in shaped] == [("7",), 0, 2, 9]
    prompts = [("Which number is 3?", "")]
    export_expert(trained_in(changed), tmp_path / "out", prompts, NullReporter(), merge=True, gguf="f16")
    assert document(tmp_path / "out" / "expert.json") == document(changed / "adapter" / "expert.json")
    modelfile = (tmp_path / "out" / "Modelfile").read_text(encoding="utf-8")
    assert 'PARAMETER top_k 5\nPARAMETER stop """<|im_end|>"""\nPARAMETER stop """7"""\n' in modelfile
    defaults = GenerationConfig.from_pretrained(tmp_path / "out")
    assert defaults.to_dict() == GenerationConfig.from_pretrained(changed / "adapter").to_dict()


def test_an_adapter_of_an_earlier_version_says_all_in_its_expert_json(expert: Path, tmp_path: Path) -> None:
    run = shutil.copytree(expert, tmp_path / "run")
    file = run / "adapter" / "expert.json"
    (run / "adapter" / "generation_config.json").unlink()
    old = {"temperature": 0.1, "top_p": None, "top_k": 5, "min_p": None, "stop_sequences": ["7"], "grammar": None}
    written = {**document(file), "end_tokens": {"<|im_end|>": 2}, "decoding": {**old, "num_beams": 3}}
    file.write_text(json.dumps(written), encoding="utf-8")
    assert decoding_for(trained_in(run)) == Decoding(temperature=0.1, top_k=5, stops=("7",), num_beams=3)


def test_a_manifest_that_is_named_goes_before_it(changed: Path, expert: Path) -> None:
    manifest = manifest_with(expert, stop_sequences=["x"], use_grammar=True, grammar_type="json")
    used = decoding_for(trained_in(changed, manifest))
    (checkpoint,) = (changed / "checkpoints").iterdir()
    assert decoding_for(trained_in(checkpoint)).stops == ("7",), "a checkpoint is asked as its run's"
    assert (used.stops, used.temperature, used.grammar) == (("x",), 0.7, Grammar("json"))


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("expert.json", "{", "Expecting property name"),
        ("generation_config.json", '{"top_p": 2}', "top_p Input should be less than or equal to 1"),
    ],
)
def test_one_that_cannot_be_read_is_refused(changed: Path, name: str, text: str, words: str) -> None:
    (changed / "adapter" / name).write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=rf"{re.escape(name)}.*{words}"):
        decoding_for(trained_in(changed))


COUNTS = [{"instruction": f"Count to {n}.", "output": "7"} for n in range(4)]
POLITE = "{{- 'Please, ' if polite else '' }}" + tiny.CHATML
GIVEN = {"polite": True}


def asks(run: Path, manifest: Path | None = None) -> PromptRenderer:
    """Return what writes the prompts of a run's expert."""
    found = trained_in(run, manifest)
    return open_expert(found.plan.run, found.origin, NullReporter()).renderer


def test_an_expert_is_asked_as_it_was_trained_here_and_elsewhere_whatever_the_manifest_says_now(tmp_path: Path) -> None:
    own = {"chat_template_path": "own.jinja", "chat_template_kwargs": GIVEN}
    manifest = project(tmp_path, rows=COUNTS, max_steps=2, **own)
    (tmp_path / "own.jinja").write_text(POLITE, encoding="utf-8")
    done = train(manifest)
    tokenizer = AutoTokenizer.from_pretrained(done.output / "adapter")
    documents = Documents(Path(done.document["store"]["path"]) / "train")
    trained, renderer = trained_in(done.output), asks(done.output)
    ids, is_trained = documents.document(0)
    asked = tokenizer.apply_chat_template([{"role": "user", "content": "Count to 0."}], add_generation_prompt=True)
    assert asked["input_ids"] == ids[~is_trained].tolist() == renderer.encode_prompt("Count to 0.")
    assert tokenizer.decode(ids).startswith("Please, <|im_start|>user\n")
    assert renderer.encode_prompt("<|im_end|>").count(2) == 1, "a control token's spelling in a question is text"
    config = document(done.output / "adapter" / "expert.json")
    assert (config["chat_template"], config["chat_template_kwargs"]) == (POLITE, GIVEN)
    example = config["example"]
    assert example["ids"] == renderer.encode_prompt(example["prompt"], example["input"])
    base = base_renderer(trained.plan.run, trained.origin, renderer.tokenizer)
    assert base.decode(base.encode_prompt("q")) == "<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\n"
    project(tmp_path, rows=COUNTS)  # the manifest without both keys
    renderer = asks(done.output, manifest)
    assert renderer.decode(renderer.encode_prompt("q")).startswith("Please, ")
    (done.output / "adapter" / "expert.json").unlink()  # as beside a checkpoint: run.json tells
    renderer = asks(done.output, manifest)
    assert renderer.decode(renderer.encode_prompt("q")).startswith("Please, ")
