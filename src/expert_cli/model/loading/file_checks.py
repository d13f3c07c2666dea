"""Checks before loading that a model folder is complete, has its weights as safetensors, and brings no code."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from expert_cli.errors import EnvironmentProblem, InputError, IntegrityError
from expert_cli.utils.files import parse_json

_WEIGHTS = "model.safetensors"
_INDEX = "model.safetensors.index.json"
_KERNEL_KEYS = ("_attn_implementation_internal", "_experts_implementation_internal")


def check_folder(folder: Path) -> list[Path]:
    """Return the weight files of a model folder, sorted by name, after checking that it is safe and complete.

    Raises EnvironmentProblem for a missing file, InputError for pickled weights and code of the model's own (auto_map without
    a class in transformers; an attention implementation to download, CVE-2026-4372), IntegrityError for truncated files.
    """
    if not (folder / "config.json").is_file():
        is_adapter = (folder / "adapter_config.json").is_file()
        told = "is an adapter: name its base model" if is_adapter else "is not a model folder: it has no config.json"
        hint = "a model folder has config.json and *.safetensors; for a GGUF name the file"
        raise EnvironmentProblem(f"{folder} {told}", hint)
    _refuse_code(folder)
    files = _weights(folder)
    for file in files:
        try:
            with safe_open(file, "np"):  # compares the header with the size of the file
                pass
        except (SafetensorError, OSError) as error:
            raise IntegrityError(f"{file} is damaged: {error}", "fetch the model again") from error
    return files


def weights_sha256(files: list[Path], sha256: Callable[[Path], str]) -> str:
    """Return the sha256 of the weights: of the single file, else of the output of `sha256sum *.safetensors`."""
    if len(files) == 1:
        return sha256(files[0])
    lines = (f"{sha256(file)}  {file.name}\n" for file in files)
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def _read(path: Path) -> dict[str, Any]:
    try:
        document = parse_json(path.read_bytes())
    except (OSError, ValueError) as error:
        raise IntegrityError(f"{path} cannot be read: {error}", "fetch the model again") from error
    if not isinstance(document, dict):
        raise IntegrityError(f"{path} is not a JSON object", "fetch the model again")
    return document


def _weights(folder: Path) -> list[Path]:
    names = [_WEIGHTS]
    if (folder / _INDEX).is_file():
        weight_map = _read(folder / _INDEX).get("weight_map")
        if not isinstance(weight_map, dict):
            raise IntegrityError(f"{folder / _INDEX} has no weight_map", "fetch the model again")
        names = sorted(set(map(str, weight_map.values())))
        if any(Path(name).name != name for name in names):
            raise InputError(f"{folder / _INDEX} names weights outside of its folder", "use another base model")
    missing = [name for name in names if not (folder / name).is_file()]
    if not missing:
        return [folder / name for name in names]
    if pickled := sorted(file.name for file in folder.iterdir() if file.suffix in (".bin", ".pt", ".pth")):
        told = f"{folder} holds pickled weights only ({pickled[0]}), which can run code when they are read"
        hint = "use a model with safetensors, or convert it where you trust it: model.save_pretrained(folder)"
        raise InputError(told, hint)
    hint = "it is incomplete or has no safetensors: download it again, or use another base model"
    raise EnvironmentProblem(f"{folder} lacks {', '.join(missing[:3])}", hint)


def _refuse_code(folder: Path) -> None:
    config = _read(folder / "config.json")
    plain = json.dumps(config)  # as text without escapes, so that keys are found at any depth
    if kernel := next((key for key in _KERNEL_KEYS if f'"{key}": ' in plain), None):
        message = f'{folder / "config.json"} sets "{kernel}", which makes the loader fetch and run code'
        raise InputError(message, "no published model needs this key: do not use this one")
    # takes 10 s to import: only for an existing folder
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

    # If transformers has a class for the type, it ignores auto_map unless remote code is trusted.
    if (kind := config.get("model_type")) not in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES:
        code = " and brings its own code (auto_map), which is not run here" if "auto_map" in config else ""
        told = f'{folder}: model_type "{kind}" is no language model that transformers knows{code}'
        raise InputError(told, "use another base model")
