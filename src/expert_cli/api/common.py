"""What the functions of the API share."""

from __future__ import annotations

import os
from pathlib import Path

FilePath = str | os.PathLike[str]


def optional_path(path: FilePath | None) -> Path | None:
    """Return a path as one, None as None."""
    return None if path is None else Path(path)
