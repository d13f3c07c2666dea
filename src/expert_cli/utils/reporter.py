"""The interface for messages and progress. The library never prints, and does not depend on a terminal."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

from expert_cli.utils.text import count

PLAIN_INTERVAL_S = 5.0
QUIET_S = 2.0
"""Work shorter than this needs no bar."""


class Bar:
    """A progress bar; this base class shows nothing."""

    def update(self, done: float, note: str = "") -> None:
        """Show `done` of the total (absolute, in the bar's unit) and a short note."""


class Reporter:
    """Receives lines, tables and progress; this base class ignores them."""

    def info(self, text: str) -> None:
        """Report a line."""

    def detail(self, text: str) -> None:
        """Report a line only for a run's log.txt."""

    def warning(self, text: str) -> None:
        """Report a line that the user should not miss."""

    def info_table(self, title: str, columns: list[str], rows: list[list[str]]) -> None:
        """Report a table; `columns` is its header."""

    @contextmanager
    def progress(self, title: str, total: float | None, unit: str = "") -> Iterator[Bar]:  # noqa: ARG002
        """Yield a bar. unit: what is counted; "B" for bytes, shown in kB, MB or GB."""
        yield Bar()


class NullReporter(Reporter):
    """A reporter without output, for tests and for use as a library."""


@contextmanager
def late_progress(report: Reporter, title: str, total: float | None, unit: str) -> Iterator[Callable[[float], None]]:
    """Yield a function that takes the amount done; a bar appears after two seconds."""
    started, bar = time.monotonic(), None
    with ExitStack() as stack:

        def show(done: float) -> None:
            nonlocal bar
            if bar is None and time.monotonic() - started > QUIET_S:
                bar = stack.enter_context(report.progress(title, total, unit))
            if bar is not None:
                bar.update(done)

        yield show


class PlainBar(Bar):
    """Writes at most one line every few seconds, and the final state if it has not been shown."""

    def __init__(self, say: Callable[[str], None], title: str, total: float | None, unit: str) -> None:
        """say: writes a line."""
        self.info, self.title, self.total, self.unit = say, title, total, unit
        self.shown = time.monotonic()
        self.first: tuple[float, float] | None = None
        self.counted = self.pending = ""

    def update(self, done: float, note: str = "") -> None:
        """Take the current state, and write it if enough time has passed. The first amount was done before the start."""
        counted, now = count(done, self.total, self.unit), time.monotonic()
        before, since = self.first = self.first or (done, now)
        line = f"{self.title}  {counted}  {note}".rstrip()
        # Training updates its bar after a step and again after logging it: the same count is not a new state.
        self.pending = "" if counted == self.counted else line
        if now - self.shown >= PLAIN_INTERVAL_S:
            left = (self.total - done) / (done - before) * (now - since) if self.total and done > before else None
            self.info(line + (f"  {left:,.0f} s left" if left else ""))
            self.shown, self.counted, self.pending = now, counted, ""

    def finish(self) -> None:
        """Write the final state if it has not been shown."""
        if self.pending:
            self.info(self.pending)
