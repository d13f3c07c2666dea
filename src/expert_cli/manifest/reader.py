"""Reads a manifest, and reports every error with line and column."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from expert_cli.errors import InputError, ManifestError, ManifestIssue
from expert_cli.manifest.json_text import JsonText, Path_, dotted, parse_json_text, read_json_text
from expert_cli.manifest.key import Strict
from expert_cli.manifest.keys.dataset import Dataset
from expert_cli.manifest.keys.rft import Rft
from expert_cli.manifest.messages import BY_HAND, OTHER_TOOLS, member_types, message_of, nearest, typo_of, unfit
from expert_cli.manifest.schema import Base, EvaluationBlock, Manifest
from expert_cli.manifest.training_config import TrainingConfig


@dataclass(frozen=True)
class LoadedManifest:
    """A manifest, the text it came from, and warnings."""

    path: Path
    manifest: Manifest
    text: JsonText
    warnings: tuple[ManifestIssue, ...]


def load_manifest(path: Path, settings: tuple[str, ...] = ()) -> LoadedManifest:
    """Read and check a manifest. settings: "training.config.KEY=VALUE", also for `training.rft` and `evaluation`.

    Raises ManifestError with all errors in the file, ordered by place, unknown keys first.
    """
    text = read_json_text(path)
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
    if contradictions := [text.fault(*words) for words in _contradictions(manifest)]:
        raise ManifestError(path, contradictions)
    return LoadedManifest(path, manifest, text, tuple(warnings))


def _override(text: JsonText, setting: str) -> None:
    """Put one `--set` value into the parsed manifest. Raises InputError."""
    key, equals, written = setting.partition("=")
    prefix, _, name = key.strip().rpartition(".")
    prefix = prefix or "training.config"
    model = _SETTABLE.get(prefix)
    if not equals or model is None:
        prefixes = ".KEY, ".join(_SETTABLE)
        raise InputError(f'--set "{setting}" is not of the form KEY=VALUE', f"keys: KEY, {prefixes}.KEY")
    if name not in model.model_fields:
        near = nearest(name, model.model_fields)
        raise InputError(f"--set: unknown key {prefix}.{name}", f"did you mean {near}?" if near else "")
    path = (*prefix.split("."), name)
    try:
        value = parse_json_text(written, Path("--set")).value
    except ManifestError:  # quotes around a text are optional
        value = written.strip()
    if reason := unfit(model, path, value):
        raise InputError(f"--set {prefix}.{name}: {reason}")
    block = text.value
    for part in path[:-1]:
        block[part] = block[part] if isinstance(block.get(part), dict) else {}
        block = block[part]
    if model is TrainingConfig:
        name = TrainingConfig.old_names.get(name, name)
        _set_aside(text.value, name)
    block[name] = value


def _set_aside(manifest: dict[str, Any], name: str) -> None:
    """Remove a key, also under its old name, from `training.config` and every base model's `config`; with epochs, max_steps."""
    keys = [name, *(old for old, new in TrainingConfig.old_names.items() if new == name)]
    keys += ["max_steps"] if name == "epochs" else []
    bases = manifest.get("base_models")
    blocks = [manifest["training"], manifest.get("base_model"), *(bases if isinstance(bases, list) else [])]
    for block in blocks:
        if isinstance(block, dict) and isinstance(config := block.get("config"), dict):
            for key in keys:
                config.pop(key, None)


Blocks = dict[str, type[BaseModel]]
_PLACES: Blocks = {"training.config": TrainingConfig, "base_models[i]": Base, "training.dataset": Dataset}
"""Blocks whose unknown keys are errors, by path."""
_SETTABLE: Blocks = {"training.config": TrainingConfig, "training.rft": Rft, "evaluation": EvaluationBlock}
"""Blocks whose keys `--set` accepts."""


def _unknown_keys(text: JsonText) -> tuple[list[ManifestIssue], list[ManifestIssue]]:
    """Return (errors, warnings) about unknown keys; in a loose block only a near miss is an error."""
    faults: list[ManifestIssue] = []
    warnings: list[ManifestIssue] = []

    def walk(value: Any, types: Sequence[Any], path: Path_) -> None:
        block = next((kind for kind in types if isinstance(kind, type) and issubclass(kind, BaseModel)), None)
        members = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
        for key, member in members:
            here = (*path, key)
            if block is None or isinstance(key, int) or key in block.model_fields:
                walk(member, member_types(types, key), here)
                continue
            names = list(block.model_fields)
            place = _place_of(key, block)
            near = "" if place else nearest(key, names) if issubclass(block, Strict) else typo_of(key, names)
            if issubclass(block, Strict) or near:
                hint = f"did you mean {near}?{_by_hand(key)}" if near else place or f"known keys: {', '.join(names)}"
                faults.append(text.fault(here, f"unknown key{f', nearest known: {near}' if near else ''}", hint))
            else:
                kept = "is not a key of this format; kept as information"
                warnings.append(text.fault(here, f"{kept}; {place}" if place else kept))

    walk(text.value, [Manifest], ())
    return faults, warnings


def _place_of(key: str, block: type[BaseModel]) -> str:
    """Return where a key in the wrong block belongs; "" if no block has it."""
    names = {key.lower(), OTHER_TOOLS.get(key.lower(), key.lower())}
    if names & set(block.model_fields):
        return ""
    places = [f"{place}.{name}" for place, other in _PLACES.items() for name in names if name in other.model_fields]
    return f"it belongs in {places[0]}{_by_hand(key)}" if places else ""


def _by_hand(key: str) -> str:
    return f" ({BY_HAND[key.lower()]})" if key.lower() in BY_HAND else ""


def _faults(text: JsonText, errors: list[ErrorDetails], unknown: list[ManifestIssue]) -> list[ManifestIssue]:
    """Convert pydantic's errors into one for each place; keys that are missing because they are misspelled are skipped."""
    faults: dict[str, ManifestIssue] = {}
    meant = {fault.suggestion for fault in unknown}
    for error in errors:
        if error["type"] == "extra_forbidden":
            continue
        path, value = _written(text.value, error["loc"])
        if error["type"] == "missing":
            key = str(error["loc"][-1])
            if f"did you mean {key}?" in meant:
                continue
            fault = text.fault((*path, key), "is missing")
            faults.setdefault(fault.key, fault)
        elif dotted(path) not in faults:  # a message contains the value, which all errors of a long list share
            faults[dotted(path)] = text.fault(path, message_of(path, value, error))
    around = {key[: at.start()] for key in faults for at in re.finditer(r"[.\[]", key)}
    return sorted(fault for key, fault in faults.items() if key not in around)


def _written(value: Any, loc: tuple[str | int, ...]) -> tuple[Path_, Any]:
    """Return the part of `loc` that exists in the file, and the value there.

    A union inserts a type's name. Errors about a block's keys belong to the keys, errors about list members to the list.
    """
    path: Path_ = ()
    for part in loc:
        inside = isinstance(part, str) and isinstance(value, dict) and part in value
        inside = inside or (isinstance(part, int) and isinstance(value, list) and part < len(value))
        if not inside and isinstance(value, dict):
            continue
        if not inside:
            break
        value = value[part]
        path = (*path, part)
    return path, value


def _contradictions(manifest: Manifest) -> Iterator[tuple[Path_, str, str]]:
    """Yield place, message and hint of errors that concern more than one key."""
    if manifest.base_model and manifest.base_models:
        message = "base_model and base_models exclude each other"
        yield ("base_model",), message, "keep base_models (schema 2.0) and remove base_model"
    if not manifest.bases:
        yield ("base_models",), "is missing: no base model is named", ""
    if manifest.base_models and manifest.adapters:
        hint = "keep base_models[i].adapters (schema 2.0) and remove the list at the top"
        yield ("adapters",), "adapters at the top belong to schema 1.0", hint
    dataset = manifest.training.dataset
    if dataset.type == "multi_task" and not dataset.tasks:
        yield ("training", "dataset", "tasks"), "is missing: type multi_task takes its rows from it", ""
    if not dataset.path and not dataset.tasks:
        hint = 'write "path": a file, a folder or a hub id, or "type": "multi_task" and "tasks"'
        yield ("training", "dataset", "path"), "is missing: no data is named", hint
    yield from _block_contradictions(("training", "config"), manifest.training.config)
    for index, base in enumerate(manifest.bases):
        if base.config:
            yield from _block_contradictions(("base_models", index, "config"), base.config)


def _block_contradictions(path: Path_, config: TrainingConfig) -> Iterator[tuple[Path_, str, str]]:
    for old, new in TrainingConfig.old_names.items():
        if getattr(config, old) is not None and getattr(config, new) is not None:
            yield (*path, old), f"{old} is the old name of {new}, and both are there", f"remove {old}"
    unknown = sorted(set(config.gradient_checkpointing_kwargs or {}) - {"use_reentrant"})
    if unknown:
        yield (*path, "gradient_checkpointing_kwargs", unknown[0]), "unknown setting; known: use_reentrant", ""
