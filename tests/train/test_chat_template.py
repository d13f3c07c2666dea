"""A run's own chat template, and what it is given: in training, in later prompts, in what is left to others."""

from __future__ import annotations

from pathlib import Path

from transformers import AutoTokenizer

from expert_cli.config.plan import trained_adapter
from expert_cli.data.store.documents import Documents
from expert_cli.inference.expert import base_renderer, open_expert
from expert_cli.inference.expert_config import read_expert_config
from expert_cli.utils.reporter import NullReporter
from tests import tiny
from tests.train.projects import Told, project, train

ROWS = [{"instruction": f"Count to {n}.", "output": "7"} for n in range(4)]
POLITE = "{{- 'Please, ' if polite else '' }}" + tiny.CHATML
GIVEN = {"polite": True}


def written(folder: Path) -> Path:
    manifest = project(folder, rows=ROWS, max_steps=2, chat_template_path="own.jinja", chat_template_kwargs=GIVEN)
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
    assert list(config.example.ids) == renderer.encode_prompt(config.example.prompt, config.example.input)
    base = base_renderer(trained.plan.run, trained.origin, renderer.tokenizer)
    assert base.decode(base.encode_prompt("q")) == "<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\n"
    project(tmp_path, rows=ROWS)  # the manifest without both keys
    report = Told()
    trained = trained_adapter(done.output, manifest, None, offline=True)
    renderer = open_expert(trained.plan.run, trained.origin, report).renderer
    assert renderer.decode(renderer.encode_prompt("q")).startswith("Please, ")
    assert [line.partition(" is ")[0] for line in report.warnings] == ["chat_template", "chat_template_kwargs"]
    (done.output / "adapter" / "expert.json").unlink()  # as beside a checkpoint: run.json tells
    trained = trained_adapter(done.output, manifest, None, offline=True)
    renderer = open_expert(trained.plan.run, trained.origin, Told()).renderer
    assert renderer.decode(renderer.encode_prompt("q")).startswith("Please, ")
