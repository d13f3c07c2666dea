"""A path, a pattern, a URL or a hub id goes in, the files that hold the rows of a split come out, in order: `locate_data`.

Which files of a folder a split has is decided by `datasets`: its patterns, and the configurations of the README. They are
held against the names alone, of a folder, a repository or a bucket alike: `load_dataset_builder` walks through a folder up to
60 times, reads none in a bucket, and follows patterns of a README to any place of this machine.
"""

from __future__ import annotations

import glob
import os
import posixpath
import re
import stat
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath
from typing import TypeAlias

from expert_cli._compat import default_patterns, hub_bar
from expert_cli.config.data_files import COMPRESSED_SUFFIXES, DATA_SUFFIXES, PLAIN_TEXT, format_name
from expert_cli.config.run_config import DataConfig, SourceSpec
from expert_cli.config.source_names import refuse_parts_of_a_file
from expert_cli.config.splits import parse_split, split_of
from expert_cli.errors import EnvironmentProblem, ExpertError, InputError
from expert_cli.utils.disk_errors import disk_problem
from expert_cli.utils.files import parse_json, stamp
from expert_cli.utils.filesystem import is_folder, matching
from expert_cli.utils.object_storage import ObjectInfo, StoredFolder
from expert_cli.utils.offline import forbidden_by
from expert_cli.utils.paths import is_inside
from expert_cli.utils.reporter import Reporter
from expert_cli.utils.text import first_line

_HUB_TIMEOUT_S = 10.0
_NOT_ROWS = {"config.json", "dataset_info.json", "dataset_infos.json", "dataset_dict.json", "state.json"}
_DATA_LIKE = """
    .xlsx .xls .ods .feather .orc .avro .pkl .npy .npz .db .sqlite .sqlite3 .h5 .hdf5 .msgpack .tar .tgz .zip .lz4 .7z .rar
    .jsonlines .jsonl~ .json5 .parq .pq .ipc .tfrecord .lance .xml .dat"""
_UNREAD = frozenset(_DATA_LIKE.split())
_SHARD = re.compile(r"(.*)-(\d{5})-of-(\d{5})(?=[.-])")
_NO_FILES = {
    stat.S_IFIFO: "a named pipe",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFSOCK: "a socket",
}


@dataclass(frozen=True)
class RemoteFile:
    """A data file in object storage, of the version (S3: the ETag) and with the bytes that it had when it was found."""

    url: str
    version: str
    size: int

    def __str__(self) -> str:
        """Return its URL."""
        return self.url

    @property
    def name(self) -> str:
        """The last part of its URL."""
        return PurePosixPath(self.url).name

    @property
    def suffix(self) -> str:
        """The end of its name, with the dot."""
        return PurePosixPath(self.url).suffix


DataFile: TypeAlias = Path | RemoteFile


def size_of(file: DataFile) -> int:
    """Return the bytes of a data file. Raises OSError."""
    return file.stat().st_size if isinstance(file, Path) else file.size


def stamp_of(file: DataFile, *, fresh: bool = False) -> list[int] | str | None:
    """Return what changes with a file's bytes, None if it is gone. fresh: ask storage anew, not as the file was found."""
    if isinstance(file, RemoteFile):
        info = StoredFolder(file.url).info() if fresh else ObjectInfo(file.size, file.version)
        return f"{info.version} {info.size}" if info else None
    return stamp(file) if file.exists() else None


def content_of(file: DataFile, hashes: Callable[[Path], str]) -> str:
    """Return what a store's key says of a file: its SHA-256 by `hashes`; of a remote one what storage calls its version.

    Raises EnvironmentProblem: a file of the hub client's cache is not what its blob is named by.
    """
    if isinstance(file, RemoteFile):
        return str(stamp_of(file))
    sha256, blob = hashes(file), file.resolve()
    if blob.parent.name == "blobs" and re.fullmatch(r"[0-9a-f]{64}", blob.name) and blob.name != sha256:
        told = f"{file}: damaged in the hub client's cache, its content is not that of {blob.name[:12]}"
        raise EnvironmentProblem(told, f"Delete {blob} and download the data set again.")
    return sha256


@dataclass(frozen=True)
class Located:
    """One source and the files its rows are in; `revision` is the commit of a hub data set, else ""."""

    spec: SourceSpec
    files: tuple[DataFile, ...]
    revision: str = ""

    def __str__(self) -> str:
        """Return the source as messages name it."""
        return f"{self.spec}" + (f" [{self.spec.split}]" if self.spec.split != "train" else "")


@dataclass(frozen=True)
class LocatedData:
    """All sources of a run, those that train and those that evaluate."""

    train: tuple[Located, ...]
    validation: tuple[Located, ...]

    def files(self) -> list[DataFile]:
        """Return the files that are read, in order, each once."""
        return list(dict.fromkeys(file for source in self.train + self.validation for file in source.files))


def locate_data(data: DataConfig, reporter: Reporter, *, alternatives: Sequence[Path] = ()) -> LocatedData:
    """Return the files of all sources; hub data sets are downloaded where the network is allowed. Reads no row.

    `alternatives`: local data files that an error about an unreachable hub offers. Raises InputError, EnvironmentProblem.
    """

    def locate(spec: SourceSpec) -> Located:
        if spec.kind == "hub":
            return _hub(spec, reporter, offline=data.offline, alternatives=alternatives)
        if spec.kind == "url":
            return Located(spec, _remote(spec, reporter, offline=data.offline))
        if spec.tried:
            told = f"{spec.path}: no such file or folder; looked for at: {', '.join(spec.tried)}"
            raise InputError(told, _local_hint(alternatives, "Correct the path"))
        path = Path(spec.path)
        if spec.kind == "files":
            found = sorted(file.as_posix() for file in matching(spec.path) if not is_folder(file))
            return Located(spec, _regular(map(Path, _fitting(found, spec, reporter))))
        if spec.kind == "file":
            return Located(spec, _regular([path]))
        names = _split_of_folder(path, _names_below(path), spec, reporter)
        return Located(spec, _regular(map(path.joinpath, names)))

    return LocatedData(tuple(map(locate, data.train)), tuple(map(locate, data.validation)))


def require_apart(data: DataConfig, place: Path, option: str) -> None:
    """Raise InputError where a place, which `option` names, lies in a folder of rows: it would be read as rows."""
    for spec in (*data.train, *data.validation):
        if spec.kind == "folder" and is_inside(place, Path(spec.path)):
            raise InputError(
                f"{place} lies in the data folder {spec.path}: what is written there would be read as rows",
                f"give a folder outside of it: {option}",
            )


def _local_hint(alternatives: Sequence[Path], otherwise: str = "") -> str:
    there = f" On this machine: {', '.join(map(str, alternatives))}." if alternatives else ""
    give = f"{otherwise}, or give" if otherwise else "Give"
    return f"{give} the rows as a local file or folder: --dataset PATH.{there}"


def _regular(files: Iterable[Path]) -> tuple[Path, ...]:
    """The files; a pipe would be waited for, a device be read for ever."""
    found = tuple(files)
    for path in found:
        try:
            mode = path.stat().st_mode
        except OSError as error:
            what = "a link that leads nowhere" if path.is_symlink() else "cannot be looked at"
            raise InputError(f"{path}: {what}: {error.strerror}", "Mend or remove it.") from error
        if not stat.S_ISREG(mode):
            what = _NO_FILES.get(stat.S_IFMT(mode), "a folder")
            raise InputError(f"{path}: {what}, not a file of rows", "Write the rows to a file first.")
    return found


def _names_below(folder: Path) -> list[str]:
    """The names of all files below a folder, hidden folders left out; each folder once, as links may make a circle."""

    def stop(error: OSError) -> None:
        raise EnvironmentProblem(f"{error.filename}: cannot be read: {error.strerror}") from error

    names: list[str] = []
    seen: set[str] = set()
    for where, folders, files in os.walk(folder, onerror=stop, followlinks=True):
        is_new = (real := os.path.realpath(where)) not in seen
        seen.add(real)
        folders[:] = sorted(name for name in folders if is_new and not name.startswith(".") and name != "lost+found")
        names += [Path(where, name).relative_to(folder).as_posix() for name in files if is_new]
    return sorted(names)


def _hub(spec: SourceSpec, reporter: Reporter, *, offline: bool, alternatives: Sequence[Path]) -> Located:
    """The files of a hub data set, in the hub client's cache, which serves alone where the hub may not or cannot be asked."""
    from huggingface_hub.errors import HFValidationError
    from huggingface_hub.utils import validate_repo_id  # type: ignore[attr-defined]

    try:
        validate_repo_id(spec.path)
    except HFValidationError as error:
        raise InputError(f'"{spec.path}" is neither a file nor the id of a hub data set', _local_hint(())) from error
    if forbidden := forbidden_by(asked=offline):
        return _snapshot(spec, reporter, f"the network may not be used ({forbidden})", alternatives)
    try:
        return _snapshot(spec, reporter)
    except ExpertError:
        raise
    except Exception as error:  # noqa: BLE001 - the client's transport library, and so its errors, differ by version
        why = _reason(error)
    located = _snapshot(spec, reporter, why, alternatives)
    reporter.warning(f"{spec.path}: {why}; using commit {located.revision[:12]} from the cache")
    return located


def _snapshot(spec: SourceSpec, reporter: Reporter, offline: str = "", alternatives: Sequence[Path] = ()) -> Located:
    """Download the README and then the split's files alone; offline: why they have to be in the cache already."""
    from huggingface_hub import HfApi, constants, snapshot_download
    from huggingface_hub.errors import LocalEntryNotFoundError

    def problem(what: str) -> EnvironmentProblem:
        name = f"{spec.path}@{spec.revision}" if spec.revision else spec.path
        return EnvironmentProblem(f'hub data set "{name}": {offline}, and {what}', _local_hint(alternatives))

    revision = spec.revision or None  # no commit: the client notes that of the branch for later runs without a network
    with reporter.progress(f"Fetching {spec.path} from the Hugging Face hub", None, "B") as bar:
        settings = {"repo_type": "dataset", "revision": revision, "local_files_only": bool(offline)}
        fetch = partial(snapshot_download, spec.path, **settings, tqdm_class=hub_bar(bar.update))
        if not offline:
            # Asked first: snapshot_download takes the cache without a word where the hub gives no answer.
            info = HfApi().dataset_info(spec.path, revision=revision, timeout=_HUB_TIMEOUT_S)
            names = [entry.rfilename for entry in info.siblings or ()]
        try:
            folder = Path(fetch(allow_patterns=[] if offline else ["README.md"]))
        except LocalEntryNotFoundError as error:
            raise problem(f"it is not in the cache {constants.HF_HUB_CACHE}") from error
        if offline:
            names = _names_in_cache(folder)
        chosen = _split_of_folder(folder, names, spec, reporter)
        if not offline:
            fetch(allow_patterns=list(map(glob.escape, chosen)))
    if absent := [name for name in chosen if not (folder / name).is_file()]:
        raise problem(f"{len(absent)} of {len(chosen)} files are not in the cache: {', '.join(absent[:5])}")
    return Located(spec, _regular(map(folder.joinpath, chosen)), folder.name)


def _names_in_cache(folder: Path) -> list[str]:
    """The names of a snapshot's files, with those that were not downloaded, which newer clients note."""
    listed: list[str] = []
    with suppress(OSError, ValueError, KeyError):
        listed = list(parse_json((folder.parents[1] / "trees" / f"{folder.name}.json").read_bytes())["files"])
    return sorted({*listed, *_names_below(folder)})


def _reason(error: Exception) -> str:
    """Why the hub gave nothing, in a line; the client's own texts run over many and name request ids."""
    from huggingface_hub.errors import GatedRepoError, HfHubHTTPError, RepositoryNotFoundError, RevisionNotFoundError

    if isinstance(error, GatedRepoError):
        return "access has to be asked for on its page (hf auth login)"
    if isinstance(error, RepositoryNotFoundError):
        return "the hub has no such data set, or it is private (hf auth login)"
    if isinstance(error, RevisionNotFoundError):
        return "the hub has no such revision of it"
    if isinstance(error, HfHubHTTPError):
        return f"the hub answered {error.response.status_code}"
    if problem := disk_problem(error, "the hub client's cache cannot be written"):
        return problem.message
    return f"the hub cannot be reached ({type(error).__name__})"


def _remote(spec: SourceSpec, reporter: Reporter, *, offline: bool) -> tuple[RemoteFile, ...]:
    """The object at a URL, those of a split below it, or those that it fits as a pattern."""
    if forbidden := forbidden_by(asked=offline):
        told = f"{spec.path}: the network may not be used ({forbidden})"
        raise EnvironmentProblem(told, "Copy the rows to this machine.")
    parts = spec.path.split("/")
    plain = next((number for number, part in enumerate(parts) if glob.has_magic(part)), len(parts))
    folder = StoredFolder("/".join(parts[:plain]))
    if not parts[plain:] and (info := folder.info()):
        refuse_parts_of_a_file(str(spec), PurePosixPath(spec.path), parse_split(spec.split).name, spec.config)
        found, names = {"": info}, [""]
    elif not (found := folder.list()):
        raise InputError(f"{folder}: no object has this name, and none lies below it", "Correct the URL.")
    elif parts[plain:]:
        names = _fitting(
            _matching("/".join(parts[plain:]), [name for name in found if not _is_hidden(name)]), spec, reporter
        )
    else:
        names = _split_of_folder(folder, list(found), spec, reporter)
    if not all(found[name].version for name in names):
        told = f"{folder}: its storage does not tell by what its content goes, so that a store of it could not be known again"
        raise InputError(told, "Fetch it, and name the local file.")
    return tuple(RemoteFile(folder.url_of(name), found[name].version, found[name].size) for name in names)


def _fitting(names: Sequence[str], spec: SourceSpec, reporter: Reporter) -> list[str]:
    """Those of the files that a user's pattern fits that hold rows."""
    files = _of_one_format(list(filter(_holds_rows, names)), spec.path)
    if not files:
        told = f"{spec.path}: no file of rows fits this pattern"
        raise InputError(told, f"Rows are in files of {', '.join(DATA_SUFFIXES)}.")
    _name_unread(spec.path, [name for name in names if name not in files], reporter)
    return files


def _split_of_folder(
    folder: Path | StoredFolder, names: Sequence[str], spec: SourceSpec, reporter: Reporter
) -> list[str]:
    """The names of the files that hold the split of a source, in reading order; data-like files of no split are told."""
    import yaml

    split, where = parse_split(spec.split).name, spec.path if spec.kind == "hub" else str(folder)

    def read(name: str) -> bytes:
        try:
            return (folder / name).read_bytes() if isinstance(folder, Path) else folder.read(name)
        except OSError as error:
            raise EnvironmentProblem(f"{folder / name}: cannot be read: {error.strerror}") from error

    if {"dataset_dict.json", "state.json"} & set(names):
        return _saved_files(where, names, read, spec.config, split)
    try:
        readme = read("README.md").decode(errors="replace") if "README.md" in names else ""
        splits = _splits(names, readme, spec.config)
    except (ValueError, TypeError, RecursionError, yaml.YAMLError) as error:
        told = f"{where}: the README's metadata: {first_line(error)}"
        raise InputError(
            told, "Correct it, name another configuration (id::split::config), or one file of rows."
        ) from error
    taken = {name for files in splits.values() for name in files}
    _name_unread(where, [name for name in names if name not in taken and _looks_like_rows(name)], reporter)
    files = splits.get(_named(split, splits), [])
    if absent := next((name for name in files if name not in names), ""):
        told = f'{where}: the README says that the split "{split}" is in {absent[:80]}, which is not there'
        raise InputError(told, "Get the whole data set, or name one file of rows.")
    if not files:
        there = ", ".join(f"{name} ({len(files)})" for name, files in splits.items() if files) or "no data file"
        raise InputError(
            f'{where}: no file holds the split "{split}"; there is: {there}',
            f"Name a split that is there (PATH::split), or one file ({', '.join(DATA_SUFFIXES)}).",
        )
    _refuse_missing_shards(files, where)
    return _of_one_format(files, where)


def _splits(names: Sequence[str], readme: str, config: str) -> dict[str, list[str]]:
    """The files of each split, as `datasets` finds them; those that the README names in full need not be there.

    Raises ValueError, TypeError, yaml.YAMLError: why the README cannot be followed.
    """
    import yaml
    from datasets.data_files import sanitize_patterns
    from datasets.utils.metadata import MetadataConfigs
    from huggingface_hub.repocard import REGEX_YAML_BLOCK

    block = REGEX_YAML_BLOCK.search(readme)
    metadata = yaml.safe_load(block[2]) if block else None
    configs = MetadataConfigs.from_dataset_card_data(metadata if isinstance(metadata, dict) else {})
    name = config or configs.get_default_config_name()
    if name not in configs and (configs or config):
        what = f'there is no configuration "{config}"' if config else "several configurations and no default one"
        raise ValueError(f"{what}; there is: {', '.join([*configs][:20]) or 'none'}")
    chosen = configs[name] if configs else {}
    data = [one for one in names if _holds_rows(one) and not _is_hidden(one)]

    def resolve(pattern: str) -> list[str]:
        inside = posixpath.normpath(posixpath.join(chosen.get("data_dir") or "", pattern))
        return _matching(inside, data) if glob.has_magic(inside) else [inside]

    written = chosen.get("data_files")
    patterns = default_patterns(resolve) if written is None else sanitize_patterns(written)
    return {
        split: list(dict.fromkeys(name for pattern in some for name in resolve(pattern)))
        for split, some in patterns.items()
    }


def _saved_files(
    where: str, names: Collection[str], read: Callable[[str], bytes], config: str, split: str
) -> list[str]:
    """The Arrow files of a split of what `save_to_disk` wrote, in its own order; one `Dataset` is all "train"."""
    again = "Save the data set again."
    inside = ""
    try:
        if "dataset_dict.json" in names:
            splits = parse_json(read("dataset_dict.json"))["splits"]
            inside = f"{_named(split, splits)}/"
        state = parse_json(read(f"{inside}state.json")) if inside != "/" else {"_split": splits}
        files = [inside + str(PurePosixPath(entry["filename"])) for entry in state.get("_data_files", ())]
        is_choice, its = state.get("_indices_data_files"), state.get("_split")
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{where}: not written by save_to_disk ({first_line(error)})", again) from error
    if config or inside == "/" or (not inside and split_of(split) not in ("train", split_of(str(its)))):
        told = f'no configuration "{config}"' if config else f'no split "{split}"'
        raise InputError(f"{where}: there is {told}: save_to_disk wrote this folder; there is: {its}")
    if is_choice:
        raise InputError(f"{where}: a choice of rows by numbers, which is not read", again)
    if missing := next((file for file in files if file not in names), None):
        raise InputError(f"{where}: {missing} is listed in its state.json, but it is not there", again)
    return files


def _named(split: str, there: Collection[str]) -> str:
    """The split of those that are there that a name stands for ("dev" for "validation"); "" = none."""
    return split if split in there else next((name for name in there if split_of(name) == split_of(split)), "")


def _matching(pattern: str, names: Sequence[str]) -> list[str]:
    """The names that a pattern fits: "*" stays in a folder, "**" does not. Raises ValueError: "**" beside other signs."""
    from fsspec.utils import glob_translate

    return list(filter(re.compile(glob_translate(pattern)).fullmatch, names))


def _holds_rows(name: str) -> bool:
    return format_name(name) != "" and PurePosixPath(name).name not in _NOT_ROWS


def _is_hidden(name: str) -> bool:
    return any(part.startswith((".", "__")) for part in name.split("/"))


def _looks_like_rows(name: str) -> bool:
    path = PurePosixPath(name)
    suffixes = {suffix.lower() for suffix in path.suffixes}
    known = not suffixes.isdisjoint({*DATA_SUFFIXES, *COMPRESSED_SUFFIXES, *_UNREAD})
    return known and path.name not in _NOT_ROWS and format_name(name) != PLAIN_TEXT


def _name_unread(where: str, names: Sequence[str], reporter: Reporter) -> None:
    if names:
        more = f" and {len(names) - 5} more" if len(names) > 5 else ""
        reporter.warning(f"{where}: not read: {', '.join(names[:5])}{more}")


def _of_one_format(names: Sequence[str], where: str) -> list[str]:
    """The same files; texts beside files of rows are words about these, and left out. Two formats may hold the same rows."""
    files = [name for name in names if format_name(name) != PLAIN_TEXT] or list(names)
    if unknown := next((name for name in files if not _holds_rows(name)), ""):
        raise InputError(
            f"{where}: {unknown} belongs to these rows, and its format is not read", "Unpack or convert it."
        )
    formats = sorted(
        {"".join(PurePosixPath(name.lower()).suffixes[-2 if _is_packed(name) else -1 :]) for name in files}
    )
    if len(formats) > 1:
        raise InputError(
            f"{where}: files of {len(formats)} formats side by side ({', '.join(formats)}); they may hold the same rows",
            "Name the file, or a folder with one format.",
        )
    return files


def _is_packed(name: str) -> bool:
    return PurePosixPath(name).suffix.lower() in COMPRESSED_SUFFIXES


def _refuse_missing_shards(names: Sequence[str], where: str) -> None:
    """A set numbered "-00001-of-00003" must be whole: an interrupted download would train on part of the rows."""
    sets: dict[tuple[str, int], set[int]] = {}
    for match in filter(None, map(_SHARD.match, names)):
        sets.setdefault((match[1], int(match[3])), set()).add(int(match[2]))
    for (stem, total), numbers in sets.items():
        if len(numbers) < total:
            missing = min(set(range(total)) - numbers)
            told = f"{where}: {stem} has {len(numbers)} of {total} parts; number {missing:05d} is missing"
            raise InputError(told, "Download the data set again.")
