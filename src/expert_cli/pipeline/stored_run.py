"""A run directory that is kept in object storage (`--output URL`): training writes a local one, which is mirrored there.

<cache>/runs/<name>-<hash of the URL>/    the local one, as every run has it
<cache>/runs/.<name>-<hash>.token         names this folder as a writer (`runs/claim.py`)

URL/run.json, metrics.jsonl, log.txt ...                  as in the local one after its last checkpoint
URL/checkpoints/checkpoint-40/optimizer.safetensors ...   then checkpoint.json: without that there is no checkpoint
URL/status.json                                           behind all these
URL/COMPLETE                                              last

The local folder counts where it was the last one to write at the URL; else all that a run needs to go on is brought from there,
into a folder beside it that takes its place. Of checkpoints that is the newest good one; all, where the run may still remove
them or come back to one.
"""

from __future__ import annotations

import re
import secrets
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from expert_cli.errors import EnvironmentProblem, InputError, RunLocked
from expert_cli.pipeline.mirror import COMPLETE, NAMES, Mirror, Remote, files_of, is_hidden
from expert_cli.runs.claim import Claim
from expert_cli.runs.lock import contents
from expert_cli.training.checkpointing.checkpoint import MANIFEST, latest_valid
from expert_cli.utils.files import parse_json, write_bytes
from expert_cli.utils.object_storage import ObjectInfo, StoredFolder
from expert_cli.utils.reporter import Reporter, late_progress
from expert_cli.utils.text import size_text
from expert_cli.utils.verified_folder import folder_beside

if TYPE_CHECKING:
    from expert_cli.config.run_config import RunConfig
    from expert_cli.pipeline.options import RunOptions

_CHECKPOINT = re.compile(r"(?P<folder>(?P<home>(?:.+/)?)checkpoints/checkpoint-[0-9]+/)[^/]+")


@contextmanager
def stored_run(
    run: RunConfig, options: RunOptions, report: Reporter, *, is_first: bool
) -> Iterator[Callable[[], None]]:
    """Bring the run that is kept at the URL; yield what puts what has changed there, in the background; at the end put all.

    Without a URL nothing is done, nor in other processes of a job than the first. Raises RunLocked: a run is there, or another
    machine writes it; InputError: something else is there; EnvironmentProblem: the storage cannot be read or written, or at
    the end did not take all.
    """
    if not (options.stored_at and is_first):
        yield options.written
        return
    storage, folder = StoredFolder(options.stored_at), run.output
    _require_free(storage, folder, options)
    claim = Claim(storage, _token(folder))
    with claim.held(report):
        mirror = Mirror(storage, folder, claim, _bring(storage, run, report, is_ours=claim.was_ours), report)
        try:
            yield mirror.push
        except BaseException:
            if problem := mirror.close():
                report.warning(f"{problem}; all of it is in {folder}, from where --resume auto goes on")
            raise
        problem = mirror.close()
        claim.require()
        if problem:
            hint = "when the storage can be reached, the same command with --resume auto puts there what is missing"
            raise EnvironmentProblem(f"the run is done, and all of it is in {folder}, but {problem}", hint)


def _require_free(storage: StoredFolder, folder: Path, options: RunOptions) -> None:
    """Raise RunLocked where a run is in the way, InputError where what is at the URL is none to go on with."""
    names = [name for name in storage.list() if not is_hidden(name)]
    if options.resume:
        if names and not {NAMES.log.name, NAMES.status.name, NAMES.run_json.name} & set(names):
            raise InputError(f"{storage} holds something else than a run: {names[0]}", "give another URL with --output")
    elif names and options.overwrite:
        raise RunLocked(
            f"{storage} holds a run, and nothing in object storage can be moved aside",
            "give another URL with --output, or remove that run yourself",
        )
    elif names:
        hint = "go on with it: --resume auto; or give another URL with --output"
        raise RunLocked(f"{storage} holds a run already", hint)
    elif contents(folder) and not options.overwrite:
        raise RunLocked(
            f"{storage} holds nothing, but {folder} a run that was to be kept there",
            "go on with it: --resume auto; move it aside: --overwrite; or give another URL with --output",
        )


def _token(folder: Path) -> str:
    """Return what names the local folder as a writer, always the same."""
    file = folder.with_name(f".{folder.name}.token")
    if not file.is_file():
        write_bytes(file, secrets.token_hex(16).encode())
    return file.read_text(encoding="utf-8")


def _bring(storage: StoredFolder, run: RunConfig, report: Reporter, *, is_ours: bool) -> Remote:
    """Make the local folder what the run goes on from; return what is at the URL."""
    folder, watch = run.output, run.watch
    listing = {name: info for name, info in storage.list().items() if not is_hidden(name)}
    found = _checkpoints(listing)
    if contents(folder) and (is_ours or not listing):
        report.info(f"storage   nothing at {storage} is newer than what is in {folder}")
        same = [one.folder for one in found if one.is_sealed and _is_same(storage, folder, one.folder + MANIFEST)]
        known = {name: stamped for name, stamped in files_of(folder).items() if name.startswith(tuple(same))}
        left = {one.folder for one in found if one.is_sealed and (one.is_over or watch.save_total_limit is None)}
    elif listing:
        every = watch.save_total_limit is not None or watch.load_best_model_at_end
        with folder_beside(folder) as fresh, folder_beside(folder) as stale:
            _fetch(storage, listing, found, fresh, report, every=every)
            if folder.exists():
                folder.rename(stale / folder.name)
            fresh.rename(folder)
        known = files_of(folder)
        left = {one.folder for one in found if one.is_sealed}
    else:
        known, left = {}, set()
    there = {name: known.get(name) for name in listing}
    stay = {name for name in listing if (at := _CHECKPOINT.fullmatch(name)) and at["folder"] in left}
    return Remote(there, stay)


def _fetch(
    storage: StoredFolder,
    listing: Mapping[str, ObjectInfo],
    found: list[_Checkpoint],
    fresh: Path,
    report: Reporter,
    *,
    every: bool,
) -> None:
    """Bring all files but checkpoints, and of each training that is not over the newest good checkpoint, or `every` one."""
    started, moved = time.monotonic(), 0
    with late_progress(report, f"fetching {storage}", None, "B") as show:

        def bring(names: list[str]) -> None:
            def advance(count: int) -> None:
                nonlocal moved
                moved += count
                show(moved)

            for name in names:
                storage.fetch(name, fresh / name, advance=advance)

        bring([name for name in listing if not _CHECKPOINT.fullmatch(name)])
        for home in sorted({one.home for one in found if one.is_sealed and not one.is_over}):
            sealed = [one.folder for one in found if one.home == home and one.is_sealed]
            for folder in sorted(sealed, key=lambda folder: _serial(storage, folder), reverse=True):
                bring([name for name in listing if name.startswith(folder)])
                if not every and latest_valid(fresh / home / "checkpoints").path is not None:
                    break
    report.info(f"fetched   {size_text(moved)} from {storage} in {time.monotonic() - started:.1f} s")


@dataclass(frozen=True)
class _Checkpoint:
    """A checkpoint at the URL: its folder and that of its training ("" or with a slash behind it).

    is_sealed: all of it is there. is_over: its training is complete, and needs it no more.
    """

    folder: str
    home: str
    is_sealed: bool
    is_over: bool


def _checkpoints(listing: Mapping[str, ObjectInfo]) -> list[_Checkpoint]:
    matches = filter(None, map(_CHECKPOINT.fullmatch, listing))
    return [
        _Checkpoint(folder, home, f"{folder}{MANIFEST}" in listing, f"{home}{COMPLETE}" in listing)
        for folder, home in dict.fromkeys((match["folder"], match["home"]) for match in matches)
    ]


def _serial(storage: StoredFolder, folder: str) -> int:
    """Return a checkpoint's place in the order in which they were written; one that does not tell it is looked at first."""
    try:
        return int(parse_json(storage.read(folder + MANIFEST))["serial"])
    except (ValueError, KeyError, TypeError):
        return sys.maxsize


def _is_same(storage: StoredFolder, folder: Path, name: str) -> bool:
    return (folder / name).is_file() and storage.read(name) == (folder / name).read_bytes()
