"""Who writes a run in object storage, which has no locks: an object names the writer, which refreshes it.

URL/.writer.json    {"token", "host", "pid", "started", "beat", "ended"}; `token` is that of the writer's local folder

Whoever comes and finds there

    nothing, or what has ended            takes the run
    the token of its own folder           takes the run: the folder's own lock says that none of its processes is left
    another one's                         watches for LOOK_S: what is not refreshed was a machine that has vanished, and is
                                          taken; what is refreshed may still be saving, and is waited for, then refused

A writer that finds another one's name in its place, as after an hour without a network, writes no more. Between its look
and its writing both may write: a checkpoint of two writers does not match its hashes, and the one before it is used.
"""

from __future__ import annotations

import json
import os
import platform
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime, timezone
from typing import Any

from expert_cli.errors import ExpertError, InputError, RunLocked
from expert_cli.utils.files import parse_json
from expert_cli.utils.object_storage import StoredFolder
from expert_cli.utils.reporter import Reporter
from expert_cli.utils.text import moment

WRITER = ".writer.json"
BEAT_S = 10.0
LOOK_S = 25.0
"""Two beats, and what a slow one may take."""
WAIT_S = 150.0
"""How long a writer is waited for: a scheduler gives a run 120 s to save, and may start it elsewhere meanwhile."""


class Claim:
    """What keeps others from writing a run while it is held. token: of the local folder, the same whenever that writes."""

    def __init__(self, storage: StoredFolder, token: str) -> None:
        """Nothing is read or written before `held`."""
        self.storage = storage
        self.token = token
        self.was_ours = False
        """Whether the local folder was the last one to write there."""
        self._lost = ""
        self._started = _now()
        self._writing = threading.Lock()
        self._over = threading.Event()

    @contextmanager
    def held(self, report: Reporter) -> Iterator[None]:
        """Hold the run. Raises RunLocked: another machine writes it; EnvironmentProblem: the storage cannot be written."""
        found = self._read()
        self.was_ours = found.get("token") == self.token
        if found and not self.was_ours:
            self._wait_for(found, report)
        self._write(ended=False)
        threading.Thread(target=self._refresh, name="claim", daemon=True).start()
        try:
            yield
        finally:
            with self._writing:
                self._over.set()
            with suppress(ExpertError):  # nobody waits long for what is not refreshed
                if not self.is_lost():
                    self._write(ended=True)

    def is_lost(self) -> bool:
        """Whether another machine has taken the run, as the storage tells now."""
        found = self._read()
        if found and found.get("token") != self.token:
            self._lost = self._lost or _words(found)
        return bool(self._lost)

    def require(self) -> None:
        """Raise RunLocked if another machine was found to have taken the run."""
        if self._lost:
            raise RunLocked(
                f"{self.storage} is written by {self._lost}, which took this run for one that had vanished",
                "let one of them train: what is at the URL goes on there",
            )

    def _wait_for(self, other: dict[str, Any], report: Reporter) -> None:
        """Return when another writer has ended or is refreshed no more. Raises RunLocked."""
        began = changed = time.monotonic()
        if not other.get("ended"):
            report.info(f"looking whether {_words(other)} still writes {self.storage}: up to {LOOK_S:g} s")
        while not other.get("ended") and time.monotonic() - changed < LOOK_S:
            time.sleep(min(1.0, LOOK_S / 4))
            found = self._read()
            if found == other:
                continue
            if changed == began and found and not found.get("ended"):
                report.info(f"it does: waiting for its end, up to {WAIT_S:g} s")
            other, changed = found or {"ended": True}, time.monotonic()
            if changed - began > WAIT_S and not other.get("ended"):
                raise RunLocked(
                    f"{self.storage} is written by {_words(other)}",
                    "wait for that run, end it, or give another URL with --output",
                )

    def _refresh(self) -> None:
        while not self._over.wait(BEAT_S):
            with suppress(ExpertError), self._writing:  # out of reach: the next time, or what is put then, tells
                if self._over.is_set() or self.is_lost():
                    return
                self._write(ended=False)

    def _read(self) -> dict[str, Any]:
        """Return who writes, {} where nothing tells."""
        try:
            found = parse_json(self.storage.read(WRITER))
        except (InputError, ValueError):
            return {}
        return found if isinstance(found, dict) else {}

    def _write(self, *, ended: bool) -> None:
        facts = {
            "token": self.token,
            "host": platform.node(),
            "pid": os.getpid(),
            "started": self._started,
            "beat": _now(),
            "ended": ended,
        }
        self.storage.write(WRITER, (json.dumps(facts, indent=2) + "\n").encode())


def _words(writer: dict[str, Any]) -> str:
    return f"process {writer.get('pid')} on {writer.get('host')}, started {moment(str(writer.get('started')))}"


def _now() -> str:
    return datetime.now(timezone.utc).isoformat()
