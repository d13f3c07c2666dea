"""The places that rows come from: file, folder, hub id -> the files to read, in order, and the columns that they have.

Nothing is written: the readers work on the files themselves, so no cache appears beside the data.
"""

from __future__ import annotations

import stat
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from pathlib import Path

from expert_cli.config.run_config import DataConfig, SourceSpec
from expert_cli.config.splits import parse_split
from expert_cli.data.formats.raw_row import ColumnFilter
from expert_cli.data.formats.registry import read_file
from expert_cli.data.located import Located, LocatedData, local_hint
from expert_cli.data.rows.columns import absent, names_of_interest
from expert_cli.data.rows.kinds import choose_columns, kind_of
from expert_cli.data.rows.look import source_blocks
from expert_cli.data.sources.folder import folder_files, pattern_files
from expert_cli.data.sources.hub import hub_files
from expert_cli.data.sources.stored import url_files
from expert_cli.errors import ExpertError, InputError
from expert_cli.utils.reporter import NullReporter, Reporter

_NO_FILES = {
    stat.S_IFIFO: "a named pipe",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFSOCK: "a socket",
    stat.S_IFDIR: "a folder",
}


def locate_data(data: DataConfig, reporter: Reporter, *, alternatives: Sequence[Path] = ()) -> LocatedData:
    """Return the files of all sources; hub data sets are downloaded where the network is allowed. Reads no row.

    `alternatives`: local data files that an error about an unreachable hub offers. Raises InputError, EnvironmentProblem.
    """

    def locate(spec: SourceSpec) -> Located:
        found = found_at(spec, parse_split(spec.split).name)
        _refuse_irregular([file for file in found.files if isinstance(file, Path)])
        return found

    def found_at(spec: SourceSpec, split: str) -> Located:
        if spec.kind == "hub":
            return hub_files(spec, split, reporter, offline=data.offline, alternatives=alternatives)
        if spec.kind == "url":
            return Located(spec, url_files(spec, split, reporter, offline=data.offline))
        path = Path(spec.path)
        if spec.kind == "files":
            return Located(spec, tuple(pattern_files(spec.path, reporter)))
        if spec.tried or not path.exists():
            places = ", ".join(spec.tried) or spec.path
            raise InputError(
                f"{spec.path}: no such file or folder; looked for at: {places}",
                local_hint(alternatives, "Correct the path"),
            )
        files = [path] if spec.kind == "file" else folder_files(path, spec.config, split, reporter)
        return Located(spec, tuple(files))

    return LocatedData(tuple(map(locate, data.train)), tuple(map(locate, data.validation)))


def absent_columns(data: DataConfig) -> dict[str, str]:
    """Return, by role, why a column that the manifest names is not in the first rows; reads 64 of what is on this machine.

    {} also where no row can be read: training says why.
    """
    here = replace(data, train=tuple(spec for spec in data.train[:1] if spec.is_local), validation=())
    names = ColumnFilter(names_of_interest(data.mapping))
    with suppress(ExpertError):
        for path in locate_data(here, NullReporter()).files()[:1]:
            _ = list(islice(read_file(path, names), 64))
    return absent(names.seen, data.mapping) if names.seen else {}


def _refuse_irregular(files: Sequence[Path]) -> None:
    """Raise InputError for a file that is none: a pipe would be waited for, a device be read for ever."""
    for path in files:
        try:
            mode = path.stat().st_mode
        except OSError as error:
            what = "a link that leads nowhere" if path.is_symlink() else "cannot be looked at"
            raise InputError(f"{path}: {what}: {error.strerror}", "Mend or remove it.") from error
        if not stat.S_ISREG(mode):
            what = _NO_FILES.get(stat.S_IFMT(mode), "no file")
            raise InputError(f"{path}: {what}, not a file of rows", "Write the rows to a file first.")


def input_column(data: DataConfig, sources: Sequence[Located]) -> str:
    """Return the column that becomes the input of pairs, as the names of all columns of all sources tell; "" = none.

    Rows are read until one has such a column: the first may lack it.
    """
    for located in sources:
        names = ColumnFilter(names_of_interest(data.mapping))
        known = -1
        for _block in source_blocks(located.pieces, names):
            if len(names.seen) == known:
                continue
            known = len(names.seen)
            try:
                columns = choose_columns(names.seen, data.mapping, str(located))
            except InputError:  # the selection says what is wrong with them
                continue
            if columns.input:
                return columns.input
            if "input" not in kind_of(columns).roles or (data.mapping.instruction and data.mapping.response):
                break
    return ""
