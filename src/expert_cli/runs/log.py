"""Writes log.txt of a run directory: every reported line, with its time (UTC)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path

from expert_cli.utils.reporter import Bar, Reporter
from expert_cli.utils.text import aligned, clean


class RunLog:
    """Keeps lines in memory until the file is known; later lines are appended to the file at once."""

    def __init__(self) -> None:
        """Begin without a file and without lines."""
        self._file: Path | None = None
        self._kept: list[str] = []

    def begin(self, file: Path) -> None:
        """Write the kept lines to this file, and append all further ones."""
        self._file = file
        _append(file, self._kept)

    def write(self, text: str) -> None:
        """Log a text of one or more lines."""
        time = datetime.now(UTC).isoformat(timespec="seconds")
        lines = [f"{time} {line}".rstrip() + "\n" for line in clean(text).splitlines()]
        if self._file is None:
            self._kept += lines
        else:
            _append(self._file, lines)


class Logged(Reporter):
    """A reporter whose lines are also written to a log."""

    def __init__(self, report: Reporter, log: RunLog) -> None:
        """Take the reporter that shows the lines, and the log that keeps them."""
        self.report, self.log = report, log

    def info(self, text: str) -> None:
        """Report a line."""
        self.log.write(text)
        self.report.info(text)

    def detail(self, text: str) -> None:
        """Write a line only to the log."""
        self.log.write(text)

    def warning(self, text: str) -> None:
        """Report a line that the user should not miss."""
        self.log.write(f"warning: {text}")
        self.report.warning(text)

    def info_table(self, title: str, columns: list[str], rows: list[list[str]]) -> None:
        """Report a table."""
        self.log.write("\n".join([title, *aligned(columns, rows)]))
        self.report.info_table(title, columns, rows)

    @contextmanager
    def progress(self, title: str, total: float | None, unit: str = "") -> Iterator[Bar]:
        """Show progress. It is not logged, because status.json and metrics.jsonl record it."""
        with self.report.progress(title, total, unit) as bar:
            yield bar


def _append(file: Path, lines: list[str]) -> None:
    # Writing other files reports a full disk; here it must not stop messages to the console.
    with suppress(OSError), file.open("a", encoding="utf-8", errors="backslashreplace", newline="\n") as log:
        log.writelines(lines)
