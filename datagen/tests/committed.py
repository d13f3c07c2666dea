"""Committed rows are what their maker makes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest


def require_committed(main: Callable[[], None], datasets: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a maker write its files into `folder`, and hold them against those of `datasets`."""
    monkeypatch.setattr("sys.argv", ["make", "--output", str(folder)])
    main()
    for name in ("train", "valid"):
        file = f"{name}.jsonl"
        assert (folder / file).read_text(encoding="utf-8") == (datasets / file).read_text(encoding="utf-8")
