"""Which processes stand after a part of a test that did not before."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import psutil


@contextmanager
def none_left(*kept: str) -> Iterator[None]:
    """Assert that no process was left behind, but for those whose command names a file of `kept`: servers that stay.

    Which of them ran before depends on the tests before: they are told by what they run, not counted.
    """
    before = {*psutil.Process().children(recursive=True)}
    yield
    left = {*psutil.Process().children(recursive=True)} - before
    assert [child for child in left if not any(name in " ".join(child.cmdline()) for name in kept)] == []
