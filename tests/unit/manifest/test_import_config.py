"""A configuration of axolotl or TRL becomes a manifest, and no key of it drops out."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from expert_cli.config.resolve import decide
from expert_cli.errors import InputError
from expert_cli.manifest.import_config import PREAMBLE, Imported, import_config, manifest_text
from expert_cli.manifest.reader import load_manifest
from tests.configs import AXOLOTL, TRL
from tests.machines import CPU

JINJA = "{% for m in messages %}{{ m.content }}{% endfor %}"
OWN = {"chat_template_path": "chat_template.jinja"}
ROWS = "type: chat_template"


def imported(folder: Path, text: str) -> Imported:
    """Return what a configuration becomes that lies in `folder`, for the expert `folder`/boats."""
    (folder / "config.yml").write_text(text, encoding="utf-8")
    return import_config(folder / "config.yml", folder / "boats")


def config_of(made: Imported) -> dict[str, Any]:
    return {key: value for key, value in made.manifest()["training"]["config"].items() if key[0] != "_"}


def dataset_of(made: Imported) -> dict[str, Any]:
    return dict(made.manifest()["training"]["dataset"])


def reasons(made: Imported) -> dict[str, str]:
    return {one.key: one.reason for one in made.not_carried}


@pytest.mark.parametrize(("program", "text"), [("axolotl", AXOLOTL), ("TRL", TRL)])
def test_the_manifest_is_read_and_decided(tmp_path: Path, program: str, text: str) -> None:
    made = imported(tmp_path, text)
    (tmp_path / "boats").mkdir()
    path = tmp_path / "boats" / "manifest.json"
    path.write_text(manifest_text(made), encoding="utf-8")
    loaded = load_manifest(path)
    run, _ = decide(loaded, CPU)
    assert (made.program, run.expert, run.model.name, loaded.warnings) == (program, "boats", "Qwen/Qwen3-0.6B", ())


def test_a_whole_configuration(tmp_path: Path) -> None:
    made = imported(tmp_path, AXOLOTL)
    assert made.manifest()["base_models"] == [{"name": "Qwen/Qwen3-0.6B", "quantization": "int4"}]
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


def test_what_the_program_does_where_its_file_does_not_say_is_told_apart(tmp_path: Path) -> None:
    made = imported(tmp_path, TRL)
    config = made.manifest()["training"]["config"]
    assert (config["max_seq_length"], config["learning_rate"], config["target_modules"]) == (
        1024,
        2e-5,
        ["q_proj", "v_proj"],
    )
    assert "max_seq_length" in config["_defaults"]
    told = made.as_json()
    assert {"key": "max_length", "names": ["max_seq_length"]} in told["defaults"]
    assert {"key": "model_name_or_path", "names": ["name"]} in told["carried"]
    assert imported(tmp_path, AXOLOTL.replace("warmup_ratio: 0.1", "")).defaults["warmup_ratio"] == ["warmup_ratio"]


@pytest.mark.parametrize(
    ("base", "line", "here"),
    [
        (AXOLOTL, "warmup_steps: 10", {"warmup_steps": 10}),
        (AXOLOTL, "warmup_steps: 0.05", {"warmup_ratio": 0.05}),
        (AXOLOTL, "train_on_inputs: true", {"completion_only_loss": False}),
        (AXOLOTL, "flash_attention: true", {"flash_attention_2": True}),
        (AXOLOTL, "attn_implementation: sdpa", {"use_sdpa": True}),
        (AXOLOTL, "bf16: auto", {}),
        (AXOLOTL, "bf16: full", {"bf16": True}),
        (AXOLOTL, "peft_use_dora: true", {"adapter_type": "dora"}),
        (
            AXOLOTL,
            "cosine_min_lr_ratio: 0.1",
            {"lr_scheduler": "cosine_with_min_lr", "lr_scheduler_kwargs": {"min_lr_rate": 0.1}},
        ),
        (AXOLOTL, "fsdp: [full_shard, auto_wrap]", {"fsdp": "full_shard auto_wrap"}),
        (AXOLOTL, "wandb_project: boats", {"report_to": ["wandb"]}),
        (AXOLOTL, "saves_per_epoch: 1", {"save_strategy": "epoch"}),
        (AXOLOTL, "excess_length_strategy: raise", {"overflow": "error"}),
        (AXOLOTL, "default_system_message: Be brief.", {"system_prompt": "Be brief."}),
        (AXOLOTL, f'chat_template: jinja\nchat_template_jinja: "{JINJA}"', OWN),
        (AXOLOTL, "gradient_accumulation_steps:\nbatch_size: 16", {"gradient_accumulation_steps": 8}),
        (TRL, "max_length: 4096", {"max_seq_length": 4096}),
        (TRL, "max_steps: -1", {}),
        (TRL, "max_steps: 40", {"max_steps": 40}),
        (TRL, "use_rslora: true", {"adapter_type": "rslora"}),
        (TRL, "lora_target_modules: all", {"target_modules": "all-linear"}),
        (TRL, "lora_target_modules: q_proj, o_proj", {"target_modules": ["q_proj", "o_proj"]}),
        (TRL, "optim: adamw_hf", {"optim": "adamw_torch"}),
        (TRL, "completion_only_loss: false\nassistant_only_loss: false", {"completion_only_loss": False}),
        (TRL, "report_to: [wandb, tensorboard]", {"report_to": ["wandb", "tensorboard"]}),
        (TRL, "chat_template_path: own.jinja", {"chat_template_path": "own.jinja"}),
        (TRL, f'chat_template: "{JINJA}"', OWN),
        (TRL, "fp16: true\nbf16: false", {"fp16": True, "bf16": False}),
        (AXOLOTL, "deepspeed:\nspecial_tokens:\nlora_mlp_kernel: false", {}),
    ],
    ids=lambda value: "" if value in (AXOLOTL, TRL) or isinstance(value, dict) else value,
)
def test_a_key_says_the_same_here(tmp_path: Path, base: str, line: str, here: dict[str, Any]) -> None:
    without = re.sub("warmup_ratio: 0.1\n", "warmup_steps: 3\n", base) if "warmup" in line else base
    before = config_of(imported(tmp_path, without))
    before.pop("warmup_steps", None)
    made = imported(tmp_path, yaml.safe_dump({**yaml.safe_load(without), **yaml.safe_load(line)}))
    assert (config_of(made), reasons(made)) == ({**before, **here}, {})
    assert made.files == ({"chat_template.jinja": JINJA} if here is OWN else {})


@pytest.mark.parametrize(
    ("text", "bits"),
    [
        (AXOLOTL, "int4"),
        (AXOLOTL.replace("qlora", "lora").replace("load_in_4bit", "load_in_8bit"), "int8"),
        (AXOLOTL.replace("qlora", "lora").replace("load_in_4bit: true", ""), "none"),
        (f"{TRL}load_in_4bit: true", "int4"),
        (TRL, "none"),
    ],
)
def test_how_weights_are_held(tmp_path: Path, text: str, bits: str) -> None:
    assert imported(tmp_path, text).manifest()["base_models"][0]["quantization"] == bits


@pytest.mark.parametrize(
    ("entry", "columns"),
    [
        ("type: sharegpt", {"messages": "conversations"}),
        ("type: chat_template\n    field_messages: turns", {"messages": "turns"}),
        ("type: completion", {"text": "text"}),
        ("type: completion\n    field: body", {"text": "body"}),
        ("type: {field_instruction: q, field_output: a}", {"instruction": "q", "response": "a"}),
        (
            f"{ROWS}\n    message_field_role: speaker\n    roles: {{assistant: [bot]}}\n    field_tools: functions",
            {"messages": "messages", "role": "speaker", "roles": {"assistant": ["bot"]}, "tools": "functions"},
        ),
        (f"{ROWS}\n    message_property_mappings: {{content: said}}", {"messages": "messages", "content": "said"}),
    ],
)
def test_the_form_of_rows_names_their_columns(tmp_path: Path, entry: str, columns: dict[str, Any]) -> None:
    made = imported(tmp_path, AXOLOTL.replace(ROWS, entry))
    assert dataset_of(made) == {"path": "corpora/tickets", "field_mapping": columns}
    assert reasons(made) == {}


def test_alpaca_is_asked_in_its_own_words(tmp_path: Path) -> None:
    made = imported(tmp_path, AXOLOTL.replace(ROWS, "type: alpaca"))
    assert made.manifest()["base_models"][0]["prompt_template"] == "alpaca"
    assert (config_of(made)["system_prompt"], dataset_of(made)) == (PREAMBLE, {"path": "corpora/tickets"})


def test_several_data_sets_become_tasks(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text("{}", encoding="utf-8")
    told = yaml.safe_load(AXOLOTL)
    first = {"path": "corpora/tickets", "type": "chat_template", "split": "train[:10%]", "name": "en"}
    files = {"path": "json", "data_files": [f"{tmp_path.as_posix()}/rows.jsonl", "gone.jsonl"], "type": "chat_template"}
    told["datasets"] = [first, files]
    told["test_datasets"] = [{"path": "corpora/tickets", "type": "chat_template", "split": "test"}]
    assert dataset_of(imported(tmp_path, yaml.safe_dump(told))) == {
        "type": "multi_task",
        "tasks": {
            "tickets": {"train": "corpora/tickets::train[:10%]::en", "valid": "corpora/tickets::test"},
            "rows": {"train": "../rows.jsonl"},
            "gone": {"train": "gone.jsonl"},
        },
        "field_mapping": {"messages": "messages"},
    }
    told["datasets"][1]["type"] = "completion"
    made = imported(tmp_path, yaml.safe_dump(told))
    assert "field_mapping" not in dataset_of(made)
    assert sum("field_mapping is one for all rows" in reason for reason in reasons(made).values()) == 4


@pytest.mark.parametrize(
    ("lines", "here"),
    [
        (
            "dataset_name: c/t\ndataset_config: en\ndataset_train_split: train_sft",
            {"path": "c/t::train_sft::en"},
        ),
        ("dataset_name: c/t\neval_strategy: epoch", {"path": "c/t", "validation_path": "c/t::test"}),
        ("dataset_name: c/t\ndataset_text_field: body", {"path": "c/t", "text_field": "body"}),
        (
            "dataset_mixture:\n  datasets:\n  - {id: c/t, config: en, split: a, columns: [messages], weight: 0.3}\n"
            "  - {id: c/t, split: b, columns: [messages]}\n  test_split_size: 0.1\neval_strategy: epoch",
            {
                "type": "multi_task",
                "tasks": {"t": {"train": "c/t::a::en", "weight": 0.3}, "t-2": {"train": "c/t::b"}},
                "field_mapping": {"messages": "messages"},
                "validation_split": 0.1,
            },
        ),
        ("datasets:\n- {path: csv, data_files: {train: [a.csv], test: [b.csv]}}", {"path": "a.csv"}),
    ],
)
def test_where_rows_of_trl_come_from(tmp_path: Path, lines: str, here: dict[str, Any]) -> None:
    made = imported(tmp_path, TRL.replace("dataset_name: corpora/tickets", lines))
    assert (dataset_of(made), reasons(made)) == (here, {})
    assert ("eval_strategy" in config_of(made)) == ("eval_strategy" in lines)


def test_evaluations_need_rows(tmp_path: Path) -> None:
    asked = f"{AXOLOTL}\nevals_per_epoch: 4\nearly_stopping_patience: 3"
    without = imported(tmp_path, asked)
    assert set(reasons(without)) == {"evals_per_epoch", "early_stopping_patience"}
    made = imported(tmp_path, f"{asked}\nval_set_size: 0.05")
    assert dataset_of(made)["validation_split"] == 0.05
    assert (config_of(made)["eval_strategy"], config_of(made)["early_stopping_patience"]) == ("epoch", 3)
    assert set(reasons(made)) == {"evals_per_epoch"}  # four an epoch become one


@pytest.mark.parametrize(
    ("line", "key", "reason"),
    [
        ("deepspeed: zero3.json", "deepspeed", "not carried over"),
        ("fsdp: [full_shard, offload]", "fsdp", "must be"),
        ("optimizer: muon", "optimizer", "must be"),
        ("chat_template: gemma3n", "chat_template", "the tokenizer's own"),
        ("lora_target_modules: 'model.*q_proj'", "lora_target_modules", "a pattern is not read"),
        ("val_set_size: 200", "val_set_size", "is a share of the rows"),
        ("lora_r: 0", "lora_r", "rank must be greater than 0, is 0"),
        ("num_epochs: many", "num_epochs", "epochs must be"),
        ("attn_implementation: xformers", "attn_implementation", "not carried over"),
        ("datasets: [{path: c/t, train_on_eos: none}]", "datasets[0].train_on_eos", "not carried over"),
    ],
)
def test_what_is_not_carried_over_is_told(tmp_path: Path, line: str, key: str, reason: str) -> None:
    made = imported(tmp_path, f"{AXOLOTL}\n{line}")
    assert reason in reasons(made)[key]
    assert reason in made.manifest()["_not_carried"][key]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (AXOLOTL.replace("adapter: qlora", ""), "adapter (not written): all weights"),
        (TRL.replace("use_peft: true", ""), "use_peft (not written): all weights"),
        (AXOLOTL.replace("qlora", "oft"), "adapter oft: "),
        (f"{AXOLOTL}\nrl: dpo", "rl dpo: preferences and rewards"),
        (f"{TRL}\nnum_generations: 8", "num_generations 8: preferences and rewards"),
        (f"{AXOLOTL}\nprocessor_type: AutoProcessor", "processor_type AutoProcessor: text alone"),
        (f"{TRL}\nloss_type: dft", "loss_type dft: the loss here"),
        (
            TRL.replace("dataset_name: corpora/tickets", "datasets: [{path: json}]"),
            "dataset_name (not written): no data set",
        ),
    ],
)
def test_what_trains_something_else_is_refused(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(InputError) as caught:
        imported(tmp_path, text)
    assert f"trains what is not trained here: {told}" in caught.value.message


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            "compute_environment: LOCAL_MACHINE",
            r"no base model is named.*axolotl \(base_model\).*TRL \(model_name_or_path\)",
        ),
        ("a: [", r"config\.yml:1:5: "),
        ("- a", "holds no keys"),
    ],
)
def test_a_file_that_is_no_configuration_is_told(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(InputError, match=told):
        imported(tmp_path, text)
    with pytest.raises(InputError, match=r"none\.yml: No such file"):
        import_config(tmp_path / "none.yml", tmp_path / "boats")
