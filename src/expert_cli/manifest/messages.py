"""Explains why a value does not fit a key, in the words of JSON."""

from __future__ import annotations

import json
import types
from collections.abc import Iterable, Sequence
from functools import reduce
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails
from rapidfuzz.distance import DamerauLevenshtein

from expert_cli.manifest.json_text import Path_
from expert_cli.manifest.key import NO_CONTROL, TIME, Loose, Strict
from expert_cli.manifest.keys.peft import REWARDS
from expert_cli.manifest.keys.schema_prompt import WITH_COLUMN
from expert_cli.manifest.schema import Manifest
from expert_cli.utils.text import shortened

_RULES = {
    "too_short": "a list of at least {min_length} entry",
    "string_too_short": "text that is not empty",
    "too_long": "at most {max_length} entries long",
    "string_too_long": "at most {max_length} letters long",
}
"""Texts for some of pydantic's errors."""
_PATTERNS = {
    TIME: 'a number and s, m or h, such as "5m"',
    NO_CONTROL: "text without control characters (write a backslash as \\\\, or /)",
    WITH_COLUMN: "a path with a column in braces",
}


def unfit(block: type[BaseModel], path: Path_, value: Any) -> str:
    """Return why the key of a block at `path` cannot take a value; "" if it can."""
    try:
        block.model_validate({str(path[-1]): value})
    except ValidationError as error:
        faults = [one for one in error.errors() if one["loc"][0] == path[-1]]  # the others are about missing keys
        return message_of(path, value, faults[0]) if faults else ""
    return ""


def message_of(path: Path_, value: Any, error: ErrorDetails) -> str:
    """Return one of pydantic's errors in words. value: what is written at `path`."""
    shown = shortened(json.dumps(value, ensure_ascii=True, default=str))
    if error["type"] == "string_pattern_mismatch":
        return f"must be {_PATTERNS[error['ctx']['pattern']]}, is {shown}"
    if error["type"] in _RULES:
        return f"must be {_RULES[error['type']].format(**error['ctx'])}, is {shown}"
    if error["type"] in ("greater_than", "greater_than_equal", "less_than", "less_than_equal"):
        rule = error["msg"].removeprefix("Input should ").removeprefix("be ")
        return f"must be {rule}, is {shown}"
    types_: list[Any] = reduce(member_types, path, [Manifest])
    wanted = " or ".join(dict.fromkeys(map(_describe, types_))) or "another type"
    hint = ""
    if isinstance(value, str) and value.replace(".", "", 1).lstrip("-").isdigit() and "number" in wanted:
        hint = f": write {value} without quotes"
    if (path[-1], value) == ("method", "grpo"):
        hint = f"; {REWARDS}"
    return f"must be {wanted}, is {shown}{hint}"


def parts_of(annotation: Any) -> list[Any]:
    """Return the alternatives of a type, without Annotated and None."""
    origin = get_origin(annotation)
    if origin is Annotated:
        return parts_of(get_args(annotation)[0])
    if origin in (Union, types.UnionType):
        return [part for arg in get_args(annotation) for part in parts_of(arg)]
    return [] if annotation is type(None) else [annotation]


def member_types(types_: Sequence[Any], part: str | int) -> list[Any]:
    """Return the types that the schema allows for the key or list element `part` of a value with one of `types_`."""
    found: list[Any] = []
    for candidate in types_:
        if isinstance(candidate, type) and issubclass(candidate, BaseModel) and part in candidate.model_fields:
            found += parts_of(candidate.model_fields[str(part)].annotation)
        elif get_origin(candidate) is (list if isinstance(part, int) else dict):
            found += parts_of(get_args(candidate)[-1])
    return found


def _describe(part: Any) -> str:
    """Return a type in the words of JSON."""
    if get_origin(part) is Literal:
        options = ", ".join(json.dumps(option) for option in get_args(part))
        return options if len(get_args(part)) == 1 else f"one of {options}"
    if get_origin(part) is list:
        items = " or ".join(_describe(item) for item in parts_of(get_args(part)[0]))
        plain = {"text": "a list of texts", "an object": "a list of objects", "a value": "a list"}
        return plain.get(items, f"a list ({items})")
    if get_origin(part) is dict or (isinstance(part, type) and issubclass(part, (Loose, Strict))):
        return "an object"
    words = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}
    return words.get(part, "a value")


_ELSEWHERE = {
    "batch_size": "per_device_train_batch_size train_batch_size micro_batch_size",
    "epochs": "num_train_epochs",
    "rank": "lora_r r lora_rank",
    "alpha": "lora_alpha",
    "dropout": "lora_dropout",
    "target_modules": "lora_target_modules lora_target",
    "max_seq_length": "sequence_len cutoff_len max_length model_max_length",
    "packing": "sample_packing",
    "learning_rate": "lr",
    "lr_scheduler": "lr_scheduler_type scheduler",
    "gradient_accumulation_steps": "grad_accum grad_accumulation_steps",
    "max_grad_norm": "gradient_clipping max_gradient_norm",
    "use_tf32": "tf32",
    "use_sdpa": "sdp_attention",
    "flash_attention_2": "flash_attention flash_attn use_flash_attention_2",
    "optim": "optimizer",
    "neftune_noise_alpha": "noisy_embedding_alpha",
    "dataloader_num_workers": "num_workers",
    "completion_only_loss": "train_on_inputs train_on_prompt assistant_only_loss",
    "chat_template_path": "chat_template_jinja",
    "adapter_type": "peft_type use_dora use_rslora",
    "quantization": "load_in_4bit load_in_8bit",
    "text_field": "dataset_text_field",
    "name": "model_name",
    "base_models": "model",
    "prompt_template": "chat_template",
    "system_prompt": "default_system_message default_system new_system_prompt system_message system",
    "validation_split": "val_set_size",
    "instruction": "prompt question field_instruction",
    "input": "context field_input",
    "response": "output answer completion field_output",
    "messages": "conversations field_messages",
    "system": "field_system",
    "tools": "field_tools",
    "text": "field",
    "role": "role_tag message_field_role",
    "content": "content_tag message_field_content",
}
OTHER_TOOLS = {name: ours for ours, names in _ELSEWHERE.items() for name in names.split()}
"""Names of other trainers, and the names used here."""
BY_HAND = {
    "train_on_inputs": "it means the opposite",
    "train_on_prompt": "it means the opposite",
    "load_in_4bit": 'true is written "int4" there',
    "load_in_8bit": 'true is written "int8" there',
    "use_dora": 'true is written "dora" there',
    "use_rslora": 'true is written "rslora" there',
}
"""Keys of other tools whose values must be rewritten here, and how."""


def nearest(key: str, known: Iterable[str]) -> str:
    """Return the known name that `key` means: another tool's name for it, or a misspelling; "" for none."""
    names = list(known)
    translated = OTHER_TOOLS.get(key.lower(), "")
    if translated in names:
        return translated
    return typo_of(key, names)


def typo_of(key: str, known: Iterable[str]) -> str:
    """Return the known name that `key` misspells (in at most a quarter of its letters; a swap counts once), or ""."""
    plain = key.lower().replace("-", "_")
    distance, name = min(((DamerauLevenshtein.distance(plain, name), name) for name in known), default=(0, ""))
    return name if distance <= max(1, len(name) // 4) and len(name) > 2 else ""
