"""A run at a URL (`--output URL`): trains in a local folder and uploads changes after each checkpoint, COMPLETE last."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from expert_cli.config.run_config import RunConfig
from expert_cli.errors import EnvironmentProblem, RunLocked
from expert_cli.pipeline.options import RunOptions
from expert_cli.runs.lock import BEFORE_IT_BEGAN
from expert_cli.training.checkpoint import MANIFEST, latest_valid
from expert_cli.utils.files import facts_of, files_below, folder_beside, remove, stamp_of
from expert_cli.utils.object_storage import StoredFolder
from expert_cli.utils.reporter import Reporter
from expert_cli.utils.text import first_line

_LAST = ("", MANIFEST, "status.json", "COMPLETE")  # uploaded last, in this order: each means that other files exist
_CHECKPOINT = re.compile(r"(checkpoints/checkpoint-([0-9]+)/)(.+)")


@contextmanager
def remote_run(run: RunConfig, options: RunOptions, report: Reporter) -> Iterator[Callable[[], Future[None]]]:
    """Download an existing run to continue it; yield a function that uploads changes. At the end everything is uploaded."""
    names, folder, done = [*(storage := StoredFolder(options.stored_at)).list()], run.output, dict[str, list[int]]()
    if {*names} - BEFORE_IT_BEGAN and not (options.resume and "log.txt" in names):
        raise RunLocked(f"{storage} is not empty", "continue its run: --resume auto; or give another URL")
    if names and (not (here := _files_of(folder)) or _how_far(here) < _how_far(names)):
        report.info(f"fetching  {storage}")
        with folder_beside(folder) as fresh:
            storage.get([name for name in names if not _CHECKPOINT.fullmatch(name)], fresh)
            for newest in sorted(whole := _whole(names), key=whole.__getitem__, reverse=True):
                if run.watch.load_best_model_at_end or latest_valid(fresh / "checkpoints")[0] is None:
                    storage.get([name for name in names if name.startswith(newest)], fresh)
            remove(folder)
            fresh.rename(folder)
        done = _files_of(folder)
    problem = ""

    def put(*, all_is_written: bool = False) -> None:
        nonlocal problem
        try:
            files = _files_of(folder)
            if not all_is_written:  # the log's last line comes after COMPLETE
                files.pop("COMPLETE", None)
            for name in [name for name in files if done.get(name) != files[name]]:
                storage.put(folder, [name])
                done[name] = files[name]
            for name in [name for name in reversed(done) if name not in files]:
                storage.remove(name)
                del done[name]
            problem = ""
        except Exception as error:  # noqa: BLE001  whatever a storage client raises, training continues
            problem = f"not all of it is at {storage}: {first_line(error)}"
            report.warning(f"{problem}; it is in {folder}, and is uploaded with the next checkpoint or --resume auto")

    with ThreadPoolExecutor(1) as pool:
        try:
            yield lambda: pool.submit(put)
        finally:
            pool.submit(put, all_is_written=True).result()
    if problem:
        raise EnvironmentProblem(f"the run is done, but {problem}", "this command with --resume auto uploads the rest")


def _whole(names: Iterable[str]) -> dict[str, int]:
    return {at[1]: int(at[2]) for at in filter(None, map(_CHECKPOINT.fullmatch, names)) if at[3] == MANIFEST}


def _how_far(names: Iterable[str]) -> tuple[bool, int]:
    return "COMPLETE" in names, max(_whole(names).values(), default=-1)


def _files_of(folder: Path) -> dict[str, list[int]]:
    found = {file.relative_to(folder).as_posix(): facts for file, facts in facts_of(files_below(folder)).items()}
    last = {name: _LAST.index(end) if (end := name.rpartition("/")[2]) in _LAST else 0 for name in found}
    names = [name for name in found if name != "STOP" and "/." not in f"/{name}"]
    return {name: stamp_of(found[name]) for name in sorted(names, key=lambda name: (last[name], name))}
