"""Resolves `training.dataset` and `--dataset` into the sources of rows."""

from __future__ import annotations

import glob
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path, PurePath, PurePosixPath
from typing import Any

from expert_cli.config.run_config import ColumnMapping, DataConfig, Deduplicate, RowFilters, SourceKind, SourceSpec
from expert_cli.config.settings import Settings
from expert_cli.errors import EnvironmentProblem, InputError, ManifestError
from expert_cli.manifest.key import CARD, applied, not_used
from expert_cli.manifest.keys.dataset import Dataset, FieldMapping, Filters
from expert_cli.manifest.keys.schema_prompt import SchemaPromptConfig
from expert_cli.manifest.reader import LoadedManifest
from expert_cli.utils.files import matching
from expert_cli.utils.object_storage import is_url, without_file_scheme
from expert_cli.utils.paths import is_inside
from expert_cli.utils.redaction import without_passwords
from expert_cli.utils.text import shortened

Sources = tuple[SourceSpec, ...]
Data = Settings[Dataset]


@dataclass(frozen=True)
class ResolvedData:
    """The sources for training, those for validation or a share to split off, the columns, and the filters."""

    train: Sources
    validation: Sources
    validation_share: float
    mapping: ColumnMapping
    filters: RowFilters
    schema_prompt: SchemaPromptConfig | None


def resolve_sources(
    loaded: LoadedManifest, data: Data, root: Path, dataset: str | None, validation: str | None, *, evaluates: bool
) -> ResolvedData:
    """Decide which rows are for training and which for validation, and note the effects of the manifest's keys in `data`.

    `dataset` and `validation` come from the command line; with `dataset` the manifest's validation files are not used. Raises
    InputError or ManifestError for a source of unknown form.
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
    if data.written.replay is not None:  # earlier rows to train again
        replay = Settings(data.written.replay)
        spec = _parse(loaded, root, replay.use("path"), "replay", "path")
        train += (replace(spec, share=replay.use("share")),)
        data.nest(("replay",), replay)
    share = 0.0
    if not held_out and (evaluates or data.written.validation_split):
        share = float(data.use("validation_split"))
    else:
        told = "the validation rows are named" if held_out else "nothing asks for an evaluation"
        data.leave(told, "validation_split")
    if held_out and validation is None and not evaluates:
        asked = applied("its rows are in the token store", "no key asks for an evaluation")
        named = [path for path in data.outcomes if path == ("validation_path",) or path[-1] == "valid"]
        data.outcomes |= {path: asked for path in named if data.outcomes[path].status == "applied"}
    shown = _schema_prompt(data, (loaded.path.parent, root))
    mapping = replace(_mapping(data), database=shown.database_column if shown else "")
    return ResolvedData(train, held_out, share, mapping, _filters(data), shown)


def test_sources(loaded: LoadedManifest, root: Path) -> list[SourceSpec]:
    """Return the sources of a manifest's test rows."""
    written, folders = loaded.manifest.training.dataset, (loaded.path.resolve().parent, root)
    of_tasks = [task.test for task in (written.tasks or {}).values() if task.test]
    return [parse_source(source, folders) for source in (*_listed(written.test_path), *of_tasks)]


def _from_manifest(loaded: LoadedManifest, data: Data, root: Path) -> tuple[Sources, Sources]:
    """Return (train, validation) as named in the manifest."""
    written, parse = data.written, partial(_parse, loaded, root)
    for source in _listed(written.test_path):
        parse(source, "test_path")
    if written.tasks:
        data.leave("the rows come from tasks", "path")
        data.leave("each task names its own rows: tasks.NAME.valid", "validation_path")
        return _tasks(data, parse)
    train = tuple(parse(source, "path") for source in _listed(data.use("path")))
    held_out = _listed(data.use("validation_path")) if written.validation_path else []
    return train, tuple(parse(source, "validation_path") for source in held_out)


def _listed(sources: str | list[str] | None) -> list[str]:
    return [sources] if isinstance(sources, str) else sources or []


def _parse(loaded: LoadedManifest, root: Path, source: str, *key: str | int) -> SourceSpec:
    """Return the source under a key of `training.dataset`; an error is reported at the key."""
    try:
        return parse_source(source, (loaded.path.resolve().parent, root))
    except InputError as error:
        fault = loaded.text.fault(("training", "dataset", *key), error.message, error.hint)
        raise ManifestError(loaded.path, [fault]) from error


def _tasks(data: Data, parse: Callable[..., SourceSpec]) -> tuple[Sources, Sources]:
    train: list[SourceSpec] = []
    held_out: list[SourceSpec] = []
    for name, written in (data.written.tasks or {}).items():
        task = Settings(written)
        source = parse(task.use("train"), "tasks", name, "train")
        train.append(replace(source, weight=task.use("weight")))
        if written.valid:
            held_out.append(parse(task.use("valid"), "tasks", name, "valid"))
        if written.test:
            parse(written.test, "tasks", name, "test")
        data.nest(("tasks", name), task)
    return tuple(train), tuple(held_out)


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
    """Return how databases are shown; their files are in the first of `folders` that contains any."""
    if data.written.schema_prompt is None:
        return None
    keys = Settings(data.written.schema_prompt)
    data.outcomes["schema_prompt",] = applied("a part of its database is shown with each question, by the defaults")
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


_VARIABLE = re.compile(r"\$\w|\$\{|%\w+%")


def parse_source(written: str, folders: Sequence[Path]) -> SourceSpec:
    """Return the source for `path`, `path::split`, `id::split::config` or `id@revision::split::config`.

    A path or pattern that exists in one of `folders` is local. One that looks local (a data file's suffix, a star, ".", "/", a
    drive, a backslash) and does not exist keeps the list of places tried; it never becomes a hub id. A URL of object storage
    is used as it is, the URL of a file as its path. Raises InputError for an unknown form, or a password.
    """
    if (shown := without_passwords(written)) != written:
        told = f'data source "{shown}": a password in a URL, which would be written beside what is made of the rows'
        raise InputError(told, "give it by the storage's own variables or file")
    path, _, rest = written.partition("::")
    split, _, config = rest.partition("::")
    split = split.strip()
    parse_split(split)
    if not path:
        raise InputError(f'data source "{written}" is not of the form path, path::split[slice] or id::split::config')
    if "\0" in path:
        raise InputError(f"data source {path!r} holds a NUL, which no path has", "correct the path")
    name = split.partition("[")[0]
    split = split if name else f"train{split}"
    path = without_file_scheme(path)
    if is_url(path):
        return _at_url(written, SourceSpec("url", path.rstrip("/"), config, split), name)
    plain = path.replace("\\", "/")
    places = [(folder / plain).absolute() for folder in folders]
    found = next((place for place in places if _is_there(place, written)), None)
    if found is not None:
        kind: SourceKind = "folder" if found.is_dir() else "file"
        if kind == "file":
            refuse_parts_of_a_file(written, found, name, config)
        return SourceSpec(kind, str(found), config, split)
    within = [plain if Path(plain).is_absolute() else f"{glob.escape(str(at.absolute()))}/{plain}" for at in folders]
    pattern = next((one for one in within if glob.has_magic(path) and any(True for _ in matching(one))), None)
    if pattern is not None:
        refuse_parts_of_a_file(written, Path(path), name, config)
        return SourceSpec("files", pattern, split=split)
    hub_id, _, revision = path.partition("@")
    looks_local = format_name(path) or path[0] in "./~\\" or "\\" in path or path[1:2] == ":" or glob.has_magic(path)
    if looks_local or hub_id.count("/") > 1:
        tried = tuple(dict.fromkeys(str(place) for place in places))
        return SourceSpec("file", path, config, split, tried=tried)
    return SourceSpec("hub", hub_id, config, split, revision=revision)


def missing(spec: SourceSpec) -> str:
    """Return the message for a source that is not on this machine, with the places tried."""
    variable = "; $ and % are taken as they stand, no variable is put in" if _VARIABLE.search(spec.path) else ""
    return f"{spec.path}: no such file or folder; looked for at: {', '.join(spec.tried)}{variable}"


def _is_there(place: Path, written: str) -> bool:
    """Whether a path exists. Raises InputError for an impossible one, such as a name that is too long."""
    try:
        return place.exists()
    except PermissionError as error:
        raise EnvironmentProblem(f"{place}: cannot be read: {error.strerror}") from error
    except OSError as error:
        raise InputError(f'data source "{shortened(written)}": {error.strerror}', "give another path") from error


def _at_url(written: str, spec: SourceSpec, split: str) -> SourceSpec:
    """Return the source at a URL. Raises InputError without a bucket, and for a split of a pattern as for one of a file."""
    bucket = spec.path.partition("//")[2].partition("/")[0]
    if not bucket or glob.has_magic(bucket):
        raise InputError(f'data source "{written}" names no bucket', "write it as s3://bucket/folder/rows.jsonl")
    if glob.has_magic(spec.path):
        refuse_parts_of_a_file(written, PurePosixPath(spec.path), split, spec.config)
    return spec


def refuse_parts_of_a_file(written: str, file: PurePath, split: str, config: str) -> None:
    """Raise InputError for a configuration of a file, or for a split other than "train" or the one in its name."""
    if config or (split and split_of(split) not in ("train", named_split(file.stem))):
        part = f'configuration "{config}"' if config else f'split "{split}"'
        told = f'data source "{written}": {file.name} is a file, it has no {part}'
        raise InputError(told, "name the file that holds these rows; a part of a file is file::train[:100]")


_SPLIT = re.compile(r"(?P<name>[\w.-]*)(?:\[(?P<start>-?\d{1,18}%?)?:(?P<stop>-?\d{1,18}%?)?\])?")
_WORDS = {
    "train": ("train", "training"),
    "validation": ("validation", "valid", "val", "dev"),
    "test": ("test", "testing", "eval", "evaluation"),
}
_SPLIT_OF = {word: split for split, words in _WORDS.items() for word in words}


@dataclass(frozen=True)
class Split:
    """The name of a split, and its slice as written: "", "100", "-50" or "10%" at each end."""

    name: str
    start: str = ""
    stop: str = ""

    @property
    def rows_needed(self) -> int | None:
        """The number of first rows that decide the slice; None: all rows must be counted."""
        ends = (self.start or "0", self.stop)
        return int(self.stop) if all(end.isdecimal() for end in ends) else None

    def rows(self, total: int) -> range:
        """Return the numbers of the rows among `total`; ends are clipped, as in Python and `datasets`."""
        start, stop = (_row_number(end, total) for end in (self.start, self.stop))
        return range(*slice(start, stop).indices(total))


def parse_split(written: str) -> Split:
    """Return the split for "train", "train[:1000]", "train[10%:20%]" or "train[-50:]". Raises InputError."""
    match = _SPLIT.fullmatch(written.strip())
    if match is None:
        told = f'"{written}" is not a split with a slice'
        raise InputError(told, "write train, train[:1000], train[10%:20%] or train[-50:]")
    shares = [end for end in (match["start"], match["stop"]) if end and end.endswith("%")]
    if above := next((end for end in shares if abs(int(end[:-1])) > 100), ""):
        raise InputError(f'"{written}": {above} is more than all rows', "write a share from 0% to 100%")
    return Split(match["name"] or "train", match["start"] or "", match["stop"] or "")


def split_of(word: str) -> str:
    """Return the split with this name ("dev" is validation); an unknown name is returned unchanged."""
    return _SPLIT_OF.get(word, word)


def named_split(part: str) -> str:
    """Return the split in the name of a file or folder ("sql-train-00000-of-00002"), "" for none."""
    return next((_SPLIT_OF[word] for word in re.split(r"[-._ 0-9]+", part.lower()) if word in _SPLIT_OF), "")


def _row_number(end: str, total: int) -> int | None:
    if not end:
        return None
    if end.endswith("%"):
        return round(int(end[:-1]) * total / 100)  # rounded to the closest row, as in `datasets`
    return int(end)


DATA_SUFFIXES: Mapping[str, str] = {
    ".jsonl": "JSON lines",
    ".ndjson": "JSON lines",
    ".json": "JSON",
    ".csv": "CSV",
    ".tsv": "TSV",
    ".parquet": "Parquet",
    ".arrow": "Arrow",
}
"""Suffixes of data files in lower case, and their formats, which `data/reading.py` reads."""
COMPRESSED_SUFFIXES: Mapping[str, str] = {".gz": "gzip", ".zst": "zstd", ".bz2": "bz2"}
"""Suffixes of compressed files, and the compression."""
_COMPRESSED_INSIDE = frozenset({"Parquet", "Arrow"})


def format_name(name: str | Path) -> str:
    """Return the format of a data file by its name, "" = none: `rows.jsonl.gz` is JSON lines."""
    *_, inner, last = ["", "", *(suffix.lower() for suffix in PurePath(name).suffixes)]
    if last not in COMPRESSED_SUFFIXES:
        return DATA_SUFFIXES.get(last, "")
    found = DATA_SUFFIXES.get(inner, "")
    return "" if found in _COMPRESSED_INSIDE else found


def require_apart(data: DataConfig, place: Path, option: str) -> None:
    """Raise InputError if `place`, given by `option`, is inside a folder of rows: it would be read as rows."""
    for spec in (*data.train, *data.validation):
        if spec.kind == "folder" and is_inside(place, Path(spec.path)):
            raise InputError(f"{place} is inside the data folder {spec.path}", f"give a folder outside of it: {option}")
