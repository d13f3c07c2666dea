"""A URL in object storage -> the objects that hold its rows: one, those of a split below it, or those that a pattern fits."""

from __future__ import annotations

import glob
from pathlib import PurePosixPath

from expert_cli.config.run_config import SourceSpec
from expert_cli.config.source_names import refuse_parts_of_a_file
from expert_cli.data.places import StoredFile, names_in, stored_files
from expert_cli.data.sources.folder import folder_files
from expert_cli.data.sources.globs import fits
from expert_cli.data.sources.split_files import select_matching
from expert_cli.errors import EnvironmentProblem
from expert_cli.utils.object_storage import StoredFolder
from expert_cli.utils.reporter import Reporter


def url_files(spec: SourceSpec, split: str, reporter: Reporter, *, offline: bool) -> tuple[StoredFile, ...]:
    """Return the objects that hold `split` of what is at a URL, as they are now; nothing of the rows is read.

    The rules are those of local files, folders and patterns. Raises InputError: nothing there, no such split;
    EnvironmentProblem: out of reach, no permission.
    """
    if offline:
        raise EnvironmentProblem(
            f"{spec.path}: the network may not be used (--offline is given)", "Copy the rows to this machine."
        )
    at = StoredFolder(spec.path)
    if glob.has_magic(spec.path):
        return tuple(stored_files(_matching(spec.path, reporter)))
    if at.info() is None:
        return tuple(stored_files(folder_files(at, spec.config, split, reporter)))
    refuse_parts_of_a_file(str(spec), PurePosixPath(spec.path), split, spec.config)
    return tuple(stored_files([at]))


def _matching(pattern: str, reporter: Reporter) -> list[StoredFolder]:
    """The objects that a pattern fits, by name, in the order in which local files of these names stand."""
    parts = pattern.split("/")
    plain = next(number for number, part in enumerate(parts) if glob.has_magic(part))
    folder, wanted = StoredFolder("/".join(parts[:plain])), parts[plain:]
    names = [name.split("/") for name in names_in(folder)]
    found = [name for name in sorted(names) if fits(name, wanted) and not _is_hidden(name, wanted)]
    selection = select_matching(["/".join(name) for name in found], pattern)
    return selection.files_in(folder, pattern, reporter)


def _is_hidden(name: list[str], wanted: list[str]) -> bool:
    """Whether a part of a name begins with a dot, of which a local pattern fits none unless it begins so itself."""
    return any(part.startswith(".") for part in name) and not any(part.startswith(".") for part in wanted)
