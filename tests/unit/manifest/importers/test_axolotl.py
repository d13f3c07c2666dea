"""Axolotl's keys mean here what they mean there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from expert_cli.manifest.importers.axolotl_data import PREAMBLE
from tests.unit.manifest.importers.configs import AXOLOTL, config_of, dataset_of, imported, reasons


def test_a_whole_configuration(tmp_path: Path) -> None:
    made = imported(tmp_path, AXOLOTL)
    assert made.manifest["base_models"] == [{"name": "Qwen/Qwen3-0.6B", "quantization": "int4"}]
    assert dataset_of(made) == {"path": "corpora/tickets", "field_mapping": {"messages": "messages"}}
    assert config_of(made) == {
        "rank": 8,
        "alpha": 16,
        "target_modules": "all-linear",
        "epochs": 3,
        "learning_rate": 0.0002,  # YAML 1.1 reads 2e-4 as text
        "lr_scheduler": "cosine",
        "warmup_ratio": 0.1,
        "batch_size": 2,
        "gradient_accumulation_steps": 4,
        "optim": "adamw_bnb_8bit",
        "max_seq_length": 1024,
        "packing": True,
        "overflow": "drop",
    }
    assert reasons(made) == {}


CONFIG: dict[str, tuple[str, dict[str, Any]]] = {
    "steps of a warm-up": ("warmup_steps: 10", {"warmup_steps": 10}),
    "a share as steps": ("warmup_steps: 0.05", {"warmup_ratio": 0.05}),
    "no warm-up is said": ("warmup_steps: 0", {"warmup_steps": 0}),
    "whole prompts are trained": ("train_on_inputs: true", {"completion_only_loss": False}),
    "flash attention": ("flash_attention: true", {"flash_attention_2": True}),
    "attention by its name": ("attn_implementation: sdpa", {"use_sdpa": True}),
    "precision is left to the machine": ("bf16: auto", {}),
    "precision": ("bf16: full", {"bf16": True}),
    "dora": ("peft_use_dora: true", {"adapter_type": "dora"}),
    "a least learning rate": (
        "cosine_min_lr_ratio: 0.1",
        {"lr_scheduler": "cosine_with_min_lr", "lr_scheduler_kwargs": {"min_lr_rate": 0.1}},
    ),
    "fsdp": ("fsdp: [full_shard, auto_wrap]", {"fsdp": True}),
    "fsdp in words": ("fsdp: full_shard", {"fsdp": True}),
    "wandb": ("wandb_project: boats", {"report_to": ["wandb"]}),
    "checkpoints": ("saves_per_epoch: 1", {"save_strategy": "epoch"}),
    "long rows": ("excess_length_strategy: raise", {"overflow": "error"}),
    "a system message": ("default_system_message: Be brief.", {"system_prompt": "Be brief."}),
}


@pytest.mark.parametrize(("line", "here"), CONFIG.values(), ids=CONFIG.keys())
def test_a_key_says_the_same_here(tmp_path: Path, line: str, here: dict[str, Any]) -> None:
    base = AXOLOTL.replace("warmup_ratio: 0.1", "") if "warmup" in line else AXOLOTL
    before = config_of(imported(tmp_path, f"{base}\nwarmup_steps: 3" if "warmup" in line else base))
    made = imported(tmp_path, f"{base}\n{line}")
    before.pop("warmup_steps", None)
    assert config_of(made) == {**before, **here}
    assert reasons(made) == {}


def test_its_own_warm_up_where_none_is_written(tmp_path: Path) -> None:
    made = imported(tmp_path, AXOLOTL.replace("warmup_ratio: 0.1", ""))
    assert config_of(made)["warmup_ratio"] == 0.03
    assert made.defaults["warmup_ratio"] == ["warmup_ratio"]


@pytest.mark.parametrize(
    ("adapter", "bits", "here"),
    [("lora", "", "none"), ("lora", "load_in_8bit", "int8"), ("lora", "load_in_4bit", "int4"), ("qlora", "", "int4")],
)
def test_how_weights_are_held(tmp_path: Path, adapter: str, bits: str, here: str) -> None:
    text = AXOLOTL.replace("adapter: qlora", f"adapter: {adapter}").replace("load_in_4bit: true", "")
    made = imported(tmp_path, f"{text}\n{bits}: true" if bits else text)
    assert made.manifest["base_models"][0]["quantization"] == here


def test_the_whole_batch_says_how_many_micro_steps_there_are(tmp_path: Path) -> None:
    made = imported(tmp_path, AXOLOTL.replace("gradient_accumulation_steps: 4", "batch_size: 16"))
    assert config_of(made)["gradient_accumulation_steps"] == 8


def test_evaluations_need_rows(tmp_path: Path) -> None:
    asked = f"{AXOLOTL}\nevals_per_epoch: 4\nearly_stopping_patience: 3"
    without = imported(tmp_path, asked)
    assert set(reasons(without)) == {"evals_per_epoch", "early_stopping_patience"}
    assert "eval_strategy" not in config_of(without)
    made = imported(tmp_path, f"{asked}\nval_set_size: 0.05")
    assert dataset_of(made)["validation_split"] == 0.05
    assert (config_of(made)["eval_strategy"], config_of(made)["early_stopping_patience"]) == ("epoch", 3)
    assert set(reasons(made)) == {"evals_per_epoch"}  # four an epoch become one


def test_alpaca_is_asked_in_its_own_words(tmp_path: Path) -> None:
    made = imported(tmp_path, AXOLOTL.replace("type: chat_template", "type: alpaca"))
    assert made.manifest["base_models"][0]["prompt_template"] == "alpaca"
    assert config_of(made)["system_prompt"] == PREAMBLE
    assert dataset_of(made) == {"path": "corpora/tickets"}
    assert set(reasons(made)) == {"datasets[0].type"}


FORMS = {
    "sharegpt": ("type: sharegpt", {"messages": "conversations"}),
    "sharegpt, an old way": ("type: sharegpt:chat", {"messages": "conversations"}),
    "a column of its own": ("{type: chat_template, field_messages: turns}", {"messages": "turns"}),
    "whole texts": ("type: completion", {"text": "text"}),
    "whole texts of a column": ("{type: completion, field: body}", {"text": "body"}),
    "questions": ("type: alpaca_chat.load_qa", {"instruction": "question", "response": "answer"}),
    "own columns": ("type: {field_instruction: q, field_output: a}", {"instruction": "q", "response": "a"}),
}


@pytest.mark.parametrize(("entry", "columns"), FORMS.values(), ids=FORMS.keys())
def test_the_form_of_rows_names_their_columns(tmp_path: Path, entry: str, columns: dict[str, str]) -> None:
    written = entry.strip("{}") if entry.startswith("{type: c") else entry
    lines = "\n    ".join(written.split(", ")) if written != entry else written
    made = imported(tmp_path, AXOLOTL.replace("type: chat_template", lines))
    assert dataset_of(made) == {"path": "corpora/tickets", "field_mapping": columns}


def test_several_data_sets_become_tasks(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text("{}", encoding="utf-8")
    rows = f"""
  - path: corpora/tickets
    type: chat_template
    split: train[:10%]
    name: en
  - path: json
    data_files: [{tmp_path.as_posix()}/rows.jsonl, gone.jsonl]
    type: chat_template
test_datasets:
  - path: corpora/tickets
    type: chat_template
    split: test
sequence"""
    head, _, tail = AXOLOTL.partition("\n  - path")
    made = imported(tmp_path, head + rows + tail.partition("sequence")[2])
    assert dataset_of(made) == {
        "type": "multi_task",
        "tasks": {
            "tickets": {"train": "corpora/tickets::train[:10%]::en", "valid": "corpora/tickets::test"},
            "rows": {"train": "../rows.jsonl"},
            "gone": {"train": "gone.jsonl"},
        },
        "field_mapping": {"messages": "messages"},
    }


def test_columns_that_differ_are_told_and_not_mixed(tmp_path: Path) -> None:
    rows = "type: chat_template\n  - path: corpora/essays\n    type: completion\n  - path: corpora/more\n    type: completion"
    made = imported(tmp_path, AXOLOTL.replace("type: chat_template", rows))
    assert "field_mapping" not in dataset_of(made)
    told = [reason for key, reason in reasons(made).items() if key.startswith("datasets[")]
    assert len(told) == 3
    assert all("field_mapping is one for all rows" in reason for reason in told)


NOT_CARRIED = {
    "no key here": ("deepspeed: zero3.json", "deepspeed", "not carried over"),
    "fsdp of another kind": ("fsdp: [full_shard, offload]", "fsdp", "true or full_shard"),
    "an optimizer": ("optimizer: muon", "optimizer", "adamw_torch_fused is used"),
    "a template": ("chat_template: gemma3n", "chat_template", "the tokenizer's own"),
    "a pattern": ("lora_target_modules: 'model.*q_proj'", "lora_target_modules", "a pattern is not read"),
    "rows as a number": ("val_set_size: 200", "val_set_size", "is a share of the rows"),
}


@pytest.mark.parametrize(("line", "key", "reason"), NOT_CARRIED.values(), ids=NOT_CARRIED.keys())
def test_what_is_not_carried_over_is_told(tmp_path: Path, line: str, key: str, reason: str) -> None:
    made = imported(tmp_path, f"{AXOLOTL}\n{line}")
    assert reason in reasons(made)[key]


@pytest.mark.parametrize(
    "line", ["deepspeed:", "trust_remote_code: false", "special_tokens:", "lora_mlp_kernel: false"]
)
def test_what_asks_for_nothing_is_not_told(tmp_path: Path, line: str) -> None:
    assert reasons(imported(tmp_path, f"{AXOLOTL}\n{line}")) == {}


ENTRIES = {
    "fields of messages": ("message_property_mappings: {mood: tone}", "role and content"),
    "roles": ("roles: {narrator: [voice]}", "no turns of narrator"),
    "no key here": ("train_on_eos: none", "not carried over"),
}


@pytest.mark.parametrize(("line", "reason"), ENTRIES.values(), ids=ENTRIES.keys())
def test_what_an_entry_says_of_messages_is_read_or_told(tmp_path: Path, line: str, reason: str) -> None:
    made = imported(tmp_path, AXOLOTL.replace("type: chat_template", f"type: chat_template\n    {line}"))
    assert reason in reasons(made)[f"datasets[0].{line.partition(':')[0]}"]
    good = "message_property_mappings: {role: from, content: value}\n    roles: {assistant: [gpt], user: [human]}"
    assert reasons(imported(tmp_path, AXOLOTL.replace("type: chat_template", f"type: chat_template\n    {good}"))) == {}


TURNS: dict[str, tuple[str, dict[str, Any]]] = {
    "fields": ("message_field_role: speaker\n    message_field_content: said", {"role": "speaker", "content": "said"}),
    "fields, mapped": ("message_property_mappings: {role: speaker, content: value}", {"role": "speaker"}),
    "columns": ("field_tools: functions\n    field_system: preamble", {"tools": "functions", "system": "preamble"}),
    "roles": ("roles: {assistant: [gpt, bot], user: [client]}", {"roles": {"assistant": ["bot"], "user": ["client"]}}),
}


@pytest.mark.parametrize(("lines", "mapping"), TURNS.values(), ids=TURNS)
def test_what_turns_are_called_becomes_their_mapping(tmp_path: Path, lines: str, mapping: dict[str, Any]) -> None:
    made = imported(tmp_path, AXOLOTL.replace("type: chat_template", f"type: chat_template\n    {lines}"))
    assert dataset_of(made)["field_mapping"] == {"messages": "messages", **mapping}
    assert reasons(made) == {}


@pytest.mark.parametrize(
    ("lines", "roles"),
    [
        ("roles_to_train: [gpt]", None),
        ("roles_to_train: [user, assistant]", ["assistant", "user"]),
        (
            "roles_to_train: [bot, observation]\n    roles: {tool: [observation], assistant: [bot]}",
            ["assistant", "tool"],
        ),
    ],
)
def test_whose_turns_are_trained_is_carried_over(tmp_path: Path, lines: str, roles: list[str] | None) -> None:
    made = imported(tmp_path, AXOLOTL.replace("type: chat_template", f"type: chat_template\n    {lines}"))
    assert config_of(made).get("roles_to_train") == roles
    assert reasons(made) == {}


def test_one_list_of_roles_is_for_all_rows(tmp_path: Path) -> None:
    rows = "type: chat_template\n    roles_to_train: [{}]\n  - path: corpora/more\n    {}"
    lines = rows.format("user", "type: chat_template\n    roles_to_train: [tool]")
    made = imported(tmp_path, AXOLOTL.replace("type: chat_template", lines))
    assert config_of(made)["roles_to_train"] == ["user"]
    assert "one list of roles is for all rows, here user" in reasons(made)["datasets[1].roles_to_train"]


JINJA = "{% for m in messages %}{{ m.content }}{% endfor %}"


@pytest.mark.parametrize("place", ["", "    "], ids=["of the file", "of its rows"])
def test_a_template_as_text_becomes_a_file_beside_the_manifest(tmp_path: Path, place: str) -> None:
    lines = f'{place}chat_template: jinja\n{place}chat_template_jinja: "{JINJA}"'
    text = AXOLOTL.replace("type: chat_template", f"type: chat_template\n{lines}") if place else f"{AXOLOTL}\n{lines}"
    made = imported(tmp_path, f"{text}\nchat_template_kwargs: {{enable_thinking: true}}")
    assert made.files == {"chat_template.jinja": JINJA}
    assert config_of(made)["chat_template_path"] == "chat_template.jinja"
    assert config_of(made)["chat_template_kwargs"] == {"enable_thinking": True}
    assert "prompt_template" not in made.manifest["base_models"][0]
    assert reasons(made) == {}


def test_a_template_in_a_file_is_named_from_the_manifest(tmp_path: Path) -> None:
    (tmp_path / "own.jinja").write_text(JINJA, encoding="utf-8")
    made = imported(tmp_path, f"{AXOLOTL}\nchat_template: chatml\nchat_template_jinja: own.jinja")
    assert (made.files, config_of(made)["chat_template_path"]) == ({}, "../own.jinja")
    assert "prompt_template" not in made.manifest["base_models"][0]  # one template alone


def test_segments_are_recognized_by_their_column(tmp_path: Path) -> None:
    made = imported(tmp_path, AXOLOTL.replace("type: chat_template", "type: input_output"))
    assert (dataset_of(made), reasons(made)) == ({"path": "corpora/tickets"}, {})
