"""A configuration of axolotl or TRL becomes a manifest, and no key of it drops out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from expert_cli.config.resolve import decide
from expert_cli.errors import InputError
from expert_cli.manifest.import_config import Imported, import_config
from expert_cli.manifest.reader import load_manifest
from tests.configs import AXOLOTL, TRL
from tests.machines import CPU

ROWS = "type: chat_template"


def imported(folder: Path, text: str) -> Imported:
    """Return what a configuration becomes that lies in `folder`, for the expert `folder`/boats."""
    (folder / "config.yml").write_text(text, encoding="utf-8")
    return import_config(folder / "config.yml", folder / "boats")


def with_lines(text: str, lines: str) -> str:
    return yaml.safe_dump({**yaml.safe_load(text), **yaml.safe_load(lines)})


def reasons(made: Imported) -> dict[str, str]:
    return {one.key: one.reason for one in made.not_carried}


@pytest.mark.parametrize(("program", "text"), [("axolotl", AXOLOTL), ("TRL", TRL)])
def test_the_manifest_is_read_and_decided(tmp_path: Path, program: str, text: str) -> None:
    made = imported(tmp_path, text)
    (tmp_path / "boats").mkdir()
    path = tmp_path / "boats" / "manifest.json"
    path.write_text(made.text, encoding="utf-8")
    loaded = load_manifest(path)
    run, _ = decide(loaded, CPU)
    assert (made.program, run.expert, run.model.name, loaded.warnings) == (program, "boats", "Qwen/Qwen3-0.6B", ())


def test_a_whole_configuration(tmp_path: Path) -> None:
    made = imported(tmp_path, AXOLOTL)
    assert made.manifest["base_models"] == [{"name": "Qwen/Qwen3-0.6B", "quantization": "int4"}]
    assert made.manifest["training"]["dataset"] == {"path": "corpora/tickets"}
    assert made.manifest["training"]["config"] == {
        "rank": 8,
        "alpha": 16,
        "target_modules": "all-linear",
        "num_epochs": 3,
        "learning_rate": 0.0002,  # YAML 1.1 reads 2e-4 as text
        "lr_scheduler": "cosine",
        "warmup_ratio": 0.1,
        "batch_size": 2,
        "gradient_accumulation_steps": 4,
        "optim": "adamw_bnb_8bit",
        "max_seq_length": 1024,
        "packing": True,
    }
    assert reasons(made) == {}
    assert made.carried["base_model"] == "name"
    assert made.carried["micro_batch_size"] == "batch_size"


@pytest.mark.parametrize(
    ("base", "line", "here"),
    [
        (AXOLOTL, "train_on_inputs: true", {"completion_only_loss": False}),
        (AXOLOTL, "peft_use_dora: true", {"adapter_type": "dora"}),
        (AXOLOTL, "default_system_message: Be brief.", {"system_prompt": "Be brief."}),
        (AXOLOTL, "deepspeed:\nspecial_tokens:\nlora_mlp_kernel: false", {}),
        (TRL, "assistant_only_loss: false", {"completion_only_loss": False}),
        (TRL, "max_length: 4096", {"max_seq_length": 4096}),
        (TRL, "report_to: [wandb, tensorboard]", {"report_to": ["wandb", "tensorboard"]}),
    ],
)
def test_a_key_says_the_same_here(tmp_path: Path, base: str, line: str, here: dict[str, Any]) -> None:
    before = imported(tmp_path, base).manifest["training"]["config"]
    made = imported(tmp_path, with_lines(base, line))
    assert (made.manifest["training"]["config"], reasons(made)) == ({**before, **here}, {})


@pytest.mark.parametrize(
    ("entry", "columns"),
    [
        ("type: chat_template\n    field_messages: turns", {"messages": "turns"}),
        ("type: {field_instruction: q, field_output: a}", {"instruction": "q", "response": "a"}),
        (
            f"{ROWS}\n    message_field_role: speaker\n    roles: {{assistant: [bot]}}\n    field_tools: functions",
            {"role": "speaker", "roles": {"assistant": ["bot"]}, "tools": "functions"},
        ),
    ],
)
def test_rows_name_their_columns(tmp_path: Path, entry: str, columns: dict[str, Any]) -> None:
    made = imported(tmp_path, AXOLOTL.replace(ROWS, entry))
    assert made.manifest["training"]["dataset"] == {"path": "corpora/tickets", "field_mapping": columns}
    assert reasons(made) == {}


def test_where_rows_come_from(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text("{}", encoding="utf-8")
    told = yaml.safe_load(AXOLOTL)
    told["datasets"] = [{"path": "c/t", "type": "alpaca", "split": "train[:10%]", "name": "en"}, {"path": "rows.jsonl"}]
    told["test_datasets"] = [{"path": "c/t", "split": "test"}]
    made = imported(tmp_path, yaml.safe_dump(told))
    paths = {"path": ["c/t::train[:10%]::en", "../rows.jsonl"], "validation_path": "c/t::test"}
    assert made.manifest["training"]["dataset"] == paths
    assert made.manifest["base_models"][0]["prompt_template"] == "alpaca"
    of_trl = imported(tmp_path, f"{TRL}dataset_config: en\ndataset_train_split: sft\ndataset_test_split: test")
    named = {"path": "corpora/tickets::sft::en", "validation_path": "corpora/tickets::test::en"}
    assert (of_trl.manifest["training"]["dataset"], reasons(of_trl)) == (named, {})


@pytest.mark.parametrize(
    ("line", "key", "reason"),
    [
        ("adapter:", "adapter", "a LoRA adapter is trained instead"),
        ("deepspeed: zero3.json", "deepspeed", "not carried over"),
        ("batch_size: 64", "batch_size", "not carried over"),
        ("val_set_size: 200", "val_set_size", "validation_split must be less than 1, is 200"),
        (
            "datasets: [{path: a, field_messages: turns}, {path: b, field_messages: said}]",
            "datasets[1].field_messages",
            "messages contradicts another key",
        ),
        ("datasets: [{path: c/t, train_on_eos: none}]", "datasets[0].train_on_eos", "not carried over"),
    ],
)
def test_what_is_not_carried_over_is_told(tmp_path: Path, line: str, key: str, reason: str) -> None:
    made = imported(tmp_path, with_lines(AXOLOTL, line))
    assert reasons(made).keys() == made.manifest["_not_carried"].keys() == {key}
    assert reason in reasons(made)[key]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("compute_environment: LOCAL_MACHINE", "no base model is named"),
        ("base_model: a/b", "names no rows"),
        ("a: [", r'config\.yml", line 1, column 5'),
        ("- a", "holds no keys"),
    ],
)
def test_a_file_that_is_no_configuration_is_told(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(InputError, match=told):
        imported(tmp_path, text)
    with pytest.raises(InputError, match=r"none\.yml: .*No such file"):
        import_config(tmp_path / "none.yml", tmp_path / "boats")
