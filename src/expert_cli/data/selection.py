"""Which files of a folder or a hub repository hold a split: decided from their names and the README's `configs`.

The rules are those of `datasets`, kept to train, validation and test: the README's patterns; else folders named as splits;
else file names with a split's name in them; else every file is train.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any

from expert_cli.data.readers import READERS
from expert_cli.errors import InputError

_SPLIT_WORDS = {
    "train": ("train", "training"),
    "validation": ("validation", "valid", "val", "dev"),
    "test": ("test", "testing", "eval", "evaluation"),
}
_SPLIT_OF = {word: split for split, words in _SPLIT_WORDS.items() for word in words}
_NOT_ROWS = {"config.json", "dataset_info.json", "dataset_infos.json", "dataset_dict.json", "state.json"}
_SHARD = re.compile(r"-(\d{5})-of-(\d{5})(?=[.-])")
_GLOB = re.compile(r"\*\*/|\*\*|\*|\?|\[[^\]]+\]")
_GLOB_REGEX = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}


def select_files(names: Iterable[str], card: Mapping[str, Any], config: str, split: str, where: str) -> list[str]:
    """Return the files (relative, "/" between parts) that hold `split`, in reading order.

    `card` is the README's metadata ({} without one), `config` a configuration it names ("" = its default one). Raises
    InputError: no such configuration or split, two formats side by side, a shard of a numbered set is missing.
    """
    data = sorted(name for name in names if _holds_rows(name))
    configs = card.get("configs") or []
    if not isinstance(configs, list) or not all(isinstance(entry, Mapping) for entry in configs):
        raise InputError(f'{where}: the README\'s "configs" is not a list of configurations')
    if configs:
        by_split = _configured(data, _chosen_config(configs, config, where))
    elif config:
        raise InputError(
            f'{where}: there is no configuration "{config}", its README names none', 'Leave "::config" out.'
        )
    else:
        by_split = _by_name(data)
    split = _SPLIT_OF.get(split, split) if split not in by_split else split
    chosen = by_split.get(split, [])
    if not chosen:
        there = ", ".join(f"{name} ({len(files)})" for name, files in by_split.items() if files) or "no data file"
        raise InputError(
            f'{where}: no file holds the split "{split}"; there is: {there}',
            f"Name a split that is there (PATH::split), or one file ({', '.join(READERS)}).",
        )
    _refuse_mixed_formats(chosen, where)
    _refuse_missing_shards(chosen, where)
    return chosen


def _holds_rows(name: str) -> bool:
    path = PurePosixPath(name)
    hidden = any(part.startswith((".", "_")) for part in path.parts)
    return path.suffix.lower() in READERS and path.name not in _NOT_ROWS and not hidden


def _by_name(names: Sequence[str]) -> dict[str, list[str]]:
    """Files by split: by the folders' names if one of them is a split's, else by the files' names, else all train."""
    for part_of in (_folder_split, _file_split):
        found: dict[str, list[str]] = {}
        for name in names:
            if split := part_of(PurePosixPath(name)):
                found.setdefault(split, []).append(name)
        if found:
            return found
    return {"train": list(names)}


def _folder_split(path: PurePosixPath) -> str:
    return next((split for part in path.parent.parts if (split := _named_split(part))), "")


def _file_split(path: PurePosixPath) -> str:
    return _named_split(path.stem)


def _named_split(part: str) -> str:
    """The split that a name has as a word of its own ("sql-train-00000-of-00002"); the first one if there are two."""
    return next((_SPLIT_OF[word] for word in re.split(r"[-._ 0-9]+", part.lower()) if word in _SPLIT_OF), "")


def _chosen_config(configs: Sequence[Mapping[str, Any]], wanted: str, where: str) -> Mapping[str, Any]:
    named = {str(entry.get("config_name", "default")): entry for entry in configs}
    if wanted in named:
        return named[wanted]
    defaults = [entry for name, entry in named.items() if len(named) == 1 or name == "default" or entry.get("default")]
    if not wanted and len(defaults) == 1:
        return defaults[0]
    what = f'no configuration "{wanted}"' if wanted else "several configurations and no default one"
    raise InputError(f"{where}: {what}; there is: {', '.join(named)}", "Name one: id::split::config.")


def _configured(names: Sequence[str], config: Mapping[str, Any]) -> dict[str, list[str]]:
    """Files by split, as one configuration's `data_files` and `data_dir` say."""
    folder = str(config.get("data_dir") or "").strip("/")
    inside = [name for name in names if not folder or name.startswith(f"{folder}/")]
    written = config.get("data_files")
    if not written:
        start = len(folder) + 1 if folder else 0
        by_split = _by_name([name[start:] for name in inside])
        return {
            split: [name if not folder else f"{folder}/{name}" for name in found] for split, found in by_split.items()
        }
    return {
        split: list(dict.fromkeys(name for pattern in patterns for name in names if _matches(name, pattern, folder)))
        for split, patterns in _patterns(written).items()
    }


def _patterns(written: Any) -> dict[str, list[str]]:
    """The forms of `data_files`: a pattern, a list of them, a list of {split, path}, or {split: patterns}."""
    if isinstance(written, Mapping):
        return {str(split): _as_list(patterns) for split, patterns in written.items()}
    entries = _as_list(written)
    if all(isinstance(entry, Mapping) for entry in entries):
        return {str(entry.get("split", "train")): _as_list(entry.get("path", [])) for entry in entries}
    return {"train": [str(entry) for entry in entries]}


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _matches(name: str, pattern: str, folder: str) -> bool:
    """Whether a shell pattern names the file: "*" stays inside a folder, "**" does not."""
    pattern = str(pattern).removeprefix("./")
    full = f"{folder}/{pattern}" if folder else pattern
    regex, at = "", 0
    for match in _GLOB.finditer(full):
        regex += re.escape(full[at : match.start()])
        regex += _GLOB_REGEX.get(match[0]) or match[0].replace("[!", "[^")
        at = match.end()
    return re.fullmatch(regex + re.escape(full[at:]), name) is not None


def _refuse_mixed_formats(names: Sequence[str], where: str) -> None:
    formats = sorted({PurePosixPath(name).suffix.lower() for name in names})
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
