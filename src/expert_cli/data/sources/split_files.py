"""Which files of a folder or a hub repository hold a split: decided from their names and the README's `configs`.

The rules are those of `datasets`, kept to train, validation and test: the README's patterns; else folders named as splits;
else file names with a split's name in them; else every file is train. What looks like rows and is in no split is named,
with the reason.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import TypeVar

from expert_cli.config.data_files import COMPRESSED_SUFFIXES, DATA_SUFFIXES, PLAIN_TEXT, format_name
from expert_cli.config.splits import named_split, split_of
from expert_cli.data.formats.registry import PACKED
from expert_cli.data.places import Place
from expert_cli.data.sources.dataset_card import CardConfig
from expert_cli.data.sources.globs import fitting, is_pattern
from expert_cli.errors import InputError
from expert_cli.utils.reporter import Reporter

_NOT_ROWS = {"config.json", "dataset_info.json", "dataset_infos.json", "dataset_dict.json", "state.json"}
_UNREAD_FORMATS = frozenset({*PACKED, *COMPRESSED_SUFFIXES}) | frozenset(
    {".xlsx", ".xls", ".ods", ".feather", ".orc", ".avro", ".pkl", ".npy", ".npz", ".db", ".sqlite", ".sqlite3"}
    | {".h5", ".hdf5", ".msgpack", ".tar", ".tgz", ".7z", ".rar", ".jsonlines", ".jsonl~", ".json5", ".parq", ".pq"}
    | {".ipc", ".tfrecord", ".lance", ".xml", ".dat"}
)
_SHARD = re.compile(r"-(\d{5})-of-(\d{5})(?=[.-])")


Name = TypeVar("Name", str, Path)


@dataclass(frozen=True)
class Selection:
    """The files of a split (relative, "/" between parts) in reading order; `unread`: what looks like rows, and why not read."""

    files: list[str]
    unread: list[str] = field(default_factory=list)

    def remark(self) -> str:
        """Return what is not read as a line, "" if there is nothing."""
        more = f" and {len(self.unread) - 5} more" if len(self.unread) > 5 else ""
        return f"not read: {', '.join(self.unread[:5])}{more}" if self.unread else ""

    def files_in(self, folder: Place, where: str, reporter: Reporter) -> list[Place]:
        """Return the paths of the files in a folder, and warn of what is not read."""
        if remark := self.remark():
            reporter.warning(f"{where}: {remark}")
        return [folder / name for name in self.files]


def untold(names: Iterable[str]) -> list[str]:
    """Return the files whose names say neither that they hold rows nor that these are not read."""
    shown = [name for name in names if not _is_hidden(name)]
    rows = set(without_notes(list(filter(_holds_rows, shown))))
    return [
        name for name in shown if not (name in rows or _why_unread(name)) and PurePosixPath(name).name not in _NOT_ROWS
    ]


def select_files(
    names: Iterable[str],
    configs: Sequence[CardConfig],
    config: str,
    split: str,
    where: str,
    passed_over: Sequence[str] = (),
) -> Selection:
    """Return the files that hold `split`.

    `configs` are the README's (none without one), `config` is the name of one ("" = the default one). passed_over: what else
    is not read, and why. Raises InputError: no such configuration or split, a packed file, two formats side by side, a shard
    of a numbered set is missing.
    """
    names = sorted(names)
    data = [name for name in names if _holds_rows(name) and not _is_hidden(name)]
    data = without_notes(data) if not configs else data
    unread = [f"{name} ({reason})" for name in names if (reason := _why_unread(name))]
    unfit: dict[str, list[str]] = {}
    if configs:
        by_split, unfit = _configured(names, data, _chosen_config(configs, config, where), where)
    elif config:
        raise InputError(
            f'{where}: there is no configuration "{config}", its README names none', 'Leave "::config" out.'
        )
    else:
        by_split = _by_name(data)
        taken = {name for files in by_split.values() for name in files}
        unread += [f"{name} (its name has no split)" for name in data if name not in taken]
    split = split_of(split) if split not in by_split else split
    _refuse_absent(unfit.get(split, []), split, where)
    unread += [f"{pattern[:80]} (no file fits this pattern of the README)" for pattern in unfit.get(split, [])]
    selection = Selection(by_split.get(split, []), [*unread, *passed_over])
    if not selection.files:
        there = ", ".join(f"{name} ({len(files)})" for name, files in by_split.items() if files) or "no data file"
        raise InputError(
            "; ".join(
                filter(None, [f'{where}: no file holds the split "{split}"; there is: {there}', selection.remark()])
            ),
            f"Name a split that is there (PATH::split), or one file ({', '.join(DATA_SUFFIXES)}).",
        )
    _refuse_packed(selection.files, where)
    _refuse_mixed_formats(selection.files, where)
    _refuse_missing_shards(selection.files, where)
    return selection


def select_matching(names: Sequence[str], pattern: str) -> Selection:
    """Return the files of rows among those that a user's pattern fits. Raises InputError: none, a packed one, two forms."""
    files = without_notes(list(filter(_holds_rows, names)))
    unread = [f"{name} ({_why_unread(name) or 'no file of rows by its name'})" for name in names if name not in files]
    selection = Selection(files, unread)
    if not files:
        what = "; ".join(filter(None, [f"{pattern}: no file of rows fits this pattern", selection.remark()]))
        raise InputError(what, f"Rows are in files of {', '.join(DATA_SUFFIXES)}.")
    _refuse_packed(files, pattern)
    _refuse_mixed_formats(files, pattern)
    return selection


def _holds_rows(name: str) -> bool:
    """Whether a name is that of a file of rows, in a form that is read or not."""
    path = PurePosixPath(name)
    is_packed = path.suffix.lower() in {*PACKED, *COMPRESSED_SUFFIXES} and format_name(path.stem) not in (
        "",
        PLAIN_TEXT,
    )
    return (is_packed or format_name(name) != "") and path.name not in _NOT_ROWS


def without_notes(names: Collection[Name]) -> list[Name]:
    """Return the same files, without those of text where there are others: these are words about the rows."""
    others = [name for name in names if format_name(name) != PLAIN_TEXT]
    return others or list(names)


def form_of(name: str) -> str:
    """Return the suffix of a file of rows in small letters, with that of its compression: two forms may hold the same rows."""
    path = PurePosixPath(name.lower())
    is_compressed = path.suffix in COMPRESSED_SUFFIXES
    return path.with_suffix("").suffix + path.suffix if is_compressed else path.suffix


def _is_hidden(name: str) -> bool:
    return any(part.startswith((".", "_")) for part in PurePosixPath(name).parts)


def _why_unread(name: str) -> str:
    """Why a file that looks like rows can be in no split; "" for one that can, and for one that does not look like rows."""
    if _holds_rows(name):
        return 'a name that begins with "." or "_"' if _is_hidden(name) and format_name(name) != PLAIN_TEXT else ""
    path = PurePosixPath(name)
    inner = {suffix.lower() for suffix in path.suffixes[:-1]}
    looks_like_rows = path.suffix.lower() in _UNREAD_FORMATS or not inner.isdisjoint(DATA_SUFFIXES)
    if not looks_like_rows or _is_hidden(name):
        return ""
    is_compressed = path.suffix.lower() in COMPRESSED_SUFFIXES
    return f'the name before "{path.suffix}" is that of no format' if is_compressed else f'"{path.suffix}" is not read'


def _by_name(names: Sequence[str]) -> dict[str, list[str]]:
    """Files by split: by the folders' names if one of them is a split's, else by the files' names, else all train."""
    for parts_of in (lambda path: path.parent.parts, lambda path: (path.stem,)):
        found: dict[str, list[str]] = {}
        for name in names:
            if split := next(filter(None, map(named_split, parts_of(PurePosixPath(name)))), ""):
                found.setdefault(split, []).append(name)
        if found:
            return found
    return {"train": list(names)}


def _chosen_config(configs: Sequence[CardConfig], wanted: str, where: str) -> CardConfig:
    named = {config.name: config for config in configs}
    if wanted in named:
        return named[wanted]
    defaults = [config for config in configs if len(configs) == 1 or config.name == "default" or config.is_default]
    if not wanted and len(defaults) == 1:
        return defaults[0]
    what = f'no configuration "{wanted}"' if wanted else "several configurations and no default one"
    listed = ", ".join(list(named)[:20]) + (" ..." if len(named) > 20 else "")
    raise InputError(f"{where}: {what}; there is: {listed}", "Name one: id::split::config.")


def _configured(
    names: Sequence[str], data: Sequence[str], config: CardConfig, where: str
) -> tuple[dict[str, list[str]], dict[str, list[str]]]:
    """Files by split, as one configuration says; and the patterns of each split that no file fits."""
    before = f"{config.folder}/" if config.folder else ""
    if config.splits is None:
        inside = without_notes([name.removeprefix(before) for name in data if name.startswith(before)])
        return {split: [before + name for name in found] for split, found in _by_name(inside).items()}, {}
    by_split: dict[str, list[str]] = {}
    unfit: dict[str, list[str]] = {}
    for split, written in config.splits.items():
        patterns = [before + pattern.removeprefix("./") for pattern in written]
        # A file that is named in full is meant, also where a pattern would pass over it.
        found = fitting(data, filter(is_pattern, patterns), where)
        found |= fitting(names, (pattern for pattern in patterns if not is_pattern(pattern)), where)
        by_split[split] = without_notes(dict.fromkeys(name for pattern in patterns for name in found[pattern]))
        unfit[split] = [pattern for pattern in patterns if not found[pattern]]
    return by_split, unfit


def _refuse_absent(unfit: Sequence[str], split: str, where: str) -> None:
    """A file that is named in full has to be there; a pattern may be one of several that were tried."""
    absent = next((pattern for pattern in unfit if not is_pattern(pattern)), None)
    if absent is not None:
        raise InputError(
            f'{where}: the README says that the split "{split}" is in {absent[:80]}, which is not there',
            "Get the whole data set, or name one file of rows.",
        )


def _refuse_packed(names: Sequence[str], where: str) -> None:
    packed = next((name for name in names if not format_name(name)), None)
    if packed is not None:
        suffix = "".join(PurePosixPath(packed).suffixes[-2:])
        raise InputError(
            f'{where}: {packed} belongs to these rows, and "{suffix}" is not read',
            "Unpack it, or name one file, or a folder without it.",
        )


def _refuse_mixed_formats(names: Sequence[str], where: str) -> None:
    formats = sorted({form_of(name) for name in names})
    if len(formats) > 1:
        raise InputError(
            f"{where}: files of {len(formats)} formats side by side ({', '.join(formats)}); they may hold the same rows",
            "Name the file, or a folder with one format.",
        )


def _refuse_missing_shards(names: Sequence[str], where: str) -> None:
    """A set numbered "-00001-of-00003" must be whole: an interrupted download would train on part of the rows."""
    sets: dict[str, tuple[int, set[int]]] = {}
    for name in names:
        if match := _SHARD.search(name):
            stem = name[: match.start()]
            sets.setdefault(stem, (int(match[2]), set()))[1].add(int(match[1]))
    for stem, (total, numbers) in sets.items():
        if len(numbers) < total:
            missing = min(set(range(total)) - numbers, default=total)
            raise InputError(
                f"{where}: {stem} has {len(numbers)} of {total} parts; number {missing:05d} is missing",
                "Download the data set again.",
            )
