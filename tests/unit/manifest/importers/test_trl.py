"""The keys of TRL's SFTTrainer mean here what they mean there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from expert_cli.errors import InputError
from tests.unit.manifest.importers.configs import TRL, config_of, dataset_of, imported, reasons

CONFIG: dict[str, tuple[str, dict[str, Any]]] = {
    "length": ("max_length: 4096", {"max_seq_length": 4096}),
    "length by its old name": ("max_seq_length: 4096", {"max_seq_length": 4096}),
    "a warm-up as a share": ("warmup_steps: 0.03", {"warmup_ratio": 0.03}),
    "epochs decide": ("max_steps: -1", {}),
    "steps decide": ("max_steps: 40", {"max_steps": 40}),
    "a rate that YAML reads as text": ("learning_rate: 5e-5", {"learning_rate": 5e-5}),
    "rslora": ("use_rslora: true", {"adapter_type": "rslora"}),
    "all layers": ("lora_target_modules: all-linear", {"target_modules": "all-linear"}),
    "an old name": ("optim: adamw_hf", {"optim": "adamw_torch"}),
    "prompts too": ("completion_only_loss: false\nassistant_only_loss: false", {"completion_only_loss": False}),
    "where metrics go": ("report_to: [wandb, tensorboard]", {"report_to": ["wandb", "tensorboard"]}),
    "what the template is given": (
        "chat_template_kwargs: {enable_thinking: false}",
        {"chat_template_kwargs": {"enable_thinking": False}},
    ),
    "a template in a file": ("chat_template_path: own.jinja", {"chat_template_path": "own.jinja"}),
    "a template as text": (
        'chat_template: "{{ messages[0].content }}"',
        {"chat_template_path": "chat_template.jinja"},
    ),
    "precision": ("fp16: true\nbf16: false", {"fp16": True, "bf16": False}),
}


@pytest.mark.parametrize(("lines", "here"), CONFIG.values(), ids=CONFIG.keys())
def test_a_key_says_the_same_here(tmp_path: Path, lines: str, here: dict[str, Any]) -> None:
    base = TRL.replace("assistant_only_loss: true\n", "") if "assistant" in lines else TRL
    made = imported(tmp_path, f"{base}\n{lines}")
    assert (config_of(made), reasons(made)) == ({**config_of(imported(tmp_path, TRL)), **here}, {})


@pytest.mark.parametrize(("line", "here"), [("load_in_4bit", "int4"), ("load_in_8bit", "int8"), ("", "none")])
def test_how_weights_are_held(tmp_path: Path, line: str, here: str) -> None:
    made = imported(tmp_path, f"{TRL}\n{line}: true" if line else TRL)
    assert made.manifest["base_models"] == [{"name": "Qwen/Qwen3-0.6B", "quantization": here}]


def test_what_it_trains_where_nothing_is_written_is_told(tmp_path: Path) -> None:
    made = imported(tmp_path, TRL.replace("assistant_only_loss: true", ""))
    assert "TRL trains whole conversations" in reasons(made)["assistant_only_loss"]
    assert "completion_only_loss" not in config_of(made)


DATA: dict[str, tuple[str, dict[str, Any]]] = {
    "a configuration and a split": (
        "dataset_name: c/t\ndataset_config: en\ndataset_train_split: train_sft",
        {"path": "c/t::train_sft::en"},
    ),
    "rows that evaluate": ("dataset_name: c/t\neval_strategy: epoch", {"path": "c/t", "validation_path": "c/t::test"}),
    "a column of texts": ("dataset_name: c/t\ndataset_text_field: body", {"path": "c/t", "text_field": "body"}),
    "shares of several": (
        "dataset_mixer: {c/t: 0.5, c/m: 1.0}\ndataset_splits: [train_sft, test_sft]\neval_strategy: epoch",
        {
            "type": "multi_task",
            "tasks": {
                "t": {"train": "c/t::train_sft", "weight": 0.5, "valid": "c/t::test_sft"},
                "m": {"train": "c/m::train_sft", "valid": "c/m::test_sft"},
            },
        },
    ),
    "a mixture": (
        "dataset_mixture:\n  datasets:\n  - {id: c/t, config: en, split: a, columns: [messages], weight: 0.3}\n"
        "  - {id: c/t, split: b, columns: [messages]}\n  test_split_size: 0.1\neval_strategy: epoch",
        {
            "type": "multi_task",
            "tasks": {"t": {"train": "c/t::a::en", "weight": 0.3}, "t-2": {"train": "c/t::b"}},
            "field_mapping": {"messages": "messages"},
            "validation_split": 0.1,
        },
    ),
    "several data sets": (
        "datasets:\n- {path: c/t, name: en, split: a}\n- {path: c/m}",
        {"type": "multi_task", "tasks": {"t": {"train": "c/t::a::en"}, "m": {"train": "c/m"}}},
    ),
    "files": ("datasets:\n- {path: json, data_files: rows.jsonl, split: train}", {"path": "rows.jsonl"}),
    "files of splits": ("datasets:\n- {path: csv, data_files: {train: [a.csv], test: [b.csv]}}", {"path": "a.csv"}),
}


@pytest.mark.parametrize(("lines", "here"), DATA.values(), ids=DATA.keys())
def test_where_rows_come_from(tmp_path: Path, lines: str, here: dict[str, Any]) -> None:
    made = imported(tmp_path, TRL.replace("dataset_name: corpora/tickets", lines))
    assert (dataset_of(made), reasons(made)) == (here, {})
    assert ("eval_strategy" in config_of(made)) == ("eval_strategy" in lines)


def test_a_number_of_rows_is_no_share(tmp_path: Path) -> None:
    lines = "dataset_mixture: {datasets: [{id: c/t}], test_split_size: 1000}\neval_strategy: epoch"
    made = imported(tmp_path, TRL.replace("dataset_name: corpora/tickets", lines))
    assert "is a share of the rows" in reasons(made)["dataset_mixture.test_split_size"]
    assert config_of(made)["eval_strategy"] == "epoch"


def test_files_without_a_name_are_no_rows(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no data set is named"):
        imported(tmp_path, TRL.replace("dataset_name: corpora/tickets", "datasets: [{path: json}]"))


def test_another_models_template_is_told(tmp_path: Path) -> None:
    made = imported(tmp_path, f"{TRL}\nchat_template_path: Qwen/Qwen3-0.6B")
    assert "chat_template_path" not in config_of(made)
    assert "not another model's tokenizer" in reasons(made)["chat_template_path"]
