"""Measure each form of a file of rows: reading alone, to tokens in our verified store, `datasets.load_dataset` with `map`.

    python -m benchmarks.bench_files [--mb 20] [--runs 3] [--forms .jsonl,.jsonl.gz] [--ways read,fastokens,datasets.map]
    python -m benchmarks.bench_files --read FILE

Rows and ways are those of bench_tokenize.py, the same text in every form, but .txt has the answers alone, a line each. A way is
a process that does all forms, the first one once more before, and each form `runs` times; medians are told. MB are those of
the JSON lines. A row has the form, its MB, the processor time of unpacking it with nothing done to it, and of each way MB/s,
processor time, and the ratio of that to the plain file's and of unpacking. --read: reads a file's rows, no more, and tells
by how much the process grew.
"""

from __future__ import annotations

import argparse
import bz2
import csv
import gzip
import json
import lzma
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.bench_tokenize import WAYS, Measured, meter, write_rows
from expert_cli.data.formats.compression import open_data
from expert_cli.data.formats.raw_row import ColumnFilter, Piece
from expert_cli.data.formats.registry import read_blocks

COMPRESSIONS = (".gz", ".zst", ".bz2", ".xz")
FORMS = (
    ".jsonl",
    *(f".jsonl{suffix}" for suffix in COMPRESSIONS),
    ".json",
    ".json.gz",
    ".csv",
    ".csv.gz",
    ".tsv",
    ".txt",
)
TABLES = (".parquet", ".arrow")


def main() -> None:
    """Write the rows in every form, do both ways on all, print a row of the table a form."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mb", type=float, default=20)
    parser.add_argument("--ways", default="read,fastokens,datasets.map")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--forms", default=",".join((*FORMS, *TABLES)))
    parser.add_argument("--child", nargs=2, metavar=("WAY", "FOLDER"))
    parser.add_argument("--read", type=Path, metavar="FILE")
    options = parser.parse_args()
    if options.read:
        print(", ".join(f"{name} {value:,.2f}" for name, value in read(options.read).items()))
        return
    forms = options.forms.split(",")
    if options.child:
        way, folder = options.child
        print(json.dumps(measure(way, [Path(folder) / f"rows{form}" for form in forms], options.runs)))
        return
    with tempfile.TemporaryDirectory() as folder:
        plain = Path(folder) / "rows.jsonl"
        count = write_rows(plain, options.mb * 1e6)
        rows = [json.loads(line) for line in plain.read_text(encoding="utf-8").split("\n") if line]
        paths = {form: write_form(plain, rows, form) for form in forms}
        mb = plain.stat().st_size / 1e6
        print(f"{count:,} rows, {mb:.1f} MB, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
        found = {way: child(way, folder, options) for way in options.ways.split(",")}
        for form, path in paths.items():
            plain_form = next((form.removesuffix(suffix) for suffix in COMPRESSIONS if form.endswith(suffix)), "")
            unpack_s = unpacking(path) if plain_form else 0.0
            told = [f"`{form}`", f"{path.stat().st_size / 1e6:.1f}", f"{unpack_s:.2f}" if plain_form else ""]
            for by_form in found.values():
                own, plain_own = by_form.get(form), by_form.get(plain_form)
                ratio = own and plain_own and f"{own['cpu_s'] / (plain_own['cpu_s'] + unpack_s):.2f}"
                told += [f"{mb / own['seconds']:.1f}", f"{own['cpu_s']:.2f}", ratio or ""] if own else ["-", "-", ""]
            print(f"| {' | '.join(told)} |")


def read(path: Path) -> Measured:
    """Read the rows of a file as training does first, and no more."""
    names = ColumnFilter(frozenset({"question", "answer", "instruction", "input", "output", "text"}))
    told = meter()
    blocks = read_blocks(Piece(path), names)
    rows = sum(1 for block in blocks for _ in (block.raw() if block.texts is None else range(block.count)))
    return {**told(), "rows": rows}


def child(way: str, folder: str, options: argparse.Namespace) -> dict[str, Measured]:
    """Do a way in a process of its own, and return what was measured, by form."""
    asked = ["--forms", options.forms, "--runs", str(options.runs), "--child", way, folder]
    command = [sys.executable, "-m", "benchmarks.bench_files", *asked]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    measured: dict[str, Measured] = json.loads(done.stdout.splitlines()[-1])
    return measured


def measure(way: str, paths: Sequence[Path], runs: int) -> dict[str, Measured]:
    """Return the medians of each form; of one that a way cannot read nothing."""
    found: dict[str, list[Measured]] = {}
    for path in [paths[0], *(path for _ in range(runs) for path in paths)]:
        try:
            measured = (read if way == "read" else WAYS[way])(path)
            found.setdefault(path.name.removeprefix("rows"), []).append(measured)
        except (OSError, ValueError) as error:
            print(f"{way}: {path.name}: {error}", file=sys.stderr)
    keys = ("seconds", "cpu_s")
    # The first run of all warms up what is loaded once.
    found[paths[0].name.removeprefix("rows")] = found[paths[0].name.removeprefix("rows")][1:]
    return {form: {key: statistics.median(one[key] for one in some) for key in keys} for form, some in found.items()}


def unpacking(path: Path) -> float:
    """Return the processor time of reading a compressed file through."""
    start = time.process_time()
    with open_data(path) as file:
        while file.read(4 << 20):
            pass
    return time.process_time() - start


def write_form(plain: Path, rows: list[dict[str, str]], form: str) -> Path:
    """Write the rows in one form beside the plain file and return its path."""
    inner, packed = next(
        ((form.removesuffix(suffix), suffix) for suffix in COMPRESSIONS if form.endswith(suffix)), (form, "")
    )
    path = plain.with_name(f"rows{inner}")
    if not path.exists():
        WRITERS[inner](path, rows)
    if packed:
        source, path = path, path.with_name(path.name + packed)
        path.write_bytes(PACKERS[packed](source.read_bytes()))
    return path


def _zstd(content: bytes) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as file:
        file.write(content)
    return bytes(sink.getvalue())


PACKERS: dict[str, Callable[[bytes], bytes]] = {
    ".gz": lambda content: gzip.compress(content, 6),
    ".zst": _zstd,
    ".bz2": bz2.compress,
    ".xz": lambda content: lzma.compress(content, preset=1),
}


def _table(delimiter: str, path: Path, rows: list[dict[str, str]]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), delimiter=delimiter)
        writer.writeheader()
        writer.writerows(rows)


def _arrow(path: Path, rows: list[dict[str, str]]) -> None:
    table = pa.Table.from_pylist(rows)
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, table.schema) as writer:
        writer.write_table(table, max_chunksize=1000)


WRITERS: dict[str, Callable[[Path, list[dict[str, str]]], Any]] = {
    ".json": lambda path, rows: path.write_text(json.dumps(rows, ensure_ascii=False), encoding="utf-8"),
    ".csv": lambda path, rows: _table(",", path, rows),
    ".tsv": lambda path, rows: _table("\t", path, rows),
    ".txt": lambda path, rows: path.write_text(
        "".join(" ".join(row["output"].split()) + "\n" for row in rows), encoding="utf-8"
    ),
    ".parquet": lambda path, rows: pq.write_table(pa.Table.from_pylist(rows), path),
    ".arrow": _arrow,
}


if __name__ == "__main__":
    main()
