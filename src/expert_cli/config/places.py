"""Where a path that a manifest names lies."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path


def place_of(written: str, folders: Sequence[Path]) -> Path:
    """Return a path, absolute: in the first of `folders` that has it, in the first of all where none does.

    Backslashes part folders on every system.
    """
    places = [(folder / written.replace("\\", "/")).absolute() for folder in folders]
    return next((place for place in places if place.exists()), places[0])
