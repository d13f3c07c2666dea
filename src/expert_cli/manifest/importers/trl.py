"""Configurations of TRL's SFTTrainer, and of the alignment handbook, which is written for it."""

from __future__ import annotations

from typing import Any

from expert_cli.manifest.importers.draft import Draft
from expert_cli.manifest.importers.rules import (
    Program,
    Rule,
    flag,
    listed,
    number,
    only,
    own_template,
    refused,
    text,
    to,
    together,
    values,
    whole,
)
from expert_cli.manifest.importers.sources import NO_ROWS, Source, places, write_sources
from expert_cli.manifest.importers.transformers_keys import (
    FULL,
    KEYS,
    OTHER_LOSS,
    PREFERENCES,
    adapter_type,
    base_model,
    targets,
)
from expert_cli.manifest.importers.validation import evaluation, has_validation, validation_share

_PREFERENCES = (
    *("beta", "max_prompt_length", "max_completion_length", "num_generations", "reward_funcs", "reward_model_path"),
    *("ref_model", "rpo_alpha", "desirable_weight", "undesirable_weight", "teacher_model_name_or_path", "use_vllm"),
)
_TRAINED = "TRL trains whole conversations and texts where neither key is written; here the answers alone are trained"


def _answers(draft: Draft, key: str, value: Any) -> None:
    """assistant_only_loss true: the answers of a conversation alone."""
    if value is True:
        draft.put(key, "config", "completion_only_loss", True)
    else:
        draft.agree(key)


def _flash(draft: Draft, key: str, value: Any) -> None:
    draft.put(key, "config", "flash_attention_2", value is True)


_USUAL_TEXT = ("text",)
"""What TRL calls the column where nothing else is said."""


def _text_field(draft: Draft, key: str, value: Any) -> None:
    """Say which column holds whole texts; "text" is its usual name, and TRL leaves it unread beside conversations."""
    if value in _USUAL_TEXT:
        draft.agree(key)
    else:
        to("text_field", text, "dataset")(draft, key, value)


def _finish(draft: Draft) -> None:
    """Decide what several keys say together."""
    values = draft.values
    if values.get("use_peft") is not True:
        draft.refuse("use_peft", FULL)
    bits = next(
        (name for key, name in (("load_in_4bit", "int4"), ("load_in_8bit", "int8")) if values.get(key) is True), "none"
    )
    draft.put("load_in_8bit" if bits == "int8" else "load_in_4bit", "base", "quantization", bits)
    if draft.written.get("completion_only_loss") is None and not draft.written.get("assistant_only_loss"):
        draft.lose("assistant_only_loss", f"{_TRAINED}; completion_only_loss false trains all")
    _read_data(draft)


def _read_data(draft: Draft) -> None:
    """Write the rows that train and, where an evaluation is asked for, those that evaluate."""
    values = draft.values
    train, valid = _named(draft)
    if not train:
        draft.refuse("dataset_name", NO_ROWS)
    evaluates = str(values.get("eval_strategy") or values.get("evaluation_strategy") or "no") != "no"
    write_sources(draft, train, valid if evaluates else ())
    mixture = values.get("dataset_mixture")
    key, size = "test_split_size", values.get("test_split_size")
    if isinstance(mixture, dict) and mixture.get(key):
        key, size = f"dataset_mixture.{key}", mixture[key]
    splits = evaluates and validation_share(draft, key, size)
    evaluation(draft, has_rows=splits or has_validation(draft))


def _named(draft: Draft) -> tuple[list[Source], list[Source]]:
    """Return the sources that train and that evaluate, of whichever key names them."""
    values = draft.values
    mixture = values.get("dataset_mixture")
    for key, several in (
        ("datasets", values.get("datasets")),
        ("dataset_mixture.datasets", mixture.get("datasets") if isinstance(mixture, dict) else None),
    ):
        if isinstance(several, list):
            return [
                source for number, one in enumerate(several) for source in _of_mixture(draft, f"{key}[{number}]", one)
            ], []
    if isinstance(values.get("dataset_mixer"), dict):
        return _of_mixer(draft, values["dataset_mixer"])
    if not values.get("dataset_name"):
        return [], []
    name, config = draft.path(str(values["dataset_name"])), str(values.get("dataset_config") or "")
    train, test = (str(values.get(f"dataset_{kind}_split") or kind) for kind in ("train", "test"))
    return [Source("dataset_name", name, train, config)], [Source("dataset_test_split", name, test, config)]


def _of_mixture(draft: Draft, key: str, one: Any) -> list[Source]:
    told = one if isinstance(one, dict) else {"path": one}
    if told.get("data_dir"):
        draft.lose(f"{key}.data_dir", "a data set of the hub is read by its splits; name the folder", told["data_dir"])
    found = places(draft, key, told)
    if not found:
        draft.refuse(key, NO_ROWS, one)
    weight = _weight(draft, key, told.get("weight", told.get("fraction")))
    config = str(told.get("config") or told.get("name") or "")
    columns = {"messages": "messages"} if "messages" in (told.get("columns") or ()) else {}
    return [Source(key, place, str(told.get("split") or ""), config, weight, columns) for place in found]


def _weight(draft: Draft, key: str, value: Any) -> float:
    try:
        return number(1 if value is None else value)
    except ValueError as error:
        draft.lose(key, str(error), value)
        return 1.0


def _of_mixer(draft: Draft, mixer: dict[str, Any]) -> tuple[list[Source], list[Source]]:
    """Return the alignment handbook's mix: a share of each data set, and splits of which those with "test" evaluate."""
    splits = [str(split) for split in draft.values.get("dataset_splits") or ["train", "test"]]
    config = str((draft.values.get("dataset_configs") or [""])[0])
    names = [draft.path(str(name)) for name in mixer]
    weights = [_weight(draft, "dataset_mixer", weight) for weight in mixer.values()]
    train, valid = (
        [
            Source("dataset_mixer", name, split, config, weight if kind == "train" else 1.0)
            for name, weight in zip(names, weights, strict=True)
            for split in splits
            if ("test" in split) == (kind == "test")
        ]
        for kind in ("train", "test")
    )
    return train, valid


_KEYS: dict[str, Rule] = {
    **KEYS,
    "model_name_or_path": base_model,
    "use_flash_attention_2": _flash,
    "use_peft": together,
    "load_in_4bit": together,
    "load_in_8bit": together,
    "lora_r": to("rank", whole),
    "lora_alpha": to("alpha", number),
    "lora_dropout": to("dropout", number),
    "lora_target_modules": targets,
    "use_dora": adapter_type("dora"),
    "use_rslora": adapter_type("rslora"),
    **dict.fromkeys(("dataset_name", "dataset_config", "dataset_train_split", "dataset_test_split"), together),
    **dict.fromkeys(
        ("dataset_mixer", "dataset_splits", "dataset_configs", "dataset_mixture", "datasets", "test_split_size"),
        together,
    ),
    "dataset_text_field": _text_field,
    "text_column": _text_field,
    "chat_template": own_template,
    "chat_template_path": own_template,
    "chat_template_kwargs": to("chat_template_kwargs", values),
    "max_length": to("max_seq_length", whole),
    "max_seq_length": to("max_seq_length", whole),
    "packing": to("packing", flag),
    "completion_only_loss": to("completion_only_loss", flag),
    "assistant_only_loss": _answers,
    "loss_type": only("nll", "chunked_nll", otherwise=f"{OTHER_LOSS}; preferences and rewards are TRL's"),
    "report_to": lambda draft, key, value: KEYS[key](draft, key, listed(value) if isinstance(value, str) else value),
    "early_stopping_patience": together,
    **dict.fromkeys(_PREFERENCES, refused(PREFERENCES)),
    "reward_weights": refused(PREFERENCES),
}
TRL = Program(
    "TRL",
    "model_name_or_path",
    _KEYS,
    _finish,
    defaults={
        "lora_r": 16,
        "lora_alpha": 32,
        "lora_dropout": 0.05,
        "lora_target_modules": ["q_proj", "v_proj"],
        "learning_rate": 2e-5,
        "num_train_epochs": 3,
        "per_device_train_batch_size": 8,
        "lr_scheduler_type": "linear",
        "max_length": 1024,
        "packing": False,
        "gradient_checkpointing": True,
    },
)
