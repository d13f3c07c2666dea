"""Measure a token store built by one process, in parts, and in parts on a local Ray cluster.

    python -m benchmarks.bench_parts [--gb 10] [--parts 8] [--at-once 2] [--ways one,parts,ray] [--folder DIR]

Rows are the Python sources of the installed packages, over and over, each row with a number of its own. Every process is
started anew, with its own tokenizer; the clock runs from the first start to the sealed and verified store, imports included.
Memory is that of the largest process: anonymous_mb its own, resident_mb with the pages of mapped files, which the system takes
back. All ways have to give the same store, file for file, or the script fails.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from benchmarks.bench_tokenize import MODEL, write_rows
from benchmarks.lib.memory import Peaks, watch

SMALL = 40e6
"""Bytes of rows that are written once and repeated."""


def main() -> None:
    """Write the rows, build the store in every way, print one line a way."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gb", type=float, default=10)
    parser.add_argument("--parts", type=int, default=8)
    parser.add_argument("--at-once", type=int, default=2)
    parser.add_argument("--ways", default="one,parts")
    parser.add_argument("--folder", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as made:
        folder = Path(made)
        rows = repeat_rows(folder, options.gb * 1e9)
        size = (folder / "train.jsonl").stat().st_size
        print(f"{rows:,} rows, {size / 1e9:.2f} GB, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}", flush=True)
        manifest = write_manifest(folder)
        expected: dict[str, Any] | None = None
        for way in options.ways.split(","):
            store = folder / f"store-{way}"
            seconds, steps = build(way, manifest, store, options.parts, options.at_once)
            files = stored(store)
            if expected not in (None, files):
                sys.exit(f"{way}: another store than before")
            expected = files
            told = ", ".join(
                f"{name} {spent:.0f} s, anonymous_mb {peaks.anonymous:.0f}, resident_mb {peaks.resident:.0f}"
                for name, spent, peaks in steps
            )
            print(f"{way}: {seconds:.0f} s, {size / 1e6 / seconds:.1f} MB/s ({told})", flush=True)
            shutil.rmtree(store)


def repeat_rows(folder: Path, size: float) -> int:
    """Write rows of about `size` bytes in all, no two alike, and return how many."""
    small = folder / "small.jsonl"
    write_rows(small, min(size, SMALL))
    bodies = [line.partition(b'", "input"')[2] for line in small.read_bytes().splitlines(keepends=True)]
    count = written = 0
    with (folder / "train.jsonl").open("wb") as file:
        while written < size:
            for body in bodies:
                written += file.write(b'{"instruction": "Go on with file %d.", "input"' % count + body)
                count += 1
    small.unlink()
    return count


def write_manifest(folder: Path) -> Path:
    """Write a manifest of these rows for the real tokenizer of SmolLM2."""
    manifest = {
        "name": "expert-parts",
        "version": "1",
        "base_models": [{"name": MODEL}],
        "training": {"dataset": {"path": "train.jsonl"}, "config": {"max_seq_length": 1024}},
    }
    path = folder / "manifest.json"
    path.write_text(json.dumps(manifest), encoding="utf-8")
    return path


def pretokenize_command(manifest: Path, store: Path) -> list[str]:
    """Return the command that builds a manifest's store in a folder and says nothing."""
    command = [sys.executable, "-m", "expert_cli", "pretokenize"]
    return [*command, "-m", str(manifest), "--output", str(store), "--quiet"]


def build(
    way: str, manifest: Path, store: Path, parts: int, at_once: int
) -> tuple[float, list[tuple[str, float, Peaks]]]:
    """Build the store in one way; return the seconds, and of each step its seconds and the largest process's memory."""
    command = pretokenize_command(manifest, store)
    steps: list[tuple[str, list[list[str]]]] = {
        "one": [("build", [command])],
        "ray": [("build", [[*command, "--ray", "local"]])],
        "parts": [
            ("parts", [[*command, "--part", f"{n}/{parts}", "--threads", "1"] for n in range(1, parts + 1)]),
            ("seal", [[*command, "--seal"]]),
        ],
    }[way]
    started, spent = time.monotonic(), []
    for name, commands in steps:
        begun = time.monotonic()
        with ThreadPoolExecutor(at_once) as threads:
            peaks = [*threads.map(run, commands)]
        largest = Peaks(*map(max, zip(*peaks, strict=True)))
        spent.append((name, time.monotonic() - begun, largest))
    return time.monotonic() - started, spent


def run(command: Sequence[str]) -> Peaks:
    """Run a command and return its memory."""
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        peaks = watch(process)
    if process.returncode:
        sys.exit(f"a process ended with {process.returncode}")
    return peaks


def stored(store: Path) -> dict[str, Any]:
    """The files of the store as its fingerprint records them."""
    (fingerprint,) = store.glob("[0-9a-f]*/fingerprint.json")
    files: dict[str, Any] = json.loads(fingerprint.read_text(encoding="utf-8"))["files"]
    return files


if __name__ == "__main__":
    main()
