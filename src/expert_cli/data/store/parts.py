"""Work that processes of any number share, on any machines that see one folder: each task of it is done once.

    .parts-<12 hex>/          named by what a store is made of, as far as that is known before its sources are hashed
      parts.json              that, the expert, and the key of the store, once the parts are one
      <task>.npz              what a task gave: arrays, and what is told, as JSON
      <task>.json             the hash of that, with a hash of itself; written last

Who does a task holds its lock, which the operating system frees when its owner dies. How many processes there are is
written nowhere: a part only says which tasks a process does first.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock, Timeout

from expert_cli.data.rows.as_json import Arrays
from expert_cli.data.store.files import ShardRecord
from expert_cli.data.store.inspect import PARTS, recorded_key
from expert_cli.data.store.key import StoreKey
from expert_cli.errors import InputError, IntegrityError
from expert_cli.utils.files import parse_json, read_sealed, remove, sha256_of, sync_file, write_json, write_sealed
from expert_cli.utils.filesystem import facts_of, newest_first
from expert_cli.utils.locks import is_held
from expert_cli.utils.reporter import Reporter

ABOUT = "parts.json"
POLL_S = 0.5
_TOLD = "told"


@dataclass(frozen=True)
class Part:
    """Part `number` of `count`, from 1."""

    number: int
    count: int

    def __str__(self) -> str:
        """Return it as it is written: "3/8"."""
        return f"{self.number}/{self.count}"

    @classmethod
    def parse(cls, written: str) -> Part:
        """Return the part that "3/8" names. Raises InputError."""
        number, _, count = written.partition("/")
        if not (number.isdecimal() and count.isdecimal() and 1 <= int(number) <= int(count)):
            raise InputError(f'--part "{written}" is no part', "Write i/N: --part 1/8 to --part 8/8.")
        return cls(int(number), int(count))

    def own(self, pieces: int) -> range:
        """Return which of so many pieces are those of this part: each is one part's, a part's follow each other."""
        start, stop = ((number * pieces + self.count - 1) // self.count for number in (self.number - 1, self.number))
        return range(start, stop)


def is_worked_on(folder: Path) -> bool:
    """Return whether some process does a piece of the work in a folder just now."""
    return any(is_held(FileLock(path)) for path in folder.glob(".lock-*"))


def parts_about(folder: Path) -> tuple[str, str] | None:
    """Return the expert that a folder's parts are for, and the key of what they became or ""; None for what are no parts."""
    try:
        return read_about((folder / ABOUT).read_bytes())
    except OSError:
        return None


def read_about(written: bytes) -> tuple[str, str] | None:
    """Return what parts say of themselves, as `parts_about` does."""
    try:
        told = parse_json(written)
        return (str(told["expert"]), str(told.get("sealed", ""))) if isinstance(told["plan"], dict) else None
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


Given = tuple[Mapping[str, Any], Arrays]
"""What a task gives: what it tells, and arrays."""


@dataclass(frozen=True)
class SharedWork:
    """The folder in which some processes build one store.

    store: the folder of stores. plan: what this one is made of; work of another plan is not taken. part: which tasks this
    process does first.
    """

    store: Path
    plan: StoreKey
    part: Part
    report: Reporter

    @property
    def name(self) -> str:
        """The name of the plan's folder."""
        return f"{PARTS}{self.plan.sha256[:12]}"

    @property
    def folder(self) -> Path:
        """The folder of the plan."""
        return self.store / self.name

    def place(self, name: str = "") -> str:
        """Return where the parts lie, or a file of them, as it is told."""
        return str(self.folder / name)

    def above(self, name: str = "") -> str:
        """Return where the stores lie, or one of them, as it is told."""
        return str(self.store / name)

    def open(self, expert: str) -> None:
        """Begin, unless that was done; once the store that the parts became is gone, they are built again."""
        _, sealed = self.about() or ("", "no parts")
        if sealed:
            self.write_about({"expert": expert, "plan": dict(self.plan.parts)})

    def about(self) -> tuple[str, str] | None:
        """Return the expert that the parts are for, and the key of what they became or ""; None where there are none."""
        return parts_about(self.folder)

    def write_about(self, told: Mapping[str, Any]) -> None:
        """Note what the parts are of, and what they have become."""
        write_json(self.folder / ABOUT, told)

    def sealed(self) -> str:
        """Return the key of the store that the parts have become, "" while they are none, or where it is gone."""
        _, key = self.about() or ("", "")
        return key if key and self.has_store(key) else ""

    def has_store(self, key: str) -> bool:
        """Whether the store of a key lies beside the parts."""
        return recorded_key(self.store / key[:12])[0] == key

    def seal(self, key: str) -> None:
        """Note what the parts have become, and remove what they were made of."""
        expert, _ = self.about() or ("", "")
        self.write_about({"expert": expert, "plan": dict(self.plan.parts), "sealed": key})
        self.clear()

    def clear(self) -> None:
        """Remove what tasks gave."""
        for path in self.folder.iterdir():
            if path.name != ABOUT:
                with suppress(OSError):  # another process may look at it just now
                    remove(path)

    def is_done(self, name: str) -> bool:
        """Whether a task is done; not if what is there is of another plan or task, or damaged."""
        return self.recorded(name) is not None

    def recorded(self, name: str) -> dict[str, Any] | None:
        """Return the record of a task, None if it is not done."""
        try:
            told = read_sealed(self.folder / f"{name}.json")
        except (OSError, ValueError):
            return None
        return told if told.get("plan") == self.plan.sha256 and told.get("name") == name else None

    def result(self, name: str) -> Given:
        """Return what a task gave. Raises IntegrityError: it is not there, or not as it was written."""
        path = self.folder / f"{name}.npz"
        recorded = self.recorded(name)
        if recorded is None or not path.is_file() or sha256_of(path) != recorded["sha256"]:
            raise self.lost(f"{name}.npz", name)
        with np.load(path) as found:
            arrays = dict(found)
        return parse_json(arrays.pop(_TOLD).tobytes()), arrays

    def lost(self, file: str, name: str) -> IntegrityError:
        """Return the error of a file of a task that is not as it was written."""
        again = f"Delete {self.place(f'{name}.json')}; run the parts again, then seal."
        return IntegrityError(f"{self.place(file)}: is not what was written", again)

    def told(self, name: str) -> Mapping[str, Any]:
        """Return what a task told, as `result` does."""
        return self.result(name)[0]

    def share(self, title: str, names: Sequence[str], do: Callable[[int], Given], *, all_of: bool = True) -> None:
        """Do tasks that nobody has done, this part's own first, until all are done; all_of = False: until its own are.

        A task that another process does is waited for, and done here where that process dies. do: does the task of a number.
        """
        own = self.part.own(len(names))
        order = [*own, *range(own.stop, len(names)), *range(own.start)] if all_of else [*own]
        open_ = [number for number in order if not self.is_done(names[number])]
        with self.report.progress(title, len(order), "tasks") as bar:
            while open_:
                done, left = len(order) - len(open_), []
                for number in open_:
                    if self._try(names[number], partial(do, number)):
                        done += 1
                        bar.update(done)
                    else:
                        left.append(number)
                if len(left) == len(open_):
                    time.sleep(POLL_S)
                open_ = left

    def _try(self, name: str, do: Callable[[], Given]) -> bool:
        """Do a task, unless another process does it just now; whether it is done then."""
        if self.is_done(name):
            return True
        try:
            with FileLock(self.folder / f".lock-{name}").acquire(timeout=0):
                if not self.is_done(name):
                    self._write(name, *do())
                return True
        except Timeout:
            return False

    def _write(self, name: str, told: Mapping[str, Any], arrays: Arrays) -> None:
        path = self.folder / f"{name}.npz"
        beside = path.with_suffix(".tmp.npz")
        json_bytes = np.frombuffer(
            json.dumps(told).encode(), np.uint8
        )  # not as JSON on disk, which hides secrets of rows
        try:
            np.savez(beside, **{_TOLD: json_bytes}, **dict(arrays))  # type: ignore[arg-type]  # its stub takes names for options
            sync_file(beside)
            beside.replace(path)
        finally:
            beside.unlink(missing_ok=True)
        about = {"plan": self.plan.sha256, "name": name, "part": str(self.part), "sha256": sha256_of(path)}
        self.share_out(name, about, [shard["file"] for shard in told.get("shards", ())])
        write_sealed(self.folder / f"{name}.json", about)

    def share_out(self, name: str, about: Mapping[str, Any], shards: Sequence[str]) -> None:
        """Let others have what a task gave, with the shards that it wrote: who shares this folder has it."""

    def parts_of(self, names: Sequence[str]) -> list[Part]:
        """Return the parts that have tasks that are not done, as the others of `names` tell how many parts there are."""
        told = [self.recorded(name) for name in names]
        counts = {Part.parse(one["part"]).count for one in told if one}
        if len(counts) != 1:
            return []
        (count,) = counts
        open_ = {number for number, one in enumerate(told) if one is None}
        return [part for part in (Part(n + 1, count) for n in range(count)) if open_ & {*part.own(len(names))}]

    def others(self) -> list[str]:
        """Return what is different in the newest parts of another plan beside these; nothing where there are none."""
        found = newest_first(self.store.glob(f"{PARTS}*/{ABOUT}"))
        for path in [path for path in found if path.parent != self.folder]:
            with suppress(OSError, ValueError, KeyError, TypeError):
                return [f"{path.parent}", *self.plan.changes(parse_json(path.read_bytes())["plan"])]
        return []

    def shards_lost(self, shards: Sequence[ShardRecord]) -> list[str]:
        """Return those of some shards that are not there as they were written, by their sizes."""
        there = {path: facts.st_size for path, facts in facts_of(self.folder / shard.file for shard in shards).items()}
        return [shard.file for shard in shards if there.get(self.folder / shard.file) != shard.bytes]
