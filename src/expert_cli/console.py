"""The one writer: data to stdout, words and progress to stderr.

The library knows only the `Reporter` protocol; a command makes a `Console` and hands it in.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

SCHEMA_VERSION = 1


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

    def progress(self, title: str, total: float | None, unit: str = "") -> Any:
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
