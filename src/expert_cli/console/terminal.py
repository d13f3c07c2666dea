"""Writes all output: data to stdout, messages and progress to stderr.

The library only uses the `Reporter` interface; a command creates a `Console` and passes it on.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import rich.console
from rich.table import Table
from rich.text import Text

from expert_cli.utils.files import naming
from expert_cli.utils.redaction import redact
from expert_cli.utils.reporter import Bar, PlainBar, Reporter
from expert_cli.utils.text import aligned, clean, count, failure_lines, is_figures

if TYPE_CHECKING:
    from rich.progress import Progress


SCHEMA_VERSION = 1


def wants_style(stream: TextIO | None) -> bool:
    """Return whether to write colors and live bars: only to a terminal, and not if NO_COLOR is set."""
    return stream is not None and stream.isatty() and not os.environ.get("NO_COLOR")


class _Stream(rich.console.Console):
    """An output stream without markup or emoji codes. It becomes silent when its reader is gone."""

    def __init__(self, *, stderr: bool) -> None:
        plain = not wants_style(sys.stderr if stderr else sys.stdout)
        super().__init__(stderr=stderr, highlight=False, emoji=False, force_terminal=False if plain else None)

    def words(self, text: str, style: str = "", end: str = "\n") -> None:
        """Write a message without wrapping, so that it can be searched and copied."""
        self.print(Text(text, style), soft_wrap=True, end=end)

    def data(self, text: str) -> None:
        """Write text unchanged, because rich would expand its tabs."""
        try:
            with naming(Path("standard output")):
                self.file.write(text)
                self.file.flush()
        except BrokenPipeError:
            self.on_broken_pipe()

    def table(self, title: str, columns: list[str], rows: list[list[str]]) -> None:
        """Write a table: in a terminal fitted to its width, otherwise one line for each row, with cells two blanks apart."""
        rows = [[clean(cell) for cell in row] for row in rows]
        if not (self.is_terminal and rows):
            self.words("\n".join([clean(title), *aligned(columns, rows)]))
            return
        self.words(clean(title))
        table = Table(box=None, pad_edge=False, header_style="bold")
        for index, cells in enumerate(zip(*rows, strict=True)):
            right = is_figures(cells)
            table.add_column(columns[index], no_wrap=index == 0, overflow="fold", justify="right" if right else "left")
        for row in rows:
            table.add_row(*map(Text, row))
        self.print(table)

    def on_broken_pipe(self) -> None:
        """Continue without a reader: `train | head` must not end the training."""
        self.quiet = True
        self.file = open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123, SIM115  kept open until the process ends
        os.dup2(self.file.fileno(), (sys.stderr if self.stderr else sys.stdout).fileno())


class Console(Reporter):
    """Writes the output of a command: live bars in a terminal, else plain lines.

    as_json: stdout gets one JSON document and nothing else. quiet: only warnings, errors and results.
    """

    def __init__(self, command: str, *, as_json: bool = False, quiet: bool = False) -> None:
        """Open both streams."""
        self.command = command
        self.as_json = as_json
        self.quiet = quiet
        self._out = _Stream(stderr=False)
        self._err = _Stream(stderr=True)

    def info(self, text: str) -> None:
        """Write a line about progress."""
        if not self.quiet:
            self._err.words(clean(text))

    def warning(self, text: str) -> None:
        """Write a warning."""
        self._err.words(f"warning: {clean(text)}", "yellow")

    def fail(self, message: str, hint: str, exit_code: int) -> None:
        """Write an error: a line with what and where, a line with what to do; with --json only the failure document."""
        if self.as_json:
            with suppress(OSError):  # the error may be that a document could not be written
                self.document({"error": {"exit_code": exit_code, "message": message, "hint": hint}})
                return
        first, *rest = failure_lines(message, hint)
        self._err.words(first, "red")
        for line in rest:
            self._err.words(line)

    def trace(self) -> None:
        """Write the traceback of the current exception."""
        self._err.words(clean(traceback.format_exc().rstrip()))

    def document(self, value: Mapping[str, Any]) -> None:
        """Write the command's JSON document."""
        head = {"schema_version": SCHEMA_VERSION, "command": self.command}
        self._out.data(redact(json.dumps({**head, **value}, ensure_ascii=True, default=str)) + "\n")

    def result(self, document: Mapping[str, Any], show: Callable[[], object]) -> None:
        """Write a command's result: its document with --json, else through `show`."""
        if self.as_json:
            self.document(document)
        else:
            show()

    def text(self, text: str) -> None:
        """Write a result as plain text to stdout."""
        self._out.data(f"{clean(text)}\n")

    def stream(self, pieces: Iterable[str]) -> None:
        """Write a result to stdout piece by piece, then end the line."""
        for piece in pieces:
            self._out.data(clean(piece))
        self.text("")

    def ask(self, text: str) -> None:
        """Write a prompt for a line of input, leaving the cursor after it."""
        self._err.words(text, "bold", end="")

    def table(self, title: str, columns: list[str], rows: list[list[str]]) -> None:
        """Write a result as a table."""
        self._out.table(title, columns, rows)

    def info_table(self, title: str, columns: list[str], rows: list[list[str]]) -> None:
        """Write a table of progress information."""
        if not self.quiet:
            self._err.table(title, columns, rows)

    @contextmanager
    def progress(self, title: str, total: float | None, unit: str = "") -> Iterator[Bar]:
        """Show a bar while the block runs."""
        if self.quiet:
            yield Bar()
        elif self._err.is_terminal:
            from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

            columns = (
                TextColumn("{task.description}", markup=False),
                BarColumn(bar_width=24),
                TextColumn("{task.fields[count]}", markup=False),
                TimeRemainingColumn(compact=True),
                TextColumn("{task.fields[note]}", markup=False),
            )
            with Progress(*columns, console=self._err) as progress:
                task = progress.add_task(title, total=total, count="", note="")
                yield _LiveBar(progress, task, total, unit)
        else:
            bar = PlainBar(self.info, title, total, unit)
            yield bar
            bar.finish()


class _LiveBar(Bar):
    def __init__(self, progress: Progress, task: Any, total: float | None, unit: str) -> None:
        self.progress, self.task, self.total, self.unit = progress, task, total, unit

    def update(self, done: float, note: str = "") -> None:
        self.progress.update(self.task, completed=done, count=count(done, self.total, self.unit), note=note)
