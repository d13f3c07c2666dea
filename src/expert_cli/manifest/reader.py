"""Text -> `Manifest`, with line and column of every fault."""

from __future__ import annotations

import json
import types
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from expert_cli.errors import Fault, InputError, ManifestError
from expert_cli.manifest.blocks import Loose, Strict
from expert_cli.manifest.jsontext import JsonText, Path_, dotted, read_json
from expert_cli.manifest.names import field_names, nearest, typo_of
from expert_cli.manifest.schema import EvaluationBlock, Manifest
from expert_cli.manifest.training_config import TrainingConfig


@dataclass(frozen=True)
class LoadedManifest:
    """A manifest, the text it came from, and remarks that do not stop it."""

    path: Path
    manifest: Manifest
    text: JsonText
    warnings: tuple[Fault, ...]


def load(path: Path, settings: tuple[str, ...] = ()) -> LoadedManifest:
    """Read, check and return a manifest; `settings` are "training.config.KEY=VALUE" or "evaluation.KEY=VALUE" overrides.

    Raises ManifestError with every fault of the file, in the order of their places, unknown keys first.
    """
    text = read_json(path)
    if not isinstance(text.value, dict):
        raise ManifestError(path, [text.fault((), "is not an object: a manifest is {...}")])
    for setting in settings:
        _override(text, setting)
    unknown, warnings = _unknown_keys(text)
    try:
        manifest = Manifest.model_validate(text.value)
        faults = unknown
    except ValidationError as error:
        faults = unknown + _faults(text, error.errors(), unknown)
        if not faults:
            raise
    if faults:
        raise ManifestError(path, faults)
    contradictions = _contradictions(text, manifest)
    if contradictions:
        raise ManifestError(path, contradictions)
    return LoadedManifest(path, manifest, text, tuple(warnings))


def _override(text: JsonText, setting: str) -> None:
    """Put one `--set` value into the parsed manifest. Raises InputError for a malformed setting or unknown key."""
    key, equals, written = setting.partition("=")
    prefix, _, name = key.strip().rpartition(".")
    if not equals or prefix not in ("training.config", "evaluation", ""):
        raise InputError(f'--set "{setting}" is not of the form training.config.KEY=VALUE')
    prefix = prefix or "training.config"
    known = (EvaluationBlock if prefix == "evaluation" else TrainingConfig).model_fields
    if name not in known:
        near = nearest(name, known)
        raise InputError(f"--set: unknown key {prefix}.{name}", f"did you mean {near}?" if near else "")
    try:
        value = json.loads(written)
    except ValueError:
        value = written
    if prefix == "evaluation":
        _override_evaluation(text, name, value)
    else:
        _override_config(text, name, value)


def _override_evaluation(text: JsonText, name: str, value: Any) -> None:
    """Set how answers are run during training; a block of another form holds earlier results alone, and is replaced."""
    block = text.value.get("evaluation")
    if value is not None:
        text.value["evaluation"] = {**(block if isinstance(block, dict) else {}), name: value}
    elif isinstance(block, dict):
        block.pop(name, None)


def _override_config(text: JsonText, name: str, value: Any) -> None:
    training = text.value.setdefault("training", {})
    config = training.setdefault("config", {}) if isinstance(training, dict) else None
    if not isinstance(config, dict):
        raise ManifestError(Path(text.file), [text.fault(("training", "config"), "must be an object")])
    for old, new in TrainingConfig.old_names.items():
        if new == name:
            config.pop(old, None)
    if name == "epochs":
        config.pop("max_steps", None)
    config[name] = value
    for base in text.value.get("base_models") or []:
        if isinstance(base, dict) and isinstance(base.get("config"), dict):
            base["config"].pop(name, None)


def _unknown_keys(text: JsonText) -> tuple[list[Fault], list[Fault]]:
    """Return (faults, warnings): keys that no block knows; in a loose block only a near miss is a fault."""
    faults: list[Fault] = []
    warnings: list[Fault] = []

    def walk(value: Any, block: type[BaseModel], path: Path_) -> None:
        if not isinstance(value, dict):
            return
        for key, member in value.items():
            here = (*path, key)
            info = block.model_fields.get(key)
            if info is not None:
                _descend(member, info.annotation, here, walk)
                continue
            names = field_names(block)
            near = nearest(key, names) if issubclass(block, Strict) else typo_of(key, names)
            if issubclass(block, Strict) or near:
                hint = f"did you mean {near}?" if near else f"known keys: {', '.join(names)}"
                faults.append(text.fault(here, f"unknown key{f', nearest known: {near}' if near else ''}", hint))
            else:
                warnings.append(text.fault(here, "is not a key of this format; kept as information"))

    walk(text.value, Manifest, ())
    return faults, warnings


def _descend(value: Any, annotation: Any, path: Path_, walk: Any) -> None:
    """Walk into the blocks that `annotation` allows at `path`: a block, a list of blocks, a dict of blocks."""
    for part in _parts(annotation):
        if isinstance(part, type) and issubclass(part, BaseModel):
            walk(value, part, path)
        elif get_origin(part) is list and isinstance(value, list):
            for index, item in enumerate(value):
                _descend(item, get_args(part)[0], (*path, index), walk)
        elif get_origin(part) is dict and isinstance(value, dict):
            for key, item in value.items():
                _descend(item, get_args(part)[1], (*path, key), walk)


def _parts(annotation: Any) -> list[Any]:
    """Return the alternatives of a type, without Annotated and None."""
    origin = get_origin(annotation)
    if origin is Annotated:
        return _parts(get_args(annotation)[0])
    if origin in (Union, types.UnionType):
        return [part for arg in get_args(annotation) for part in _parts(arg)]
    return [] if annotation is type(None) else [annotation]


def _faults(text: JsonText, errors: list[ErrorDetails], unknown: list[Fault]) -> list[Fault]:
    """Turn pydantic's errors into one fault a place; a key that is missing because it is misspelt is left out."""
    faults: dict[str, Fault] = {}
    for error in errors:
        if error["type"] == "extra_forbidden":
            continue
        path, value = _written(text.value, error["loc"])
        if error["type"] == "missing":
            key = str(error["loc"][-1])
            if any(fault.suggestion == f"did you mean {key}?" for fault in unknown):
                continue
            fault = text.fault((*path, key), "is missing")
        else:
            fault = text.fault(path, _message(path, value, error))
        faults.setdefault(fault.key, fault)
    return sorted(faults.values())


def _written(value: Any, loc: tuple[str | int, ...]) -> tuple[Path_, Any]:
    """Return the part of `loc` that exists in the file and what stands there (a union adds parts of its own)."""
    path: Path_ = ()
    for part in loc:
        inside = isinstance(part, str) and isinstance(value, dict) and part in value
        inside = inside or (isinstance(part, int) and isinstance(value, list) and part < len(value))
        if not inside:
            break
        value = value[part]
        path = (*path, part)
    return path, value


def _message(path: Path_, value: Any, error: ErrorDetails) -> str:
    shown = json.dumps(value, ensure_ascii=True, default=str)
    shown = shown if len(shown) <= 60 else shown[:57] + "..."
    annotation = _annotation(path)
    if error["type"] in ("greater_than", "greater_than_equal", "less_than", "less_than_equal", "too_short"):
        rule = error["msg"].removeprefix("Input should ").removeprefix("be ")
        return f"must be {rule}, is {shown}"
    wanted = (
        " or ".join(dict.fromkeys(_describe(part) for part in _parts(annotation))) if annotation else "another type"
    )
    hint = ""
    if isinstance(value, str) and value.replace(".", "", 1).lstrip("-").isdigit() and "number" in wanted:
        hint = f": write {value} without quotes"
    return f"must be {wanted}, is {shown}{hint}"


def _annotation(path: Path_) -> Any:
    """Return the type that the schema gives the key at `path`, or None for a key inside free-form data."""
    types_: list[Any] = [Manifest]
    for part in path:
        found: list[Any] = []
        for candidate in types_:
            if isinstance(candidate, type) and issubclass(candidate, BaseModel) and part in candidate.model_fields:
                found += _parts(candidate.model_fields[str(part)].annotation)
            elif get_origin(candidate) in (list, dict):
                found += _parts(get_args(candidate)[-1])
        types_ = found
    return Union[tuple(types_)] if types_ else None  # noqa: UP007


def _describe(part: Any) -> str:
    """Return a type in words a user of JSON knows."""
    if get_origin(part) is Literal:
        options = ", ".join(json.dumps(option) for option in get_args(part))
        return options if len(get_args(part)) == 1 else f"one of {options}"
    if get_origin(part) is list:
        items = " or ".join(_describe(item) for item in _parts(get_args(part)[0]))
        return f"a list of {items}s" if items.startswith(("text", "number")) else f"a list ({items})"
    if get_origin(part) is dict or (isinstance(part, type) and issubclass(part, (Loose, Strict))):
        return "an object"
    words = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}
    return words.get(part, "a value")


def _contradictions(text: JsonText, manifest: Manifest) -> list[Fault]:
    """Return the faults that need more than one key to see."""
    faults: list[Fault] = []
    if manifest.base_model and manifest.base_models:
        message = "base_model and base_models are both there"
        faults.append(text.fault(("base_model",), message, "keep base_models (schema 2.0) and remove base_model"))
    if not manifest.bases:
        faults.append(text.fault(("base_models",), "is missing: no base model is named"))
    if manifest.base_models and manifest.adapters:
        hint = "keep base_models[i].adapters (schema 2.0) and remove the list at the top"
        faults.append(text.fault(("adapters",), "adapters at the top belong to schema 1.0", hint))
    dataset = manifest.training.dataset
    if dataset.type == "multi_task" and not dataset.tasks:
        faults.append(
            text.fault(("training", "dataset", "tasks"), "is missing: type multi_task takes its rows from it")
        )
    if not dataset.path and not dataset.tasks:
        faults.append(text.fault(("training", "dataset", "path"), "is missing: no data is named"))
    blocks: list[tuple[Path_, TrainingConfig]] = [(("training", "config"), manifest.training.config)]
    blocks += [(("base_models", i, "config"), base.config) for i, base in enumerate(manifest.bases) if base.config]
    for path, config in blocks:
        faults += _block_contradictions(text, path, config)
    return faults


def _block_contradictions(text: JsonText, path: Path_, config: TrainingConfig) -> list[Fault]:
    faults: list[Fault] = []
    for old, new in TrainingConfig.old_names.items():
        if getattr(config, old) is not None and getattr(config, new) is not None:
            faults.append(
                text.fault((*path, old), f"{old} is the old name of {new}, and both are there", f"remove {old}")
            )
    if config.fp16 and config.bf16:
        faults.append(text.fault((*path, "fp16"), "fp16 and bf16 are both true", "keep bf16, unless the GPU lacks it"))
    unknown = sorted(set(config.gradient_checkpointing_kwargs or {}) - {"use_reentrant"})
    if unknown:
        key = (*path, "gradient_checkpointing_kwargs", unknown[0])
        faults.append(text.fault(key, "unknown setting; known: use_reentrant"))
    return faults


__all__ = ["LoadedManifest", "dotted", "load"]
