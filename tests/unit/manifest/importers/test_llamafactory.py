"""LLaMA-Factory's keys mean here what they mean there, and its names of data sets are looked up."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from expert_cli.errors import InputError
from tests.unit.manifest.importers.configs import LLAMAFACTORY, config_of, dataset_of, imported, reasons


def known(folder: Path, **told: Any) -> None:
    """Write a dataset_info.json below `folder`."""
    (folder / "data").mkdir(exist_ok=True)
    (folder / "data" / "dataset_info.json").write_text(json.dumps(told), encoding="utf-8")


def test_a_whole_configuration(tmp_path: Path) -> None:
    known(tmp_path, tickets={"file_name": "tickets.json"})
    (tmp_path / "data" / "tickets.json").write_text("[]", encoding="utf-8")
    made = imported(tmp_path, LLAMAFACTORY)
    assert made.manifest["base_models"] == [
        {"name": "Qwen/Qwen3-0.6B", "prompt_template": "qwen3", "quantization": "none"}
    ]
    assert dataset_of(made) == {"path": "../data/tickets.json"}
    assert config_of(made) == {
        "rank": 8,
        "alpha": 16,
        "epochs": 3,
        "learning_rate": 0.0001,
        "lr_scheduler": "linear",
        "batch_size": 8,
        "max_seq_length": 1024,
        "packing": False,
        "gradient_checkpointing": True,
    }
    assert reasons(made) == {}


DATA: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "of the hub": ({"hf_hub_url": "corpora/tickets"}, {"path": "corpora/tickets"}),
    "a split and a subset": (
        {"hf_hub_url": "corpora/tickets", "split": "train_sft", "subset": "en"},
        {"path": "corpora/tickets::train_sft::en"},
    ),
    "conversations": (
        {"hf_hub_url": "c/t", "formatting": "sharegpt", "columns": {"messages": "turns"}},
        {"path": "c/t", "field_mapping": {"messages": "turns"}},
    ),
    "conversations of the usual column": (
        {"hf_hub_url": "c/t", "formatting": "sharegpt"},
        {"path": "c/t", "field_mapping": {"messages": "conversations"}},
    ),
    "pairs": (
        {"hf_hub_url": "c/t", "columns": {"prompt": "q", "response": "a"}},
        {"path": "c/t", "field_mapping": {"instruction": "q", "response": "a"}},
    ),
    "what stands before pairs": (
        {"hf_hub_url": "c/t", "columns": {"prompt": "q", "response": "a", "history": "h", "system": "system"}},
        {"path": "c/t", "field_mapping": {"instruction": "q", "response": "a", "history": "h", "system": "system"}},
    ),
    "columns beside conversations": (
        {"hf_hub_url": "c/t", "formatting": "sharegpt", "columns": {"system": "preamble", "tools": "tools"}},
        {"path": "c/t", "field_mapping": {"messages": "conversations", "system": "preamble"}},
    ),
    "what turns are called": (
        {
            "hf_hub_url": "c/t",
            "formatting": "openai",
            "columns": {"messages": "messages"},
            "tags": {"role_tag": "speaker", "content_tag": "content", "user_tag": "client", "function_tag": "call"},
        },
        {
            "path": "c/t",
            "field_mapping": {
                "messages": "messages",
                "role": "speaker",
                "roles": {"user": ["client"], "function_call": ["call"]},
            },
        },
    ),
}


@pytest.mark.parametrize(("told", "here"), DATA.values(), ids=DATA.keys())
def test_a_name_is_looked_up(tmp_path: Path, told: dict[str, Any], here: dict[str, Any]) -> None:
    known(tmp_path, tickets=told)
    made = imported(tmp_path, LLAMAFACTORY)
    assert (dataset_of(made), reasons(made)) == (here, {})


def test_dataset_info_is_found_above_the_file(tmp_path: Path) -> None:
    known(tmp_path, tickets={"hf_hub_url": "corpora/tickets"})
    (tmp_path / "examples" / "lora").mkdir(parents=True)
    assert dataset_of(imported(tmp_path / "examples" / "lora", LLAMAFACTORY)) == {"path": "corpora/tickets"}


def test_a_name_that_nothing_explains_is_told(tmp_path: Path) -> None:
    made = imported(tmp_path, LLAMAFACTORY)
    assert dataset_of(made) == {"path": "datasets/tickets.jsonl"}
    assert "no dataset_info.json was found" in reasons(made)["dataset"]
    known(tmp_path, others={})
    assert "names no such data set" in reasons(imported(tmp_path, LLAMAFACTORY))["dataset"]


def test_several_names_a_number_of_rows_and_rows_that_evaluate(tmp_path: Path) -> None:
    known(tmp_path, tickets={"hf_hub_url": "c/t"}, mails={"hf_hub_url": "c/m"}, held={"hf_hub_url": "c/h"})
    text = LLAMAFACTORY.replace("dataset: tickets", "dataset: tickets, mails\nmax_samples: 50\neval_dataset: held")
    made = imported(tmp_path, f"{text}\neval_strategy: steps\neval_steps: 20")
    assert dataset_of(made)["tasks"] == {
        "t": {"train": "c/t::train[:50]", "valid": "c/h"},
        "m": {"train": "c/m::train[:50]"},
    }
    assert (config_of(made)["eval_strategy"], config_of(made)["eval_steps"]) == ("steps", 20)


def test_the_stage_pt_trains_whole_texts(tmp_path: Path) -> None:
    known(tmp_path, tickets={"hf_hub_url": "c/t", "columns": {"prompt": "body"}})
    made = imported(tmp_path, LLAMAFACTORY.replace("stage: sft", "stage: pt"))
    assert dataset_of(made) == {"path": "c/t", "field_mapping": {"text": "body"}}


@pytest.mark.parametrize(
    ("told", "why"),
    [
        ({"hf_hub_url": "c/t", "ranking": True}, "preferences"),
        ({"file_name": "t", "columns": {"images": "i"}}, "images"),
    ],
)
def test_rows_of_another_training_are_refused(tmp_path: Path, told: dict[str, Any], why: str) -> None:
    known(tmp_path, tickets=told)
    with pytest.raises(InputError, match=why):
        imported(tmp_path, LLAMAFACTORY)


CONFIG: dict[str, tuple[str, dict[str, Any]]] = {
    "modules": ("lora_target: q_proj,v_proj", {"target_modules": ["q_proj", "v_proj"]}),
    "alpha": ("lora_alpha: 64", {"alpha": 64}),
    "rank, and alpha by it": ("lora_rank: 32", {"rank": 32, "alpha": 64}),
    "the last answer alone": ("mask_history: true", {"mask_history": True}),
    "every answer": ("mask_history: false", {"mask_history": False}),
    "thinking": ("enable_thinking: true", {"chat_template_kwargs": {"enable_thinking": True}}),
    "prompts too": ("train_on_prompt: true", {"completion_only_loss": False}),
    "no checkpointing": ("disable_gradient_checkpointing: true", {"gradient_checkpointing": False}),
    "attention": ("flash_attn: fa2", {"flash_attention_2": True}),
    "precision": ("pure_bf16: true", {"bf16": True}),
    "packing": ("neat_packing: true", {"packing": True}),
    "reports": ("report_to: none", {}),
    "workers": ("dataloader_num_workers: 4", {"dataloader_num_workers": 4}),
}


@pytest.mark.parametrize(("line", "here"), CONFIG.values(), ids=CONFIG.keys())
def test_a_key_says_the_same_here(tmp_path: Path, line: str, here: dict[str, Any]) -> None:
    known(tmp_path, tickets={"hf_hub_url": "c/t"})
    before = config_of(imported(tmp_path, LLAMAFACTORY))
    made = imported(tmp_path, f"{LLAMAFACTORY}\n{line}")
    assert (config_of(made), reasons(made)) == ({**before, **here}, {})


@pytest.mark.parametrize(("bits", "here"), [(4, "int4"), (8, "int8"), (3, "none")])
def test_how_weights_are_held(tmp_path: Path, bits: int, here: str) -> None:
    made = imported(tmp_path, f"{LLAMAFACTORY}\nquantization_bit: {bits}")
    assert made.manifest["base_models"][0]["quantization"] == here
    assert ("quantization_bit" in reasons(made)) == (here == "none")


def test_a_template_that_is_not_here_is_the_models_own(tmp_path: Path) -> None:
    made = imported(tmp_path, LLAMAFACTORY.replace("template: qwen3_nothink", "template: qwen3"))
    assert "prompt_template" not in made.manifest["base_models"][0]
    assert "the tokenizer's own chat template" in reasons(made)["template"]
