"""A data set's README -> the configurations that its metadata block names. Whoever wrote it may mean harm.

In YAML 30 lines of aliases or merges stand for 10^9 values, and deep nesting overflows the stack. So nothing is constructed:
the parser's events are taken one by one, an alias is the same value once more, merges mean nothing, and only text, lists
and mappings come out. A scalar is what is written: `no` is the name of a configuration, not false.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias, TypeGuard

from expert_cli.data.places import has_file, read_start
from expert_cli.errors import EnvironmentProblem, InputError
from expert_cli.utils.object_storage import StoredFolder

MAX_BYTES = 5_000_000
"""Longest metadata block; that of a data set of 2,000 languages has a fifth."""
_DEEPEST = 50
_TRUE = frozenset({"true", "yes", "on", "1"})
_NOTHING = frozenset({"", "~", "null"})

Value: TypeAlias = "str | list[Value] | dict[str, Value]"


@dataclass(frozen=True)
class CardConfig:
    """One entry of "configs".

    folder: where its files lie, "" = anywhere. splits: the patterns of each split's files; None where it names no files, so
    that their names tell.
    """

    name: str
    is_default: bool
    folder: str
    splits: Mapping[str, tuple[str, ...]] | None


class _Refused(ValueError):
    """Why a metadata block cannot be used."""


def load_configs(readme: Path | StoredFolder) -> tuple[CardConfig, ...]:
    """Return the configurations that a README names; none where there is no README, or no metadata block in it.

    Raises InputError: not valid YAML, longer than 5 MB, a form that is not known, something named twice.
    """
    if not has_file(readme):
        return ()
    try:
        content = read_start(readme, MAX_BYTES + 1)
    except OSError as error:
        raise EnvironmentProblem(f"{readme}: cannot be read: {error.strerror}") from error
    try:
        configs = _metadata(_block(content)).get("configs") or []
        return parse_configs(_once(configs, "configs"))
    except _Refused as refusal:
        raise InputError(f"{readme}: {refusal}", "Correct the README's metadata, or name one file of rows.") from None


def parse_configs(written: object) -> tuple[CardConfig, ...]:
    """Return the entries of a list "configs" (text, lists and mappings). Raises ValueError: why it cannot be used."""
    if not _are_mappings(written):
        raise _Refused('"configs" is not a list of configurations')
    configs = [_config(entry) for entry in written]
    names = [config.name for config in configs]
    if len(set(names)) < len(names):
        repeated = next(name for name in names if names.count(name) > 1)
        raise _Refused(f'"configs" names the configuration "{repeated}" twice')
    return tuple(configs)


def _are_mappings(value: object) -> TypeGuard[list[dict[str, Any]]]:
    return isinstance(value, list) and all(isinstance(entry, dict) for entry in value)


def _config(entry: Mapping[str, Any]) -> CardConfig:
    if "<<" in entry:
        raise _Refused('"configs" merges mappings ("<<"), which is not read')
    name = _text(entry.get("config_name", "default"), "config_name")
    is_default = _text(entry.get("default", ""), "default").lower() in _TRUE
    folder = _text(entry.get("data_dir", ""), "data_dir").removeprefix("./").strip("/")
    written = entry.get("data_files")
    return CardConfig(name, is_default, folder, _splits(written) if written else None)


def _splits(written: object) -> dict[str, tuple[str, ...]]:
    """The forms of `data_files`: a pattern, a list of them, a list of {split, path}, or {split: patterns}."""
    if isinstance(written, dict):
        return {split: _texts(patterns, split) for split, patterns in written.items()}
    entries = written if isinstance(written, list) else [written]
    if not _are_mappings(entries):
        return {"train": _texts(entries, "data_files")}
    splits: dict[str, tuple[str, ...]] = {}
    for entry in entries:
        split = _text(entry.get("split", "train"), "split")
        if split in splits:
            raise _Refused(f'"data_files" names the split "{split}" twice')
        splits[split] = _texts(entry.get("path", []), "path")
    return splits


def _texts(value: object, key: str) -> tuple[str, ...]:
    return tuple(_text(item, key) for item in (value if isinstance(value, list) else [value]))


def _once(value: object, key: str) -> object:
    if value is _TWICE:
        raise _Refused(f'"{key}" stands twice in one mapping')
    return value


def _text(value: object, key: str) -> str:
    value = _once(value, key)
    if not isinstance(value, str):
        raise _Refused(f'"{key}" in "configs" is a {"list" if isinstance(value, list) else "mapping"}, not text')
    return value


def _block(content: bytes) -> str:
    """The text between the lines "---" that a README begins with; "" if it does not."""
    from huggingface_hub.repocard import REGEX_YAML_BLOCK

    text = content.decode("utf-8-sig", "replace")
    match = REGEX_YAML_BLOCK.search(text)
    if match is None and len(content) > MAX_BYTES and text.lstrip().startswith("---"):
        raise _Refused(f"its metadata block is longer than {MAX_BYTES:,} bytes")
    return str(match[2]) if match else ""


_TWICE: Any = object()
"""What a mapping holds under a name that stands twice in it."""


def _metadata(block: str) -> dict[str, Any]:
    import yaml

    loader = yaml.CSafeLoader if yaml.__with_libyaml__ else yaml.SafeLoader
    try:
        value = _value(yaml.parse(block, Loader=loader))
    except yaml.YAMLError as error:
        line = getattr(getattr(error, "problem_mark", None), "line", None)
        where = "" if line is None else f" (line {line + 2})"
        raise _Refused(f"its metadata block is not valid YAML{where}") from error
    if not isinstance(value, dict | str):
        raise _Refused("its metadata block is not a mapping")
    return value if isinstance(value, dict) else {}


def _value(events: Iterable[Any]) -> Value:
    """Build what the events describe, without recursion; `open_` holds the parts of each collection that is not closed."""
    import yaml

    anchors: dict[str, Value] = {}
    open_: list[tuple[list[Any], str | None]] = [([], None)]
    for event in events:
        if isinstance(event, yaml.CollectionStartEvent):
            open_.append(([], event.anchor))
            if len(open_) > _DEEPEST:
                raise _Refused(f"its metadata block is nested more than {_DEEPEST} deep")
            continue
        if isinstance(event, yaml.CollectionEndEvent):
            parts, anchor = open_.pop()
            value: Value = _mapping(parts) if isinstance(event, yaml.MappingEndEvent) else parts
        elif isinstance(event, yaml.ScalarEvent):
            value, anchor = ("" if event.implicit[0] and event.value in _NOTHING else event.value), event.anchor
        elif isinstance(event, yaml.AliasEvent):
            if event.anchor not in anchors:
                raise _Refused(f"its metadata block uses the alias *{event.anchor} before it is defined")
            value, anchor = anchors[event.anchor], None
        else:
            continue
        if anchor:
            anchors[anchor] = value
        open_[-1][0].append(value)
    return open_[0][0][0] if open_[0][0] else ""


def _mapping(parts: list[Any]) -> dict[str, Value]:
    """Keys and values by turns -> a mapping; a key that is no text is left out: nothing that is read has one."""
    found: dict[str, Any] = {}
    for key, value in zip(parts[::2], parts[1::2], strict=True):
        if isinstance(key, str):
            found[key] = _TWICE if key in found else value
    return found
