"""What has changed in a run directory, put into object storage: in one thread, in order, one time after another.

Files that say that others are there are put behind them, and go before them. A failure is told and tried again the next time:
the local folder has everything.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from expert_cli.errors import InputError
from expert_cli.runs.claim import Claim
from expert_cli.runs.paths import RunPaths
from expert_cli.training.checkpointing.checkpoint import MANIFEST
from expert_cli.training.signals import STOP_FILE
from expert_cli.utils.disk_errors import known
from expert_cli.utils.files import stamp_of
from expert_cli.utils.filesystem import facts_of, files_below
from expert_cli.utils.object_storage import StoredFolder
from expert_cli.utils.reporter import Reporter
from expert_cli.utils.text import first_line, plural, size_text

Stamp = list[int]
NAMES = RunPaths(Path())
COMPLETE = NAMES.complete.name
LAST = {MANIFEST: 1, NAMES.status.name: 2, COMPLETE: 3}
"""The place in the order of what says that other files are there; all others: 0."""
AT_ONCE_BYTES = 16 << 20
"""A file up to this size is read before it is put: it may grow meanwhile."""


PATIENCE_S = 60.0
"""How long training waits for what it had put before: a storage that hangs must not hold a GPU for hours."""


@dataclass(frozen=True)
class Remote:
    """What is at a URL.

    there: the names, each with the stamp of the local file that it is the same as; None: not known to be. stay: those that
    are not removed for want of a local file.
    """

    there: dict[str, Stamp | None]
    stay: set[str]


class Mirror:
    """Makes a URL hold what a local folder holds. `push` returns while files are put, and first waits for those before."""

    def __init__(self, storage: StoredFolder, folder: Path, claim: Claim, remote: Remote, report: Reporter) -> None:
        """Nothing is put before `push`."""
        self.storage = storage
        self.folder = folder
        self.claim = claim
        self.remote = remote
        self.report = report
        self._problem = ""
        self._closing = False
        self._pool = ThreadPoolExecutor(1, "storage")
        self._going: Future[None] | None = None

    def push(self) -> None:
        """Begin to put what has changed, if what was begun before is done. Raises RunLocked: another machine took the run."""
        is_free = self._going is None or bool(wait([self._going], PATIENCE_S).done)
        self.claim.require()
        if is_free:
            self._begin()
        else:
            self.report.warning(f"{self.storage} takes longer than training: the next checkpoint tries again")

    def close(self) -> str:
        """Put what is left, and return what kept it from being put, "" for nothing."""
        self._wait()
        self._closing = True
        self._begin()
        self._wait()
        self._pool.shutdown()
        return self._problem

    def _begin(self) -> None:
        self._going = self._pool.submit(self._put, files_of(self.folder))

    def _wait(self) -> None:
        if self._going is not None:
            self._going.result()

    def _put(self, files: Mapping[str, Stamp]) -> None:
        started = time.monotonic()
        try:
            put = {} if self.claim.is_lost() else self._bring_up_to(files)
            self._problem = ""
        except Exception as error:  # noqa: BLE001  whatever a storage's client raises, training goes on
            met = known(error)
            self._problem = f"not all of it is at {self.storage}: {met.message if met else first_line(error)}"
            if not self._closing:
                self.report.warning(f"{self._problem}; the next checkpoint tries again")
            return
        told = [PurePosixPath(name).parent.name for name in put if name.endswith(f"/{MANIFEST}")]
        told += ["the complete run"] if COMPLETE in put else []
        if told:
            took = f"{plural(len(put), 'file')}, {size_text(sum(put.values()))} in {time.monotonic() - started:.1f} s"
            self.report.info(f"stored    {', '.join(told)} at {self.storage}: {took}")

    def _bring_up_to(self, files: Mapping[str, Stamp]) -> dict[str, int]:
        """Make the URL hold these files; return the bytes of each that was put."""
        there, stay = self.remote.there, self.remote.stay
        stay.difference_update(files)  # who has it here may remove it
        changed = [name for name in files if there.get(name) != files[name]]
        gone = [name for name in there if name not in files and name not in stay]
        self._remove(name for name in changed if name in there and name.endswith(f"/{MANIFEST}"))
        put = {}
        for name in sorted(changed, key=lambda name: (_place(name), -name.count("/"), name)):
            size = self._put_one(name)
            if size is not None:
                there[name], put[name] = files[name], size
        self._remove(sorted(gone, key=_place, reverse=True))
        return put

    def _put_one(self, name: str) -> int | None:
        """Put a file and return its bytes; None for one that has gone meanwhile, as a checkpoint that is not kept."""
        path = self.folder / name
        try:
            size = path.stat().st_size
            if size <= AT_ONCE_BYTES:
                self.storage.write(name, path.read_bytes())
            else:
                self.storage.put(path, name)
        except (FileNotFoundError, InputError):
            if path.exists():
                raise
            return None
        return size

    def _remove(self, names: Iterable[str]) -> None:
        for name in list(names):
            self.storage.remove([name])
            self.remote.there.pop(name, None)


def files_of(folder: Path) -> dict[str, Stamp]:
    """Return the files of a run as they are now; what is being written, or removed, is hidden."""
    found = sorted(facts_of(files_below(folder)).items())
    names = [(path.relative_to(folder).as_posix(), facts) for path, facts in found if path.name != STOP_FILE]
    return {name: stamp_of(facts) for name, facts in names if not is_hidden(name)}


def is_hidden(name: str) -> bool:
    """Whether a file, or a folder that it is in, is none of a run's own."""
    return any(part.startswith(".") for part in name.split("/"))


def _place(name: str) -> int:
    return LAST.get(name.rpartition("/")[2], 0)
