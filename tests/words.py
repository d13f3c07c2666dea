"""A reporter that keeps what is said."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from expert_cli.utils.reporter import NullReporter


class Words(NullReporter):
    """Keeps what is said and every bar's title."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.bars: list[str] = []

    def info(self, text: str) -> None:
        self.lines.append(text)

    def warning(self, text: str) -> None:
        self.lines.append(f"warning: {text}")

    @contextmanager
    def progress(self, title: str, total: float | None, unit: str = "") -> Iterator[Any]:
        self.bars.append(title)
        with super().progress(title, total, unit) as bar:
            yield bar
