"""`training.dataset` and `--dataset` -> the places rows come from."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

from expert_cli.config.run_config import ColumnMapping, Deduplicate, RowFilters, SourceSpec
from expert_cli.config.settings import Settings
from expert_cli.config.source_names import missing, parse_source
from expert_cli.errors import InputError, ManifestError, ManifestIssue
from expert_cli.manifest.json_text import Path_
from expert_cli.manifest.key import CARD, applied, not_used
from expert_cli.manifest.keys.dataset import Dataset, FieldMapping, Filters
from expert_cli.manifest.keys.schema_prompt import SchemaPromptConfig
from expert_cli.manifest.reader import LoadedManifest

Sources = tuple[SourceSpec, ...]
Data = Settings[Dataset]


@dataclass(frozen=True)
class ResolvedData:
    """The sources that train, those that evaluate or the share split off for it, the columns, the rows left out."""

    train: Sources
    validation: Sources
    validation_share: float
    mapping: ColumnMapping
    filters: RowFilters
    schema_prompt: SchemaPromptConfig | None


def resolve_sources(
    loaded: LoadedManifest, data: Data, root: Path, dataset: str | None, validation: str | None, *, evaluates: bool
) -> ResolvedData:
    """Decide which rows train and which evaluate, and note in `data` what became of the manifest's keys.

    `dataset` and `validation` are the command line's; with `dataset` the manifest's validation files are set aside.
    Raises InputError or ManifestError for a source of no known form.
    """
    train, held_out = _from_manifest(loaded, data, root)
    if dataset is not None:
        train, held_out = (parse_source(dataset, (Path.cwd(),)),), ()
        data.leave(f"--dataset replaces it: the rows come from {train[0].path}", "path", "tasks")
        data.leave("--dataset replaces the manifest's files", "validation_path")
        data.outcomes = {path: told for path, told in data.outcomes.items() if path[0] != "tasks" or len(path) == 1}
    if validation is not None:
        held_out = (parse_source(validation, (Path.cwd(),)),)
        reason = f"--validation replaces it: the rows come from {held_out[0].path}"
        data.leave(reason, "validation_path")
        data.outcomes |= {path: not_used(reason) for path in data.outcomes if path[-1] == "valid"}
    train += _replay(loaded, data, root)
    share = _share(data, held_out, evaluates=evaluates)
    if held_out and validation is None and not evaluates:
        told = applied("one of its rows is answered before and after training", "nothing asks for an evaluation")
        named = [path for path in data.outcomes if path == ("validation_path",) or path[-1] == "valid"]
        data.outcomes |= {path: told for path in named if data.outcomes[path].status == "applied"}
    shown = _schema_prompt(data, (loaded.path.parent, root))
    mapping = replace(_mapping(data), database=shown.database_column if shown else "")
    return ResolvedData(train, held_out, share, mapping, _filters(data), shown)


def named_sources(written: Dataset, rows: Literal["train", "valid", "test"]) -> dict[Path_, list[str]]:
    """Return the sources of training, validation or test rows that a manifest names, by their keys in `training.dataset`."""
    key = {"train": "path", "valid": "validation_path", "test": "test_path"}[rows]
    there = getattr(written, key)
    named: dict[Path_, str | list[str] | None] = {(key,): there}
    if isinstance(there, dict):
        named = {(key, name): sources for name, sources in there.items()}
    named |= {("tasks", name, rows): getattr(task, rows) for name, task in (written.tasks or {}).items()}
    return {key: _listed(sources) for key, sources in named.items() if sources}


def test_sources(loaded: LoadedManifest, root: Path) -> list[tuple[Path_, SourceSpec]]:
    """Return where a manifest's test rows come from, each with its key in `training.dataset`."""
    folders = (loaded.path.resolve().parent, root)
    named = named_sources(loaded.manifest.training.dataset, "test")
    return [(key, parse_source(source, folders)) for key, sources in named.items() for source in sources]


def missing_tests(loaded: LoadedManifest, root: Path) -> list[ManifestIssue]:
    """Return a warning for every file of test rows that is not there: nothing reads it, so nothing else would tell."""
    found = [(key, spec) for key, spec in test_sources(loaded, root) if spec.tried]
    return [loaded.text.fault(("training", "dataset", *key), missing(spec)) for key, spec in found]


def _from_manifest(loaded: LoadedManifest, data: Data, root: Path) -> tuple[Sources, Sources]:
    """Return (train, validation) as the manifest names them."""
    written, parse = data.written, partial(_parse, loaded, root)
    for source in _listed(written.test_path):
        parse(source, "test_path")
    if written.tasks:
        data.leave("the rows come from tasks", "path")
        data.leave("each task names its own rows: tasks.NAME.valid", "validation_path")
        return _tasks(data, parse)
    train = tuple(parse(source, "path") for source in _listed(data.use("path")))
    if written.validation_path:
        data.use("validation_path")
    return train, tuple(
        replace(parse(source, *key), task=str(key[1]) if key[1:] else "")
        for key, sources in named_sources(written, "valid").items()
        for source in sources
    )


def _listed(sources: str | list[str] | None) -> list[str]:
    return [sources] if isinstance(sources, str) else sources or []


def _parse(loaded: LoadedManifest, root: Path, source: str, *key: str | int) -> SourceSpec:
    """Return the source that a key of `training.dataset` names; a fault stands at the key."""
    try:
        return parse_source(source, (loaded.path.resolve().parent, root))
    except InputError as error:
        fault = loaded.text.fault(("training", "dataset", *key), error.message, error.hint)
        raise ManifestError(loaded.path, [fault]) from error


def _replay(loaded: LoadedManifest, data: Data, root: Path) -> Sources:
    """Return the rows that are trained again, as a source behind the others; none where they are not written."""
    if data.written.replay is None:
        return ()
    replay = Settings(data.written.replay)
    spec = replace(_parse(loaded, root, replay.use("path"), "replay", "path"), share=replay.use("share"))
    data.nest(("replay",), replay)
    return (spec,)


def _tasks(data: Data, parse: Callable[..., SourceSpec]) -> tuple[Sources, Sources]:
    train: list[SourceSpec] = []
    held_out: list[SourceSpec] = []
    for name, written in (data.written.tasks or {}).items():
        task = Settings(written)
        drawn = {key: task.use(key) for key in ("weight", "max_rows", "repeat")}
        train.append(replace(parse(task.use("train"), "tasks", name, "train"), **drawn, task=name))
        if written.valid:
            held_out.append(replace(parse(task.use("valid"), "tasks", name, "valid"), task=name))
        if written.test:
            parse(written.test, "tasks", name, "test")
        data.nest(("tasks", name), task)
    return tuple(train), tuple(held_out)


def _share(data: Data, held_out: Sources, *, evaluates: bool) -> float:
    """Return the share of the training rows that is split off for evaluation."""
    if held_out:
        data.leave("the validation rows are named", "validation_split")
        return 0.0
    if not (evaluates or data.written.validation_split):
        data.leave("nothing asks for an evaluation", "validation_split")
        return 0.0
    return float(data.use("validation_split"))


def _mapping(data: Data) -> ColumnMapping:
    fields = Settings(data.written.field_mapping or FieldMapping())
    named: dict[str, Any] = {role: fields.use(role) for role, value in fields.written if value}
    named["roles"] = tuple((said, role) for role, saying in named.get("roles", {}).items() for said in saying)
    data.leave("names no column: they are recognized by their usual names", "field_mapping")
    data.nest(("field_mapping",), fields)
    if "text" in named:
        data.leave("field_mapping.text names the column", "text_field")
    else:
        named["text"] = data.use("text_field") or ""
    return ColumnMapping(**named)


def _filters(data: Data) -> RowFilters:
    written, key = data.written.filters, "filters"
    old = data.written.validation
    if written is not None:
        data.leave("filters decides; this is its old name", "validation")
    elif isinstance(old, Filters):
        written, key = old, "validation"
    if isinstance(old, str):
        data.outcomes["validation",] = CARD
    if written is None:
        return RowFilters()
    filters, said = Settings(written), written.deduplicate
    deduplicate: Deduplicate = said if isinstance(said, str) else "row" if said else "off"
    filters.put("deduplicate", deduplicate)
    decided = RowFilters(deduplicate, filters.use("min_length"), filters.use("max_length"))
    data.nest((key,), filters)
    return decided


def _schema_prompt(data: Data, folders: Sequence[Path]) -> SchemaPromptConfig | None:
    """Return what questions are shown of their databases, whose files stand in the first of `folders` that has any."""
    if data.written.schema_prompt is None:
        return None
    keys = Settings(data.written.schema_prompt)
    data.outcomes["schema_prompt",] = applied("questions are shown a part of their database, by the defaults")
    most = {name: None if (value := keys.use(name)) == "all" else value for name in ("tables", "columns")}
    pattern = keys.use("databases") or ""
    if len(set(re.findall(r"\{[^{}]*\}", pattern))) > 1:
        raise InputError(f"schema_prompt.databases: {pattern} names several columns", "name one, as often as need be")
    decided = keys.block(SchemaPromptConfig, **most, databases="")
    if pattern:
        places = [replace(decided, databases=str((folder / pattern).absolute())) for folder in folders]
        decided = next((place for place in places if place.files()), places[0])
    data.nest(("schema_prompt",), keys)
    return decided
