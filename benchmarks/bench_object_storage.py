"""Measure reading rows from object storage against the same rows in a local file: MB/s, and requests.

    python -m benchmarks.bench_object_storage [--mb 40] [--runs 5] [--forms .jsonl,.jsonl.zst,.parquet]

The storage is moto's S3 server in a process of its own on this machine: its speed is Python's, and no network's. So the bytes
of the object by themselves are fetched too, as a measure of what the server gives. The three ways take turns, `runs` times
after one that is not counted; medians are told, and of stored and local reading the median of the ratios of a turn. MB are
those of the JSON lines, for the object those that it has.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from benchmarks.bench_files import write_form
from benchmarks.bench_tokenize import write_rows
from expert_cli.data.formats.raw_row import ColumnFilter, Piece
from expert_cli.data.formats.registry import read_blocks
from expert_cli.data.places import DataFile, open_file, stored_files
from expert_cli.utils.object_storage import StoredFolder
from tests.object_storage import S3Server, in_environment

COLUMNS = frozenset({"question", "answer", "instruction", "input", "output", "text"})
_BLOCK_BYTES = 4 << 20


def main() -> None:
    """Write the rows in every form here and in the storage, read both by turns, print a row of the table a form."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mb", type=float, default=40)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--forms", default=".jsonl,.jsonl.zst,.parquet")
    options = parser.parse_args()
    server = S3Server()
    try:
        with tempfile.TemporaryDirectory() as folder, in_environment(server.environment):
            compare(options, Path(folder), server)
    finally:
        server.stop()


def compare(options: argparse.Namespace, folder: Path, server: S3Server) -> None:
    """Print what both ways of reading take, form by form."""
    plain = folder / "rows.jsonl"
    count = write_rows(plain, options.mb * 1e6)
    rows = [json.loads(line) for line in plain.read_text(encoding="utf-8").split("\n") if line]
    bucket, mb = StoredFolder(server.empty("bench")), plain.stat().st_size / 1e6
    print(f"{count:,} rows, {mb:.1f} MB, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    print("| form | object MB | local MB/s | stored MB/s | stored : local | object MB/s | requests |")
    print("|---" * 7 + "|")
    for form in options.forms.split(","):
        path = write_form(plain, rows, form)
        bucket.put(path, path.name)
        (stored,) = stored_files([bucket / path.name])
        ways: list[Callable[[], object]] = [partial(read, path), partial(read, stored), partial(fetch, stored)]
        turns = [[seconds(way) for way in ways] for _ in range(options.runs + 1)][1:]
        server.door.requests.clear()
        if read(stored) != read(path):
            raise SystemExit(f"{form}: the stored rows are not the local ones")
        requests = len(server.door.requests)
        local_s, stored_s, object_s = map(statistics.median, zip(*turns, strict=True))
        ratio = statistics.median(turn[0] / turn[1] for turn in turns)
        size = stored.info.size / 1e6
        told = [size, mb / local_s, mb / stored_s, ratio, size / object_s]
        print(f"| `{form}` | {' | '.join(f'{value:.2f}' for value in told)} | {requests} |")


def read(file: DataFile) -> int:
    """Read the rows of a file as training does first, and no more; return how many there are."""
    return sum(block.count for block in read_blocks(Piece(file), ColumnFilter(COLUMNS)))


def fetch(file: DataFile) -> int:
    """Read the bytes of a file and drop them; return how many there are."""
    total = 0
    with open_file(file) as opened:
        while block := opened.read(_BLOCK_BYTES):
            total += len(block)
    return total


def seconds(do: Callable[[], object]) -> float:
    """Return how long something takes."""
    start = time.perf_counter()
    do()
    return time.perf_counter() - start


if __name__ == "__main__":
    main()
