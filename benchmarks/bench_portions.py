"""Measure packing of very many documents: time, memory, fill, and how alike the documents of a pack are; one core.

    python -m benchmarks.bench_portions [--documents 1000000,10000000,100000000] [--capacity 2048] [--folder DIR]

A token store is made for each size, in files of 20,000 documents as `pretokenize` writes them, and opened as training opens it.
Its lengths, 4 bytes a document and column, are real; ids and masks are zeros, which the file system keeps as holes, so that
10^8 documents take 1 GB of disk and not 110. Documents are of 1,000 kinds, one after another as sources are: a kind has a
median length, log-normal around 200 tokens (sigma 0.8), its documents lie around that (sigma 0.2), from 1 to `capacity`.

A process of its own opens the store and counts the packs of an epoch, which training does before its first step.
anonymous_mb: the most that it holds itself meanwhile, asked every 20 ms, and empty_mb before; resident_mb: that and the pages
of mapped files and libraries, of which the kernel takes those of files back where memory is short. Then it goes through the
epoch, portion by portion, and tells whether all documents are there once, and likeness: the share of pairs in a pack that are
of one kind, against that of all pairs; best_fit_likeness: that of best fit in one portion. wall_s: of opening and counting;
other seconds are of the processor.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from expert_cli.data.packing.epoch_packs import EpochPacks
from expert_cli.data.packing.order import epoch_order
from expert_cli.data.packing.plan import PackingPlan
from expert_cli.data.saved import STATE
from expert_cli.data.store.documents import Documents
from expert_cli.data.store.files import SCHEMA

KINDS = 1000
OF_A_FILE = 20_000
SEED = 42


class Sparse(io.FileIO):
    """A file that leaves holes for large buffers of zeros."""

    def write(self, data: Any) -> int:
        """Write a buffer, or leave a hole as large."""
        values = np.frombuffer(data, np.uint8)
        if len(values) < 4096 or values.any():
            return super().write(data) or 0
        self.truncate(self.seek(len(values), os.SEEK_CUR))
        return len(values)


def kinds_of(numbers: NDArray[np.int64], documents: int) -> NDArray[np.int64]:
    """Return the kind of every document."""
    return numbers * KINDS // documents


def make_store(folder: Path, documents: int, capacity: int) -> None:
    """Write the split `train` of a store with so many documents."""
    medians = np.random.default_rng(SEED).lognormal(np.log(200), 0.8, KINDS)
    zeros = np.zeros(OF_A_FILE * capacity, np.int32)
    folder.mkdir()
    names: list[str] = []
    for start in range(0, documents, OF_A_FILE):
        numbers = np.arange(start, min(start + OF_A_FILE, documents))
        spread = np.random.default_rng((SEED, start)).lognormal(0, 0.2, len(numbers))
        lengths = np.clip((medians[kinds_of(numbers, documents)] * spread).astype(np.int64), 1, capacity)
        offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
        tokens = int(offsets[-1])
        ids = pa.Array.from_buffers(pa.int32(), tokens, [None, pa.py_buffer(zeros[:tokens])])
        mask = pa.Array.from_buffers(pa.bool_(), tokens, [None, pa.py_buffer(zeros.view(np.uint8)[: -(-tokens // 8)])])
        columns = [pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), values) for values in (ids, mask)]
        names.append(f"data-{len(names):05d}.arrow")
        with Sparse(folder / names[-1], "wb") as file, pa.ipc.new_stream(pa.PythonFile(file), SCHEMA) as writer:
            writer.write_batch(pa.record_batch(columns, schema=SCHEMA))
    (folder / STATE).write_text(json.dumps({"_data_files": [{"filename": name} for name in names]}), encoding="utf-8")


class Memory(threading.Thread):
    """Asks every 20 ms what this process holds itself (Linux)."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.anonymous_mb = 0.0
        self.ended = threading.Event()

    def run(self) -> None:
        """Ask until it is ended."""
        while not self.ended.wait(0.02):
            self.anonymous_mb = max(self.anonymous_mb, status_mb("RssAnon"))


def status_mb(name: str) -> float:
    """Return a line of /proc/self/status in MB."""
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(f"{name}:"))


def measure(folder: Path, capacity: int) -> dict[str, Any]:
    """Count the packs of an epoch as training does, then go through them."""
    memory, clock, begun = Memory(), time.process_time, time.perf_counter()
    memory.start()
    started, empty_mb = clock(), status_mb("RssAnon")
    documents = Documents(folder)
    packs = EpochPacks(documents, capacity, "random", "truncate", SEED)
    opened = clock()
    packs.counts(0)
    counted, wall = clock(), time.perf_counter() - begun
    memory.ended.set()
    peaks = {"empty_mb": empty_mb, "anonymous_mb": memory.anonymous_mb, "resident_mb": status_mb("VmHWM")}
    seen = np.zeros(len(documents), np.uint8)
    alike = pairs = 0
    for portion in range(packs.portions):
        plan = packs.plan(0, portion)
        epoch_order(len(plan), SEED, 0, portion)
        seen[plan.documents] += 1
        found = pairs_of(plan, len(documents))
        alike, pairs = alike + found[0], pairs + found[1]
    best_fit = pairs_of(EpochPacks(documents, capacity, "best_fit", "truncate", SEED).plan(0, 0), len(documents))
    chance = (len(documents) / KINDS - 1) / (len(documents) - 1)  # kinds are of one size
    return {
        "documents": len(documents),
        "portions": packs.portions,
        "packs": packs.count(0),
        "fill": packs.fill(),
        "all_once": bool((seen == 1).all()),
        "likeness": alike / pairs / chance,
        "best_fit_likeness": best_fit[0] / best_fit[1] / chance,
        "open_s": opened - started,
        "count_s": counted - opened,
        "wall_s": wall,
        **{name: round(value) for name, value in peaks.items()},
    }


def pairs_of(plan: PackingPlan, documents: int) -> tuple[int, int]:
    """Return how many pairs of documents of a pack are of one kind, and how many pairs there are."""
    counts = np.diff(plan.offsets)
    groups = np.repeat(np.arange(len(plan)), counts) * KINDS + kinds_of(plan.documents, documents)
    same = np.unique(groups, return_counts=True)[1]
    return int((same * (same - 1) // 2).sum()), int((counts * (counts - 1) // 2).sum())


def main() -> None:
    """Print a line a size."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--documents", default="1000000,10000000,100000000")
    parser.add_argument("--capacity", type=int, default=2048)
    parser.add_argument("--folder", type=Path, help="where 12 bytes a document are free, and files may have holes")
    parser.add_argument("--store", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.store:
        row = measure(options.store, options.capacity)
        print(json.dumps({name: round(v, 5) if isinstance(v, float) else v for name, v in row.items()}), flush=True)
        return
    for documents in map(int, options.documents.split(",")):
        with tempfile.TemporaryDirectory(dir=options.folder) as folder:
            store = Path(folder) / "train"
            make_store(store, documents, options.capacity)
            command = [sys.executable, "-m", "benchmarks.bench_portions", "--store", str(store)]
            subprocess.run([*command, "--capacity", str(options.capacity)], check=True)


if __name__ == "__main__":
    main()
