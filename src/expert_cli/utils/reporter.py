"""Where the library reports what it does: it never prints, and knows no terminal."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

from expert_cli.utils.text import count

PLAIN_INTERVAL_S = 5.0
QUIET_S = 2.0
"""What is done within this needs no bar."""


class Bar:
    """A running progress display; this one shows nothing."""

    def update(self, done: float, note: str = "") -> None:
        """Show `done` of the total (absolute, in the bar's unit) and a short note beside it."""


class Reporter:
    """Where lines, tables and progress go; this one says nothing."""

    def info(self, text: str) -> None:
        """Report one line of what happens."""

    def detail(self, text: str) -> None:
        """Report one line that a run's log.txt keeps, and no screen shows."""

    def warning(self, text: str) -> None:
        """Report one line the user should not miss."""

    def info_table(self, title: str, columns: list[str], rows: list[list[str]]) -> None:
        """Report a table of what happens; `columns` are its heads."""

    @contextmanager
    def progress(self, title: str, total: float | None, unit: str = "") -> Iterator[Bar]:  # noqa: ARG002
        """Yield a bar. unit: what is counted; "B" for bytes, shown in kB, MB or GB."""
        yield Bar()


class NullReporter(Reporter):
    """A reporter that says nothing: for tests and for use as a library."""


@contextmanager
def late_progress(report: Reporter, title: str, total: float | None, unit: str) -> Iterator[Callable[[float], None]]:
    """Yield what takes how much is done; a bar is shown where that goes on for longer than two seconds."""
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
    """One line at most every few seconds, and at the end the last state, if its count was not shown yet."""

    def __init__(self, say: Callable[[str], None], title: str, total: float | None, unit: str) -> None:
        """say: takes a line."""
        self.info, self.title, self.total, self.unit = say, title, total, unit
        self.shown = time.monotonic()
        self.first: tuple[float, float] | None = None
        self.counted = self.pending = ""

    def update(self, done: float, note: str = "") -> None:
        """Take the present state, and say it if it is time. What a first state says as done was done before the bar."""
        counted, now = count(done, self.total, self.unit), time.monotonic()
        before, since = self.first = self.first or (done, now)
        line = f"{self.title}  {counted}  {note}".rstrip()
        # Training moves its bar after a step and again when it has logged it: the same count is no later state.
        self.pending = "" if counted == self.counted else line
        if now - self.shown >= PLAIN_INTERVAL_S:
            left = (self.total - done) / (done - before) * (now - since) if self.total and done > before else None
            self.info(line + (f"  {left:,.0f} s left" if left else ""))
            self.shown, self.counted, self.pending = now, counted, ""

    def finish(self) -> None:
        """Say the last state."""
        if self.pending:
            self.info(self.pending)
