"""What every test session needs before the training libraries are imported."""

import os
import signal
from pathlib import Path

import pytest

# Tiny models gain nothing from threads, and lose seconds where threads wait for each other on a busy machine.
os.environ.setdefault("OMP_NUM_THREADS", "1")

from expert_cli._compat import quiet_imports

quiet_imports()

# A shell's background jobs ignore Ctrl-C, and what they start inherits that: the tests that send one would wait for ever.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def typescript_package() -> Path:
    """The npm package typescript, fetched once and kept in the cache; without it the tests that ask for it are skipped."""
    from typescript_check import compiler

    package = compiler()
    if package is None:
        pytest.skip("Node.js or the npm package typescript is missing and cannot be fetched")
    return package
