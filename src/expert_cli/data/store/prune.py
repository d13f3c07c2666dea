"""`pretokenize --prune`: the stores of one expert that are not the one of now, and nothing else."""

from __future__ import annotations

from pathlib import Path

from filelock import Timeout

from expert_cli.data.store.build import lock_of
from expert_cli.data.store.files import FINGERPRINT, read_fingerprint
from expert_cli.data.store.inspect import BUILDING, STORE_NAME
from expert_cli.errors import IntegrityError
from expert_cli.utils.files import remove
from expert_cli.utils.reporter import Reporter


def prune(folder: Path, keep: str, expert: str, report: Reporter) -> None:
    """Delete the stores in `folder` that were built for `expert` and have another key than `keep`, and its broken builds.

    A name proves nothing: a folder is a store if our own fingerprint lies in it. A folder with a store's name that stays is
    told; an unfinished build has a hidden name of our own.
    """
    for path in sorted(folder.iterdir()):
        is_other = STORE_NAME.fullmatch(path.name) and path.name.removeprefix(BUILDING) != keep[:12]
        if not is_other or path.is_symlink() or not path.is_dir():
            continue
        owner = expert if path.name.startswith(BUILDING) else _owner(path)
        if owner is None:
            report.warning(f"{path} is not deleted: it has the name of a token store, but no {FINGERPRINT} of one")
            continue
        if owner != expert:
            report.info(f"kept      {path}, built for {owner}")
            continue
        try:
            with lock_of(path).acquire(timeout=0):
                remove(path)
            report.info(f"deleted   {path}")
        except Timeout:
            report.info(f"kept      {path}, which another process is building")


def _owner(home: Path) -> str | None:
    """Return the expert that a store belongs to, "" of a build; None for what is neither."""
    try:
        written = read_fingerprint(home)
        return str(written.get("expert", "")) if str(written["key"]).startswith(home.name) else None
    except (IntegrityError, KeyError):
        return None
