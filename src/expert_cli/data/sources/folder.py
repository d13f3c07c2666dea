"""A folder -> the files that hold a split: what `save_to_disk` wrote, or data files with split names."""

from __future__ import annotations

import os
from pathlib import Path

from expert_cli.config.run_config import DataConfig
from expert_cli.config.splits import split_of
from expert_cli.data.places import Place, has_file, names_in
from expert_cli.data.saved import SPLITS, STATE, listed, saved_files, saved_json
from expert_cli.data.sources.dataset_card import load_configs
from expert_cli.data.sources.sniff import rows_inside
from expert_cli.data.sources.split_files import select_files, select_matching, untold
from expert_cli.errors import EnvironmentProblem, InputError
from expert_cli.utils.filesystem import is_folder, matching
from expert_cli.utils.object_storage import StoredFolder
from expert_cli.utils.paths import is_inside
from expert_cli.utils.reporter import Reporter

MOST_FILES = 1_000_000


def folder_files(folder: Place, config: str, split: str, reporter: Reporter) -> list[Place]:
    """Return the files of `folder` that hold `split`, in reading order; `config` is one of the README's, "" = the default.

    What looks like rows and is not read is told as a warning. A folder of `save_to_disk` is read as its own lists say: a
    `Dataset` is one split, all of it is taken for "train". Raises InputError: no such split, a listed file is missing;
    EnvironmentProblem: cannot be read.
    """
    try:
        if (saved := _split_of_saved(folder, config, split)) is not None:
            return _saved_files(saved)
        names, unread = names_below(folder)
    except OSError as error:
        raise EnvironmentProblem(f"{error.filename or folder}: cannot be read: {error.strerror or error}") from error
    except ValueError as error:
        raise InputError(str(error), "Save the data set again.") from error
    unread += rows_inside(folder, untold(names), names)
    selection = select_files(names, load_configs(folder / "README.md"), config, split, str(folder), unread)
    return selection.files_in(folder, str(folder), reporter)


def matching_files(pattern: str) -> list[Path]:
    """Return the files that a pattern fits, by name."""
    return sorted(path for path in matching(pattern) if not is_folder(path))


def pattern_files(pattern: str, reporter: Reporter) -> list[Path]:
    """Return the files of rows that a pattern fits, by name; what else it fits is told as a warning.

    Raises InputError: none of them is one, a packed one, files of several forms.
    """
    selection = select_matching([path.as_posix() for path in matching_files(pattern)], pattern)
    return selection.files_in(Path(), pattern, reporter)


def names_below(folder: Path | StoredFolder) -> tuple[list[str], list[str]]:
    """Return the names of all files below a folder, relative with "/" between parts, and what is passed over, and why.

    Folders that links lead to are read too, each folder once: links may make a circle. A link to nothing counts as a file,
    so that it is missed where its rows are. Raises OSError: a folder that cannot be read; InputError: no object in it.
    """
    if isinstance(folder, StoredFolder):
        return names_in(folder), []
    names: list[str] = []
    unread: list[str] = []
    seen: set[str] = set()
    tops = [folder]
    for top in tops:
        for where, folders, files in os.walk(top, onerror=_raise_where_rows_may_be):
            here = Path(where)
            at = "" if here == folder else f"{here.relative_to(folder).as_posix()}/"
            if (real := os.path.realpath(here)) in seen:
                unread.append(f"{at} (a link to a folder that is read already)")
                folders.clear()
                continue
            seen.add(real)
            folders.sort()
            # Links come last: what they lead to goes by its own name where that is below the folder too.
            tops += filter(Path.is_symlink, map(here.joinpath, folders))
            names += [at + name for name in sorted(files)]
            nowhere = filter(_leads_nowhere, map(here.joinpath, sorted(files)))
            unread += [f"{at}{path.name} (a link that leads nowhere)" for path in nowhere]
            if len(names) > MOST_FILES:
                raise InputError(f"{folder}: more than {MOST_FILES:,} files", "Name the folder that holds the rows.")
    return names, unread


def _leads_nowhere(path: Path) -> bool:
    """Whether a name without an ending, perhaps a folder's, is a link to nothing."""
    return not path.suffix and path.is_symlink() and not path.exists()


def _raise_where_rows_may_be(error: OSError) -> None:
    name = Path(error.filename).name
    if not (isinstance(error, PermissionError) and (name.startswith(".") or name == "lost+found")):
        raise error


def _split_of_saved(folder: Place, config: str, split: str) -> Place | None:
    """The folder of one split of what `save_to_disk` wrote; None where it did not write this folder."""
    several, one = folder / SPLITS, folder / STATE
    is_several = has_file(several)
    if not (is_several or has_file(one)):
        return None
    if config:
        raise InputError(
            f'{folder}: there is no configuration "{config}": save_to_disk wrote this folder', 'Leave "::config" out.'
        )
    if is_several:
        splits = listed(several, "splits")
        if split not in splits:
            raise InputError(f'{folder}: there is no split "{split}"; there is: {", ".join(map(str, splits))}')
        return folder / split
    name = saved_json(one).get("_split")
    if split_of(split) not in ("train", split_of(str(name))):
        remembered = f', "{name}"' if name else ""
        raise InputError(
            f'{folder}: there is no split "{split}": a Dataset was saved here, which is one split{remembered}',
            f'Leave "::{split}" out, or save a DatasetDict.',
        )
    return folder


def require_apart(data: DataConfig, place: Path, option: str) -> None:
    """Raise InputError where a place that is written to lies in a folder of rows: what is written would be read as rows.

    option: what names the place.
    """
    for spec in (*data.train, *data.validation):
        if spec.kind == "folder" and is_inside(place, Path(spec.path)):
            raise InputError(
                f"{place} lies in the data folder {spec.path}: what is written there would be read as rows",
                f"give a folder outside of it: {option}",
            )


def _saved_files(folder: Place) -> list[Place]:
    """The Arrow files of one saved `Dataset`, in the order of its state. Raises OSError, ValueError."""
    state, again = folder / STATE, "Save the data set again."
    if saved_json(state).get("_indices_data_files"):
        raise InputError(f"{state}: a choice of rows by numbers, which is not read", again)
    files = saved_files(folder)
    if missing := next((file for file in files if not has_file(file)), None):
        raise InputError(f"{missing}: listed in {state}, but it is not there", again)
    return files
