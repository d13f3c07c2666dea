"""Work that processes of any number share, on any machines that see one folder: each piece of it is done once.

    .parts-<12 hex>/          named by what a store is made of, as far as that is known before its sources are hashed
      parts.json              that, and the expert
      <name>.json             what one piece of work gave, with a hash of itself; written last
      <name>.npz              its arrays

Who does a piece holds its lock, which the operating system frees when its owner dies. How many processes there are is
written nowhere: a part only says which pieces a process does first.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock, Timeout

from expert_cli.data.rows.as_json import Arrays
from expert_cli.data.store.inspect import PARTS, recorded_key
from expert_cli.data.store.key import StoreKey
from expert_cli.errors import InputError, IntegrityError
from expert_cli.utils.files import parse_json, read_sealed, remove, sha256_of, sync_file, write_json, write_sealed
from expert_cli.utils.reporter import Reporter

ABOUT = "parts.json"
POLL_S = 0.5


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
    for path in folder.glob(".lock-*"):
        try:
            with FileLock(path).acquire(timeout=0):
                pass
        except Timeout:
            return True
    return False


def parts_about(folder: Path) -> tuple[str, str] | None:
    """Return the expert that a folder's parts are for, and the key of what they became or ""; None for what are no parts."""
    try:
        told = parse_json((folder / ABOUT).read_bytes())
        return (str(told["expert"]), str(told.get("sealed", ""))) if isinstance(told["plan"], dict) else None
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


@dataclass(frozen=True)
class SharedWork:
    """The folder in which some processes build one store.

    plan: what it is made of; work of another plan is not taken. part: which pieces this process does first.
    """

    folder: Path
    plan: StoreKey
    part: Part
    report: Reporter

    @classmethod
    def beside(cls, store: Path, plan: StoreKey, part: Part, report: Reporter) -> SharedWork:
        """Return the folder of a plan where its stores lie."""
        return cls(store / f"{PARTS}{plan.sha256[:12]}", plan, part, report)

    def begin(self, expert: str) -> None:
        """Make the folder, unless it is there."""
        if not (self.folder / ABOUT).exists():
            write_json(self.folder / ABOUT, {"expert": expert, "plan": dict(self.plan.parts)})

    def sealed(self) -> str:
        """Return the key of the store that the parts have become, "" while they are none, or where it is gone."""
        _, key = parts_about(self.folder) or ("", "")
        return key if key and recorded_key(self.folder.parent / key[:12])[0] == key else ""

    def end(self, key: str) -> None:
        """Note what the parts have become, and remove them."""
        about = parse_json((self.folder / ABOUT).read_bytes())
        remove(self.folder)
        write_json(self.folder / ABOUT, {**about, "sealed": key})

    def parts_of(self, names: Sequence[str]) -> list[Part]:
        """Return the parts that have pieces that are not done, as the others of `names` tell how many parts there are."""
        told = [self.done(name) for name in names]
        counts = {Part.parse(one["part"]).count for one in told if one}
        if len(counts) != 1:
            return []
        (count,) = counts
        open_ = {number for number, one in enumerate(told) if one is None}
        return [part for part in (Part(n + 1, count) for n in range(count)) if open_ & {*part.own(len(names))}]

    def others(self) -> list[str]:
        """Return what is different in the newest parts of another plan beside these; nothing where there are none."""
        found = sorted(self.folder.parent.glob(f"{PARTS}*/{ABOUT}"), key=lambda path: path.stat().st_mtime)
        for path in reversed([path for path in found if path.parent != self.folder]):
            with suppress(OSError, ValueError, KeyError, TypeError):
                return [f"{path.parent}", *self.plan.changes(parse_json(path.read_bytes())["plan"])]
        return []

    def done(self, name: str) -> dict[str, Any] | None:
        """Return what a piece gave, None if it is not done, or what is there is not of this plan, or damaged."""
        try:
            told = read_sealed(self.folder / f"{name}.json")
        except (OSError, ValueError):
            return None
        return told if told.get("plan") == self.plan.sha256 and told.get("name") == name else None

    def arrays(self, name: str) -> Arrays:
        """Return the arrays of a piece that is done. Raises IntegrityError: they are not those that were written."""
        path = self.folder / f"{name}.npz"
        told = self.done(name)
        if told is None or not path.is_file() or sha256_of(path) != told["arrays"]:
            raise IntegrityError(
                f"{path}: is not what was written", f"delete {path.with_suffix('.json')}; run the part again"
            )
        with np.load(path) as found:
            return dict(found)

    def share(
        self,
        title: str,
        names: Sequence[str],
        do: Callable[[int], tuple[Mapping[str, Any], Arrays]],
        *,
        all_of: bool = True,
    ) -> None:
        """Do pieces that nobody has done, this part's own first, until all are done; all_of = False: until its own are.

        A piece that another process is doing is waited for, and done here where that process dies. do: gives what a piece of a
        number tells, and its arrays.
        """
        own = self.part.own(len(names))
        order = [*own, *(number for number in range(len(names)) if number not in own)] if all_of else [*own]
        open_ = [number for number in order if self.done(names[number]) is None]
        with self.report.progress(title, len(order), "pieces") as bar:
            while open_:
                bar.update(len(order) - len(open_))
                tried = [self._try(names[number], lambda number=number: do(number)) for number in open_]  # type: ignore[misc]
                if not any(tried):
                    time.sleep(POLL_S)
                open_ = [number for number in open_ if self.done(names[number]) is None]

    def _try(self, name: str, do: Callable[[], tuple[Mapping[str, Any], Arrays]]) -> bool:
        """Do a piece if no other process does it, or has done it; whether it was done here."""
        if self.done(name) is not None:
            return False
        try:
            with FileLock(self.folder / f".lock-{name}").acquire(timeout=0):
                if self.done(name) is None:
                    told, arrays = do()
                    self._write(name, told, arrays)
                    return True
        except Timeout:
            pass
        return False

    def _write(self, name: str, told: Mapping[str, Any], arrays: Arrays) -> None:
        path = self.folder / f"{name}.npz"
        if arrays:
            beside = path.with_suffix(".tmp.npz")
            np.savez(beside, **dict(arrays))  # type: ignore[arg-type]  # its stub takes the names for options
            sync_file(beside)
            beside.replace(path)
        about = {"plan": self.plan.sha256, "name": name, "part": str(self.part)}
        write_sealed(self.folder / f"{name}.json", {**told, **about, "arrays": sha256_of(path) if arrays else ""})
