"""The one writer: data to stdout, words and progress to stderr.

The library knows only the `Reporter` protocol; a command makes a `Console` and hands it in.
"""

from __future__ import annotations

import io
import json
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Protocol

import rich.console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from expert_cli.files import redact

SCHEMA_VERSION = 1
PLAIN_INTERVAL_S = 5.0


class Bar(Protocol):
    """A running progress display."""

    def update(self, done: float, note: str = "") -> None:
        """Show `done` of the total (absolute, in the bar's unit) and a short note beside it."""


class Reporter(Protocol):
    """Where the library reports what it does; it never prints by itself."""

    def say(self, text: str) -> None:
        """Report one line of what happens."""

    def warn(self, text: str) -> None:
        """Report one line the user should not miss."""

    def progress(self, title: str, total: float | None, unit: str = "") -> AbstractContextManager[Bar]:
        """Return a context manager that yields a `Bar`."""


class SilentBar:
    """A bar nobody looks at."""

    def update(self, done: float, note: str = "") -> None:
        """Do nothing."""


class Silent:
    """A reporter that says nothing: for tests and for use as a library."""

    def say(self, text: str) -> None:
        """Do nothing."""

    def warn(self, text: str) -> None:
        """Do nothing."""

    @contextmanager
    def progress(self, title: str, total: float | None, unit: str = "") -> Iterator[Bar]:  # noqa: ARG002
        """Yield a bar that shows nothing."""
        yield SilentBar()


class Console:
    """Writes to the terminal: live bars where there is one, plain lines where there is none.

    as_json: stdout gets one JSON document and nothing else. quiet: only warnings, errors and results.
    """

    def __init__(self, command: str, *, as_json: bool = False, quiet: bool = False) -> None:
        """Open both streams; characters that the console cannot show are replaced, never an error."""
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, io.TextIOWrapper):
                stream.reconfigure(errors="replace")
        self.command = command
        self.as_json = as_json
        self.quiet = quiet
        self._out = rich.console.Console(highlight=False, soft_wrap=True)
        self._err = rich.console.Console(stderr=True, highlight=False, soft_wrap=True)

    def say(self, text: str) -> None:
        """Write one line of what happens."""
        if not self.quiet:
            self._err.print(redact(text), markup=False)

    def warn(self, text: str) -> None:
        """Write a warning."""
        self._err.print(f"warning: {redact(text)}", markup=False, style="yellow")

    def fail(self, message: str, hint: str, exit_code: int) -> None:
        """Write an error: what and where, then what to do; with --json the document of the failure."""
        if self.as_json:
            self.document({"error": {"exit_code": exit_code, "message": redact(message), "hint": redact(hint)}})
            return
        self._err.print(f"error: {redact(message)}", markup=False, style="red")
        if hint:
            self._err.print(f"  {redact(hint)}", markup=False)

    def document(self, value: Mapping[str, Any]) -> None:
        """Write the one JSON document of this command."""
        head = {"schema_version": SCHEMA_VERSION, "command": self.command}
        sys.stdout.write(redact(json.dumps({**head, **value}, ensure_ascii=True, default=str)) + "\n")
        sys.stdout.flush()

    def text(self, text: str) -> None:
        """Write a result as plain text to stdout."""
        sys.stdout.write(redact(text) + "\n")

    def marked(self, runs: Iterable[tuple[str, bool]]) -> None:
        """Write text whose marked runs stand out: green on a terminal, between » and « elsewhere."""
        if self._out.is_terminal and not self._out.no_color:
            for text, is_marked in runs:
                self._out.print(redact(text), markup=False, end="", style="bold green" if is_marked else "dim")
            self._out.print()
        else:
            self.text("".join(f"»{text}«" if is_marked else text for text, is_marked in runs))

    def table(self, title: str, columns: list[str], rows: list[list[str]], *, to_stdout: bool = True) -> None:
        """Write a table, sized to the terminal; without one every row is one line, cells two blanks apart."""
        console = self._out if to_stdout else self._err
        if not console.is_terminal:
            widths = [max(len(row[i]) for row in [columns, *rows]) for i in range(len(columns))]
            lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]
            console.print("\n".join([title, *(line.rstrip() for line in lines)]), markup=False)
            return
        table = Table(title=title, title_justify="left", box=None, pad_edge=False, header_style="bold")
        for column in columns:
            table.add_column(column, overflow="fold")
        for row in rows:
            table.add_row(*(rich.markup.escape(redact(cell)) for cell in row))
        console.print(table)

    @contextmanager
    def progress(self, title: str, total: float | None, unit: str = "") -> Iterator[Bar]:
        """Show a bar while the block runs."""
        if self.quiet:
            yield SilentBar()
        elif self._err.is_terminal:
            columns = (
                TextColumn("{task.description}"),
                BarColumn(bar_width=24),
                TextColumn("{task.fields[count]}"),
                TimeRemainingColumn(compact=True),
                TextColumn("{task.fields[note]}"),
            )
            with Progress(*columns, console=self._err) as progress:
                task = progress.add_task(title, total=total, count="", note="")
                yield _LiveBar(progress, task, total, unit)
        else:
            bar = _PlainBar(self, title, total, unit)
            yield bar
            bar.finish()


class _LiveBar:
    def __init__(self, progress: Progress, task: Any, total: float | None, unit: str) -> None:
        self.progress = progress
        self.task = task
        self.total = total
        self.unit = unit

    def update(self, done: float, note: str = "") -> None:
        self.progress.update(self.task, completed=done, count=_count(done, self.total, self.unit), note=note)


class _PlainBar:
    """One line at most every few seconds, and the last state once more at the end."""

    def __init__(self, console: Console, title: str, total: float | None, unit: str) -> None:
        self.console = console
        self.title = title
        self.total = total
        self.unit = unit
        self.started = self.shown = time.monotonic()
        self.pending = ""

    def update(self, done: float, note: str = "") -> None:
        self.pending = f"{self.title}  {_count(done, self.total, self.unit)}  {note}".rstrip()
        now = time.monotonic()
        if now - self.shown >= PLAIN_INTERVAL_S:
            left = (self.total - done) / done * (now - self.started) if self.total and done else None
            self.console.say(self.pending + (f"  {left:,.0f} s left" if left else ""))
            self.shown, self.pending = now, ""

    def finish(self) -> None:
        if self.pending:
            self.console.say(self.pending)


def _count(done: float, total: float | None, unit: str) -> str:
    of_total = f"/{total:,.0f}" if total else ""
    return f"{done:,.0f}{of_total} {unit}".rstrip()
