"""Finds the files with the rows of a split, in order, for a path, a pattern, a URL or a hub id: `locate_data`.

`datasets` decides which files belong to a split, by its patterns and the README's configurations. It gets only the list of
names, because `load_dataset_builder` walks through a folder up to 60 times, and cannot walk through a bucket.
"""

from __future__ import annotations

import glob
import os
import posixpath
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path, PurePosixPath
from typing import IO, NoReturn, TypeAlias

import yaml

from expert_cli._compat import default_patterns, files_of_snapshot
from expert_cli.config import data_sources
from expert_cli.config.run_config import DataConfig, SourceSpec
from expert_cli.errors import EnvironmentProblem, ExpertError, InputError
from expert_cli.utils.files import is_file, is_folder, matching
from expert_cli.utils.object_storage import ObjectInfo, StoredFolder, forbidden_by
from expert_cli.utils.reporter import Reporter
from expert_cli.utils.text import first_line

_HUB_TIMEOUT_S = 10.0
_ANOTHER = "give the rows as a local file or folder: --dataset PATH"
_SHARD = re.compile(r"(.*)-(\d{5})-of-(\d{5})(?=[.-])")
_NOT_ROWS = re.compile(r"(^|/)(config|dataset_infos?|dataset_dict|state)\.json$")
_HIDDEN = re.compile(r"(^|/)(\.|__)")
_DATA_LIKE = re.compile(
    r"\.(jsonl~?|ndjson|json5?|csv|tsv|parquet|arrow|ipc|feather|orc|avro|tfrecord|xlsx?|xml|pkl|np[yz]|db|sqlite3?|h5|tar|tgz"
    r"|zip|gz|zst|bz2|xz|7z|rar)(\.[^/]*)?$",
    re.IGNORECASE,
)
_ENDING = re.compile(rf"\.\w+(?:{'|'.join(map(re.escape, data_sources.COMPRESSED_SUFFIXES))})?$")


@dataclass(frozen=True)
class RemoteFile:
    """A data file in object storage, with its version (S3: the ETag) and size when it was found."""

    url: str
    info: ObjectInfo

    def __str__(self) -> str:
        """Return its URL."""
        return self.url

    def open(self, _mode: str) -> IO[bytes]:
        """Open it for reading, as Path.open does. Raises InputError if its version has changed."""
        return StoredFolder(self.url).open(version=self.info.version)


DataFile: TypeAlias = Path | RemoteFile


def content_of(file: DataFile, hashes: Callable[[Path], str]) -> str:
    """Return what identifies a file's content in a store's key: its SHA-256, or the version of a remote file."""
    return f"{file.info.version} {file.info.size}" if isinstance(file, RemoteFile) else hashes(file)


@dataclass(frozen=True)
class Located:
    """A source and the files of its rows. revision: the commit of a hub data set, else ""."""

    spec: SourceSpec
    files: tuple[DataFile, ...]
    revision: str = ""

    def __str__(self) -> str:
        """Return the source's name in messages."""
        return f"{self.spec}" + (f" [{self.spec.split}]" if self.spec.split != "train" else "")


@dataclass(frozen=True)
class LocatedData:
    """All sources of a run, for training and for validation."""

    train: tuple[Located, ...]
    validation: tuple[Located, ...]

    def files(self) -> list[DataFile]:
        """Return all files in order, without repeats."""
        return list(dict.fromkeys(file for source in self.train + self.validation for file in source.files))


def locate_data(data: DataConfig, reporter: Reporter) -> LocatedData:
    """Return the files of all sources, downloaded from the hub if necessary. Raises InputError, EnvironmentProblem."""

    def locate(spec: SourceSpec) -> Located:
        if spec.kind == "hub":
            return _hub(spec, reporter, offline=data.offline)
        if spec.kind == "url":
            return Located(spec, _remote(spec, reporter, offline=data.offline))
        if spec.tried:
            raise InputError(data_sources.missing(spec), _ANOTHER)
        path, names = Path(spec.path), [spec.path]
        if spec.kind == "files":
            names = _fitting([file.as_posix() for file in matching(spec.path) if not is_folder(file)], spec, reporter)
        elif spec.kind == "folder":
            names = _split_of_folder(path, _names_below(path), spec, reporter)
        found = tuple(path / name for name in names)  # "/a" / "/b" is "/b"
        if odd := next((file for file in found if not is_file(file)), None):  # opening a pipe would block
            raise InputError(f"{odd}: not a file that can be read", "remove it, or write the rows to a file first")
        return Located(spec, found)

    try:
        return LocatedData(tuple(map(locate, data.train)), tuple(map(locate, data.validation)))
    except OSError as error:
        raise EnvironmentProblem(f"{error.filename}: cannot be read: {error.strerror}") from error


def _names_below(folder: Path) -> list[str]:
    """Return the names of all files below a folder, without hidden folders; each folder once, as links may form a circle."""

    def stop(error: OSError) -> NoReturn:
        raise error

    names, seen = list[str](), set[str]()
    for where, folders, files in os.walk(folder, onerror=stop, followlinks=True):
        is_new = (real := os.path.realpath(where)) not in seen
        seen.add(real)
        folders[:] = sorted(name for name in folders if is_new and not name.startswith(".") and name != "lost+found")
        names += [Path(where, name).relative_to(folder).as_posix() for name in files if is_new]
    return sorted(names)


def _hub(spec: SourceSpec, reporter: Reporter, *, offline: bool) -> Located:
    """Return the files of a hub data set in the hub client's cache. offline: use only the cache."""
    from huggingface_hub import HfApi, snapshot_download
    from huggingface_hub.errors import HFValidationError

    revision = spec.revision or None  # if None, the client records the branch's commit for later offline runs
    fetch = partial(snapshot_download, spec.path, repo_type="dataset", revision=revision)
    try:
        if forbidden := forbidden_by(asked=offline):
            folder = Path(fetch(local_files_only=True, allow_patterns=[]))
            chosen = _split_of_folder(folder, files_of_snapshot(folder) or _names_below(folder), spec, reporter)
            fetch(local_files_only=True, allow_patterns=list(map(glob.escape, chosen)))  # raises if a file is missing
        else:
            # Ask the hub first: snapshot_download silently uses the cache if the hub does not answer.
            info = HfApi().dataset_info(spec.path, revision=revision, timeout=_HUB_TIMEOUT_S)
            folder = Path(fetch(allow_patterns=["README.md"]))
            names = [entry.rfilename for entry in info.siblings or ()]
            chosen = _split_of_folder(folder, names, spec, reporter)
            fetch(allow_patterns=list(map(glob.escape, chosen)))
    except ExpertError:
        raise
    except HFValidationError as error:
        raise InputError(f'"{spec.path}" is neither a file nor the id of a hub data set', _ANOTHER) from error
    except Exception as error:  # the client's HTTP library, and thus its errors, depend on the version
        absent = f"the network may not be used ({forbidden}), and not all of it is in the cache"
        why = absent if forbidden else first_line(error)
        hint = _ANOTHER if forbidden else f"check the name, the network and your access (hf auth login), or {_ANOTHER}"
        raise EnvironmentProblem(f'hub data set "{spec}": {why}', hint) from error
    return Located(spec, tuple(map(folder.joinpath, chosen)), folder.name)


def _remote(spec: SourceSpec, reporter: Reporter, *, offline: bool) -> tuple[RemoteFile, ...]:
    """Return the object at a URL, the files of the split below it, or those that match its pattern."""
    if forbidden := forbidden_by(asked=offline):
        raise EnvironmentProblem(f"{spec.path}: the network may not be used ({forbidden})", "copy the rows here")
    url, *pattern = re.split(r"/(?=[^/]*[*?[])", spec.path, maxsplit=1)
    folder = StoredFolder(url)
    if not pattern and (info := folder.info()):
        split = data_sources.parse_split(spec.split).name
        data_sources.refuse_parts_of_a_file(str(spec), PurePosixPath(spec.path), split, spec.config)
        found, names = {"": info}, [""]
    elif not (found := folder.list()):
        raise InputError(f"{folder}: no object has this name or begins with it", "correct the URL")
    elif pattern:
        names = _fitting(_matching(pattern[0], list(found)), spec, reporter)
    else:
        names = _split_of_folder(folder, list(found), spec, reporter)
    if not all(found[name].version for name in names):
        raise InputError(f"{folder}: its storage reports no file versions", "download it, and name the local file")
    return tuple(RemoteFile(folder.url_of(name), found[name]) for name in names)


def _matching(pattern: str, names: Iterable[str]) -> list[str]:
    """Return the names that match a pattern, in which "*" does not match "/", without hidden ones."""
    from fsspec.utils import glob_translate

    fits = re.compile(glob_translate(pattern)).fullmatch
    return [name for name in names if fits(name) and not _HIDDEN.search(name)]


def _fitting(names: Sequence[str], spec: SourceSpec, reporter: Reporter) -> list[str]:
    """Return the data files among the names that match a user's pattern; the others are reported."""
    files = sorted(filter(_holds_rows, names))
    if not files:
        raise InputError(f"{spec.path}: no file of rows fits it", f"rows: {', '.join(data_sources.DATA_SUFFIXES)}")
    _name_unread(spec.path, set(names).difference(files), reporter)
    _require_one_format(files, spec.path)
    return files


def _split_of_folder(
    folder: Path | StoredFolder, names: Sequence[str], spec: SourceSpec, reporter: Reporter
) -> list[str]:
    """Return the names of the files of a source's split, in reading order; unused data files are reported."""
    split, where = data_sources.parse_split(spec.split).name, spec.path if spec.kind == "hub" else str(folder)
    try:
        splits = _splits(names, folder, spec.config)
    except (ValueError, LookupError, TypeError, AttributeError, yaml.YAMLError) as error:
        hint = "correct it, name another configuration (id::split::config), or one file of rows"
        raise InputError(f"{where}: the README's metadata: {first_line(error)}", hint) from error
    there = set(names)
    unread = there.difference(*splits.values())
    _name_unread(where, [name for name in unread if _DATA_LIKE.search(name) and not _NOT_ROWS.search(name)], reporter)
    alike = (files for name, files in splits.items() if data_sources.split_of(name) == data_sources.split_of(split))
    files = splits.get(split) or next(alike, [])
    if absent := next((name for name in files if name not in there or not _holds_rows(name)), ""):
        told = f'the README says that the split "{split}" is in {absent[:80]}, which does not exist or is not a file of rows'
        raise InputError(f"{where}: {told}", "download the complete data set, or name one file of rows")
    if not files:
        others = ", ".join(f"{name} ({len(files)})" for name, files in splits.items() if files) or "no data file"
        told = f'{where}: no file has the split "{split}"; there is: {others}'
        raise InputError(told, "name a split that is there (PATH::split), or one file of rows")
    _require_all_shards(files, where)
    _require_one_format(files, where)
    return files


def _splits(names: Sequence[str], folder: Path | StoredFolder, config: str) -> dict[str, list[str]]:
    """Return the files of each split by the rules of `datasets`; files that the README names in full need not exist."""
    from datasets.data_files import sanitize_patterns
    from datasets.utils.metadata import MetadataConfigs
    from huggingface_hub.repocard import REGEX_YAML_BLOCK

    readme = b""
    if "README.md" in names:
        readme = (folder / "README.md").read_bytes() if isinstance(folder, Path) else folder.read("README.md")
    block = REGEX_YAML_BLOCK.search(readme.decode(errors="replace"))
    metadata = yaml.safe_load(block[2]) if block else None
    configs = MetadataConfigs.from_dataset_card_data(metadata if isinstance(metadata, dict) else {})
    name = config or configs.get_default_config_name()
    if name not in configs and (configs or config):
        what = f'there is no configuration "{config}"' if config else "several configurations and no default one"
        raise ValueError(f"{what}; there is: {', '.join([*configs][:20]) or 'none'}")
    chosen = configs[name] if configs else {}

    def resolve(pattern: str) -> list[str]:
        inside = posixpath.normpath(posixpath.join(chosen.get("data_dir") or "", pattern))
        if not glob.has_magic(inside):
            return [inside]
        return list(filter(_holds_rows, _matching(inside, names)))

    written = chosen.get("data_files")
    patterns = default_patterns(resolve) if written is None else sanitize_patterns(written)
    return {split: list(dict.fromkeys(chain(*map(resolve, some)))) for split, some in patterns.items()}


def _holds_rows(name: str) -> bool:
    return data_sources.format_name(name) != "" and not _NOT_ROWS.search(name)


def _name_unread(where: str, unread: Iterable[str], reporter: Reporter) -> None:
    if names := sorted(unread):
        more = f" and {len(names) - 5} more" if len(names) > 5 else ""
        reporter.warning(f"{where}: not read: {', '.join(names[:5])}{more}")


def _require_one_format(files: Sequence[str], where: str) -> None:
    formats = sorted({ending for name in files for ending in _ENDING.findall(name.lower())})
    if len(formats) > 1:
        told = f"files of {len(formats)} formats ({', '.join(formats)}), which may contain the same rows"
        raise InputError(f"{where}: {told}", "name the file, or a folder with one format")


def _require_all_shards(names: Sequence[str], where: str) -> None:
    """Raise InputError if one of "-00001-of-00003" is missing: an interrupted download would train on only part of the rows."""
    found = Counter((match[1], int(match[3])) for match in filter(None, map(_SHARD.match, names)))
    for (stem, total), count in found.items():
        if count < total:
            raise InputError(f"{where}: {stem} has {count} of {total} parts", "download the data set again")
