"""A reporter that keeps what is said."""

from __future__ import annotations

from expert_cli.utils.reporter import NullReporter


class Heard(NullReporter):
    """said: in one line each. warned: likewise."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.warned: list[str] = []

    def info(self, text: str) -> None:
        self.said.append(text)

    def warning(self, text: str) -> None:
        self.warned.append(text)
