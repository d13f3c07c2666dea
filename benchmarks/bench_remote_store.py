"""Measure a token store that is put into object storage, and fetched from it, on a local S3 server.

    python -m benchmarks.bench_remote_store [--mb 1000] [--shard-mb 50] [--folder DIR] [--url s3://bucket/folder]

The store holds random ids. put: every object, the check of all, the fingerprint. fetch: every shard, verified by its hash, four
at a time, as training fetches them. The server is moto's, in Python, on the same machine: its own speed bounds what is
measured; with --url it is a real one, whose folder must not be one that something else lies in.
"""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import numpy as np

from expert_cli.data.store.copies import Copies
from expert_cli.data.store.files import FileHashCache
from expert_cli.data.store.key import StoreKey
from expert_cli.data.store.stored import AT_ONCE, StoreWriter, stored_fingerprint
from expert_cli.data.store.token_store import Contents, build
from expert_cli.data.tokenize.assemble import Encoded
from expert_cli.utils.object_storage import StoredFolder
from expert_cli.utils.reporter import NullReporter

TOKENS = 500
"""Of a document."""
TOKEN_BYTES = 4.125
KEY = StoreKey((("made by", "bench_remote_store"),))


def main() -> None:
    """Build a store, put it, fetch it, print a line each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mb", type=float, default=1000)
    parser.add_argument("--shard-mb", type=float, default=50)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--url")
    options = parser.parse_args()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=options.folder)))
        url = options.url or _local_server(stack)
        print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, {url}", flush=True)
        measure(folder, url, max(1, round(options.mb / options.shard_mb)), options.shard_mb * 1e6)


def _local_server(stack: ExitStack) -> str:
    from tests.object_storage import S3Server, in_environment

    server = S3Server()
    stack.callback(server.stop)
    stack.enter_context(in_environment(server.environment))
    return server.empty("bench")


def measure(folder: Path, url: str, shards: int, shard_bytes: float) -> None:
    """Print the speed of putting and of fetching a store of so many shards."""
    home = build(folder / "disk", KEY, contents(shards, shard_bytes), FileHashCache(folder / "memo"), NullReporter())
    size = sum(path.stat().st_size for path in home.rglob("*.arrow"))
    there = StoredFolder(url) / KEY.sha256[:12]
    there.info("first")  # libraries are loaded, and connected
    started = time.perf_counter()
    StoreWriter(there, NullReporter()).seal(home)
    told("put", size, shards, time.perf_counter() - started)
    shutil.rmtree(home)
    fingerprint = stored_fingerprint(there, KEY)
    if fingerprint is None:
        raise SystemExit(f"{there}: the store is not there")
    copies = Copies.of(there, fingerprint, folder / "copies")
    started = time.perf_counter()
    with ThreadPoolExecutor(AT_ONCE) as threads:
        list(threads.map(copies.fetch, copies.shards))
    told("fetch", size, shards, time.perf_counter() - started)


def contents(shards: int, shard_bytes: float) -> Contents:
    """Return shards of random ids."""
    documents = max(1, int(shard_bytes / TOKENS / TOKEN_BYTES))
    draw = np.random.default_rng(1)

    def made(_: str, skip: int) -> Iterator[Encoded]:
        offsets = np.arange(documents + 1) * TOKENS
        trained = np.ones(documents * TOKENS, bool)
        for _number in range(shards - skip):
            ids = draw.integers(0, 150_000, documents * TOKENS, np.int32)
            yield Encoded(ids, offsets, trained, np.arange(documents), 0)

    return Contents(("train",), made, lambda _: {})


def told(what: str, size: int, shards: int, seconds: float) -> None:
    """Print one line."""
    print(
        f"{what}: {size / 1e6:,.0f} MB in {shards} shards, {seconds:.1f} s, {size / 1e6 / seconds:,.0f} MB/s",
        flush=True,
    )


if __name__ == "__main__":
    main()
