"""log.txt of a run directory: every line that the run told, with its time (UTC)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path

from expert_cli.utils.reporter import Bar, Reporter
from expert_cli.utils.text import aligned, clean


class RunLog:
    """Keeps lines until it is told the file; from then on each is appended as it comes."""

    def __init__(self) -> None:
        """Begin without a file and without lines."""
        self._file: Path | None = None
        self._kept: list[str] = []

    def begin(self, file: Path) -> None:
        """Append to this file what was kept, and what comes."""
        self._file = file
        _append(file, self._kept)

    def write(self, text: str) -> None:
        """Take a text of one or more lines."""
        time = datetime.now(UTC).isoformat(timespec="seconds")
        lines = [f"{time} {line}".rstrip() + "\n" for line in clean(text).splitlines()]
        if self._file is None:
            self._kept += lines
        else:
            _append(self._file, lines)


class Logged(Reporter):
    """A reporter whose lines are written to a log as well."""

    def __init__(self, report: Reporter, log: RunLog) -> None:
        """Take the reporter that shows the lines, and the log that keeps them."""
        self.report, self.log = report, log

    def info(self, text: str) -> None:
        """Report one line of what happens."""
        self.log.write(text)
        self.report.info(text)

    def detail(self, text: str) -> None:
        """Keep one line of what happens."""
        self.log.write(text)

    def warning(self, text: str) -> None:
        """Report one line the user should not miss."""
        self.log.write(f"warning: {text}")
        self.report.warning(text)

    def info_table(self, title: str, columns: list[str], rows: list[list[str]]) -> None:
        """Report a table of what happens."""
        self.log.write("\n".join([title, *aligned(columns, rows)]))
        self.report.info_table(title, columns, rows)

    @contextmanager
    def progress(self, title: str, total: float | None, unit: str = "") -> Iterator[Bar]:
        """Show progress; status.json and metrics.jsonl keep how far a run is."""
        with self.report.progress(title, total, unit) as bar:
            yield bar


def _append(file: Path, lines: list[str]) -> None:
    # A full disk is told by the files that a run cannot be without; it must not keep the console from telling it.
    with suppress(OSError), file.open("a", encoding="utf-8", newline="\n") as log:
        log.writelines(lines)
