"""`training.dataset` and `--dataset` -> the places rows come from. Looks at the disk, reads nothing."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from expert_cli.errors import InputError
from expert_cli.manifest.reader import LoadedManifest
from expert_cli.manifest.schema import Dataset
from expert_cli.runconfig import ColumnMapping, RowFilters, SourceSpec

DATA_SUFFIXES = (".jsonl", ".ndjson", ".json", ".csv", ".parquet", ".arrow")
_SLICE = re.compile(r"^(?P<name>[\w.-]*)(?P<slice>\[[^\]]*\])?$")
Sources = tuple[SourceSpec, ...]


def resolve_sources(
    loaded: LoadedManifest, root: Path, dataset: str | None, validation: str | None, *, evaluates: bool
) -> tuple[Sources, Sources, float, ColumnMapping, RowFilters]:
    """Return (train, validation, share split off train, mapping, filters).

    `dataset` and `validation` are the command line's; with `dataset` the manifest's validation files are set aside.
    """
    written = loaded.manifest.training.dataset
    folders = (loaded.path.resolve().parent, root)
    here = (Path.cwd(),)
    held_out: Sources = ()
    if dataset is not None:
        train: Sources = (parse_source(dataset, here),)
    elif written.tasks:
        train, held_out = _tasks(written, folders)
    else:
        train = (parse_source(written.path or "", folders),)
        held_out = (parse_source(written.validation_path, folders),) if written.validation_path else ()
    if validation is not None:
        held_out = (parse_source(validation, here),)
    share = 0.0
    if evaluates and not held_out:
        share = written.validation_split or 0.05
    elif written.validation_split and not held_out:
        share = written.validation_split
    return train, held_out, share, _mapping(written), _filters(written)


def parse_source(written: str, folders: Sequence[Path]) -> SourceSpec:
    """Return the source that `path`, `path::split` or `id::split::config` names.

    A path that exists in one of `folders` is local. One that looks local (a data file's suffix, ".", "/", a drive, a
    backslash) and does not exist keeps the list of places tried and never becomes a hub id. Raises InputError: no form.
    """
    path, _, rest = written.partition("::")
    split, _, config = rest.partition("::")
    match = _SLICE.match(split)
    if not path or match is None:
        raise InputError(f'data source "{written}" is not of the form path, path::split[slice] or id::split::config')
    split = (match["name"] or "train") + (match["slice"] or "")
    places = [(folder / path.replace("\\", "/")).absolute() for folder in folders]
    found = next((place for place in places if place.exists()), None)
    if found is not None:
        return SourceSpec("folder" if found.is_dir() else "file", str(found), config, split)
    looks_local = path.lower().endswith(DATA_SUFFIXES) or path[0] in "./~\\" or "\\" in path or path[1:2] == ":"
    if looks_local or path.count("/") > 1:
        tried = tuple(dict.fromkeys(str(place) for place in places))
        return SourceSpec("file", path, config, split, tried=tried)
    return SourceSpec("hub", path, config, split)


def _tasks(dataset: Dataset, folders: Sequence[Path]) -> tuple[Sources, Sources]:
    train: list[SourceSpec] = []
    held_out: list[SourceSpec] = []
    for name, task in (dataset.tasks or {}).items():
        source = parse_source(task.train, folders)
        weight = task.weight or 1.0
        train.append(SourceSpec(source.kind, source.path, source.config, source.split, weight, name, source.tried))
        if task.valid:
            source = parse_source(task.valid, folders)
            held_out.append(SourceSpec(source.kind, source.path, source.config, source.split, 1.0, name, source.tried))
    return tuple(train), tuple(held_out)


def _mapping(dataset: Dataset) -> ColumnMapping:
    fields = dataset.field_mapping
    if fields is None:
        return ColumnMapping(text=dataset.text_field or "")
    return ColumnMapping(
        instruction=fields.instruction or "",
        input=fields.input or "",
        response=fields.response or "",
        text=fields.text or dataset.text_field or "",
        messages=fields.messages or "",
    )


def _filters(dataset: Dataset) -> RowFilters:
    written = dataset.filters or (dataset.validation if not isinstance(dataset.validation, str) else None)
    if written is None:
        return RowFilters()
    said = written.deduplicate
    deduplicate = said if isinstance(said, str) else "row" if said else "off"
    return RowFilters(deduplicate, written.min_length or 0, written.max_length)
