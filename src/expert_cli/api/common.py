"""What the functions of the API share."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

FilePath = str | os.PathLike[str]


@contextmanager
def expert_errors() -> Iterator[None]:
    """Raise a full disk, and a path that cannot be written, as the ExpertError that it is."""
    from expert_cli.runs.status import known

    try:
        yield
    except OSError as error:
        met = known(error)
        if met is None:
            raise
        raise met from error


def optional_path(path: FilePath | None) -> Path | None:
    """Return a path as one, None as None."""
    return None if path is None else Path(path)
