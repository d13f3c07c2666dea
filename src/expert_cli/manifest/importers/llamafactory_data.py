"""LLaMA-Factory's `dataset`: names that its dataset_info.json explains."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from expert_cli.manifest.importers.draft import Draft
from expert_cli.manifest.importers.rules import listed
from expert_cli.manifest.importers.sources import NO_ROWS, Source, write_sources
from expert_cli.manifest.importers.transformers_keys import MULTIMODAL, PREFERENCES

INFO = "dataset_info.json"
_LARGEST = 10_000_000
"""Bytes of a dataset_info.json that is read: LLaMA-Factory's own has 25,000."""
_ONLINE = "ONLINE"
_MEDIA = ("images", "videos", "audios")
_TAGS: dict[str, tuple[str, tuple[str, ...]]] = {
    "role_tag": ("role", ("role", "from")),
    "content_tag": ("content", ("content", "value")),
    "user_tag": ("user", ("user", "human")),
    "assistant_tag": ("assistant", ("assistant", "gpt")),
    "system_tag": ("system", ("system",)),
    "observation_tag": ("tool", ("tool", "observation")),
    "function_tag": ("function_call", ("function_call",)),
}
"""What the fields and roles of messages are called here, and by which names they are recognized."""


def read_data(draft: Draft) -> None:
    """Write the rows that `dataset` and `eval_dataset` name, and their columns."""
    if not draft.values.get("dataset"):
        draft.refuse("dataset", NO_ROWS)
        return
    try:
        named = {key: listed(draft.values.get(key) or []) for key in ("dataset", "eval_dataset")}
    except ValueError as error:
        draft.refuse("dataset", str(error))
        return
    place, known = _info(draft)
    train, valid = ([_source(draft, key, name, known, place) for name in names] for key, names in named.items())
    write_sources(draft, train, valid)
    if draft.values.get("dataset_dir") and place is None and draft.values["dataset_dir"] != _ONLINE:
        draft.lose("dataset_dir", f"no {INFO} is there")


def _info(draft: Draft) -> tuple[Path | None, Mapping[str, Any]]:
    """Return the folder of dataset_info.json and what it holds: below here, below the file's folder, or one above it."""
    folder = str(draft.values.get("dataset_dir") or "data")
    for parent in (Path(), draft.folder, *draft.folder.resolve().parents):
        file = parent / folder / INFO
        if file.is_file() and file.stat().st_size < _LARGEST:
            try:
                told = json.loads(file.read_text(encoding="utf-8"))
            except ValueError:
                continue
            return file.parent, told if isinstance(told, dict) else {}
    return None, {}


def _source(draft: Draft, key: str, name: str, known: Mapping[str, Any], place: Path | None) -> Source:
    """Return the rows of one name, as far as they can be told."""
    most = draft.values.get("max_samples")
    part = f"train[:{most}]" if isinstance(most, int) and key == "dataset" else ""
    told = known.get(name)
    if not isinstance(told, dict):
        if draft.values.get("dataset_dir") == _ONLINE:
            return Source(key, name, part)
        why = f"{INFO} names no such data set" if place else f"no {INFO} was found, which says where it lies"
        draft.lose(key, f"{why}: put its rows into datasets/{name}.jsonl, or correct the path", name)
        return Source(key, f"datasets/{name}.jsonl", part)
    if told.get("ranking"):
        draft.refuse(key, PREFERENCES, name)
    columns = told.get("columns") or {}
    if any(columns.get(media) for media in _MEDIA):
        draft.refuse(key, MULTIMODAL, name)
    split = str(told.get("split") or "")
    if part and split:
        part = part.replace("train", split)
    where = str(told.get("hf_hub_url") or "")
    if not where:
        file = str(told.get("file_name") or told.get("script_url") or "")
        lies = place / file if place else Path(file)
        where = draft.path(str(lies)) if lies.exists() else f"datasets/{Path(file).name or name}"
        if not lies.exists():
            draft.lose(key, f"{file} does not lie beside {INFO}: put it at {where}", name)
    return Source(key, where, part or split, str(told.get("subset") or ""), 1.0, _columns(draft, told))


def _columns(draft: Draft, told: Mapping[str, Any]) -> dict[str, Any]:
    columns = told.get("columns") or {}
    if draft.values.get("stage") == "pt":
        return {"text": str(columns.get("prompt") or "text")}
    beside = {role: str(columns[role]) for role in ("system", "tools") if columns.get(role) not in (None, role)}
    if told.get("formatting", "alpaca") != "alpaca":
        return {"messages": str(columns.get("messages") or "conversations"), **beside, **_tags(told.get("tags") or {})}
    roles = {"instruction": "prompt", "input": "query", "response": "response", "history": "history"}
    named = {role: str(columns[theirs]) for role, theirs in roles.items() if columns.get(theirs)}
    if {"instruction", "response"} <= named.keys():  # where these are named nothing is recognized beside them
        beside = {role: str(columns[role]) for role in ("system", "tools") if columns.get(role)}
    return {**named, **beside}


def _tags(tags: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a field_mapping says of turns, where their fields and roles have no usual name."""
    odd = {_TAGS[tag][0]: str(value) for tag, value in tags.items() if tag in _TAGS and value not in _TAGS[tag][1]}
    fields: dict[str, Any] = {name: odd[name] for name in ("role", "content") if name in odd}
    roles = {role: [name] for role, name in odd.items() if role not in fields}
    return {**fields, **({"roles": roles} if roles else {})}
