"""The rows that a configuration names -> `training.dataset`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from expert_cli.manifest.importers.draft import Draft
from expert_cli.utils.paths import slug

NO_ROWS = "no data set is named"
FILES = ("json", "csv", "parquet", "arrow", "text")
"""What `datasets` calls a data set that is made of files."""


@dataclass(frozen=True)
class Source:
    """Rows of one place. key: where the configuration names it. columns: what holds what, none: the usual names."""

    key: str
    path: str
    split: str = ""
    config: str = ""
    weight: float = 1.0
    columns: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        """Return it as a manifest writes it: path, path::split or path::split::config."""
        split = "" if self.split == "train" and not self.config else self.split
        config = f"::{self.config}" if self.config else ""
        return f"{self.path}::{split}{config}" if split or config else self.path


def places(draft: Draft, key: str, told: Mapping[str, Any]) -> list[str]:
    """Return where the rows of one entry lie: its `data_files`, where `path` is what `datasets` calls files, else its path."""
    path, files = str(told.get("path") or told.get("id") or ""), told.get("data_files") or []
    if isinstance(files, dict):
        files = files.get(told.get("split") or "train") or []
    files = [files] if isinstance(files, str) else files
    if path in FILES or not path:
        return [draft.path(str(file)) for file in files]
    if files:
        draft.lose(f"{key}.data_files", "a data set of the hub is read by its splits; download the file", files)
    return [draft.path(path)]


def write_sources(draft: Draft, train: Sequence[Source], valid: Sequence[Source] = ()) -> None:
    """Write the rows that train, and those that evaluate: one path, or several tasks."""
    if not train:
        return
    if len(train) == 1 and train[0].weight == 1 and len(valid) <= 1:
        draft.put(train[0].key, "dataset", "path", str(train[0]))
        for source in valid:
            draft.put(source.key, "dataset", "validation_path", str(source))
    else:
        tasks = _tasks(train, valid)
        draft.put(train[0].key, "dataset", "type", "multi_task")
        draft.put(train[0].key, "dataset", "tasks", tasks)
        for source in valid[len(train) :]:
            draft.lose(source.key, "there are more sources of validation rows than of training rows", str(source))
    _write_columns(draft, [*train, *valid])


def _tasks(train: Sequence[Source], valid: Sequence[Source]) -> dict[str, dict[str, Any]]:
    tasks: dict[str, dict[str, Any]] = {}
    for number, source in enumerate(train):
        name = slug(source.path.rpartition(".")[0] if source.path.endswith((".json", ".jsonl")) else source.path)
        task: dict[str, Any] = {"train": str(source)}
        if source.weight != 1:
            task["weight"] = source.weight
        if number < len(valid):
            task["valid"] = str(valid[number])
        tasks[name if name not in tasks else f"{name}-{number + 1}"] = task
    return tasks


def _write_columns(draft: Draft, sources: Sequence[Source]) -> None:
    """Write the mapping of the columns, which is one for all rows."""
    first = next((source for source in sources if source.columns), None)
    if first is None:
        return
    others = [source for source in sources if source.columns != first.columns]
    if not others:
        draft.put(first.key, "dataset", "field_mapping", dict(first.columns))
    for source in others and sources:
        named = ", ".join(f"{role} <- {name}" for role, name in source.columns.items()) or "the usual names"
        reason = f"field_mapping is one for all rows, and these data sets differ; here: {named}"
        draft.lose(f"{source.key} ({source.path})", reason, source.path)
