"""How a place that rows come from is written -> what it is. Looks at the disk, reads nothing."""

from __future__ import annotations

import glob
import re
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePath, PurePosixPath

from expert_cli.config.data_files import format_name
from expert_cli.config.run_config import SourceKind, SourceSpec
from expert_cli.config.splits import named_split, parse_split, split_of
from expert_cli.errors import EnvironmentProblem, InputError
from expert_cli.utils.files import matching
from expert_cli.utils.object_storage import is_url, without_file_scheme
from expert_cli.utils.redaction import without_passwords
from expert_cli.utils.text import shortened

_VARIABLE = re.compile(r"\$\w|\$\{|%\w+%")
_BRACKETS = re.compile(r"\[[^\]]*\]$")


def parse_source(written: str, folders: Sequence[Path]) -> SourceSpec:
    """Return the source that `path`, `path::split`, `id::split::config` or `id@revision::split::config` names.

    A path that exists in one of `folders` is local, a pattern that fits a file there, too. One that looks local (a data
    file's suffix, a star, ".", "/", a drive, a backslash) and does not exist keeps the list of places tried and never becomes
    a hub id. A URL of object storage is taken as it is; a file's is its path. Raises InputError: no form, a password in it.
    """
    if (shown := without_passwords(written)) != written:
        told = f'data source "{shown}": a password in a URL, which would be written beside what is made of the rows'
        raise InputError(told, "Give it by the storage's own variables or file.")
    path, _, rest = written.partition("::")
    split, _, config = rest.partition("::")
    split = split.strip()
    try:
        parse_split(split)
    except InputError as error:
        raise InputError(f'data source "{written}": {error.message}', error.hint) from error
    if not path:
        raise InputError(f'data source "{written}" is not of the form path, path::split[slice] or id::split::config')
    if "\0" in path:
        raise InputError(f"data source {path!r} holds a NUL, which no path has", "Correct the path.")
    name = split.partition("[")[0]
    split = split if name else f"train{split}"
    path = without_file_scheme(path)
    if is_url(path):
        return _at_url(written, SourceSpec("url", path.rstrip("/"), config, split), name)
    places = [(folder / path.replace("\\", "/")).absolute() for folder in folders]
    found = next((place for place in places if _is_there(place, written)), None)
    if found is not None:
        kind: SourceKind = "folder" if found.is_dir() else "file"
        if kind == "file":
            refuse_parts_of_a_file(written, found, name, config)
        return SourceSpec(kind, str(found), config, split)
    pattern = next(filter(_fits, _patterns(path, folders)), None)
    if pattern is not None:
        refuse_parts_of_a_file(written, Path(path), name, config)
        return SourceSpec("files", pattern, split=split)
    if _BRACKETS.search(path):
        what = _BRACKETS.sub("", path)
        raise InputError(
            f'data source "{written}": no such file', f'for a part of its rows write "{what}::train[:1000]"'
        )
    hub_id, _, revision = path.partition("@")
    looks_local = format_name(path) or path[0] in "./~\\" or "\\" in path or path[1:2] == ":" or glob.has_magic(path)
    if looks_local or hub_id.count("/") > 1:
        tried = tuple(dict.fromkeys(str(place) for place in places))
        return SourceSpec("file", path, config, split, tried=tried)
    if path != hub_id and not revision:
        raise InputError(
            f'data source "{written}": no revision behind "@"', "Name a branch, tag or commit: id@revision."
        )
    return SourceSpec("hub", hub_id, config, split, revision=revision)


def missing(spec: SourceSpec) -> str:
    """Return what is said of a source that is not on this machine, with the places where it was looked for."""
    variable = "; $ and % are taken as they stand, no variable is put in" if _VARIABLE.search(spec.path) else ""
    return f"{spec.path}: no such file or folder; looked for at: {', '.join(spec.tried)}{variable}"


def _is_there(place: Path, written: str) -> bool:
    """Whether a path leads to something. Raises InputError for one that cannot, such as a name that is too long."""
    try:
        return place.exists()
    except PermissionError as error:
        raise EnvironmentProblem(f"{place}: cannot be looked at: {error.strerror}") from error
    except OSError as error:
        raise InputError(f'data source "{shortened(written)}": {error.strerror}', "give another path") from error


def _at_url(written: str, spec: SourceSpec, split: str) -> SourceSpec:
    """The source at a URL. Raises InputError: it names no bucket; files of a pattern have no other split."""
    bucket = spec.path.partition("//")[2].partition("/")[0]
    if not bucket or glob.has_magic(bucket):
        raise InputError(f'data source "{written}" names no bucket', "Write it as s3://bucket/folder/rows.jsonl.")
    if glob.has_magic(spec.path):
        refuse_parts_of_a_file(written, PurePosixPath(spec.path), split, spec.config)
    return spec


def refuse_parts_of_a_file(written: str, file: PurePath, split: str, config: str) -> None:
    """Raise InputError for a part that a file lacks: it is one split, "train" or that of its name; it has slices."""
    if config or (split and split_of(split) not in ("train", named_split(file.stem))):
        part = f'configuration "{config}"' if config else f'split "{split}"'
        raise InputError(
            f'data source "{written}": {file.name} is a file, it has no {part}',
            "Name the file that holds these rows; a part of a file is file::train[:100].",
        )


def _patterns(path: str, folders: Sequence[Path]) -> Iterator[str]:
    """The pattern that a path is in each of the folders; none where it is no pattern."""
    if glob.has_magic(path):
        plain = path.replace("\\", "/")
        yield from (
            plain if Path(plain).is_absolute() else f"{glob.escape(str(at.absolute()))}/{plain}" for at in folders
        )


def _fits(pattern: str) -> bool:
    return next(matching(pattern), None) is not None
