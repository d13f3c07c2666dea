"""Measure what looking for an expert's cases in the training rows adds to building a token store.

    python -m benchmarks.bench_overlap [--mb 50] [--cases 0,500,20000] [--runs 3] [--folder DIR]

Rows are the Python sources of the installed packages, 600 characters asked and 600 answered; of the cases every other one is
a row's question with one word changed, the rest is of rows that are not trained on. Each build is a process of its own, every
number of cases once a round; medians over the rounds, and their ratio to a build without cases.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import tempfile
import time
from itertools import islice
from pathlib import Path

from benchmarks.bench_parts import pretokenize_command, write_manifest
from benchmarks.bench_tokenize import texts

ASKED = 600


def main() -> None:
    """Print a line for each number of cases."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mb", type=float, default=50)
    parser.add_argument("--cases", default="0,500,20000")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--folder", type=Path)
    options = parser.parse_args()
    counts = [int(count) for count in options.cases.split(",")]
    with tempfile.TemporaryDirectory(dir=options.folder) as made:
        folder = Path(made)
        questions = write_rows(folder / "train.jsonl", options.mb * 1e6, max(counts))
        manifest = write_manifest(folder)
        spent: dict[int, list[float]] = {count: [] for count in counts}
        found: dict[int, int] = {}
        for _ in range(options.runs):
            for count in counts:
                write_cases(folder / "tests" / "cases.jsonl", questions[:count])
                seconds, found[count] = build(manifest, folder / "store")
                spent[count].append(seconds)
        size = (folder / "train.jsonl").stat().st_size
        print(f"{size / 1e6:.1f} MB, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
        alone = statistics.median(spent[counts[0]])
        for count, rounds in spent.items():
            median = statistics.median(rounds)
            print(f"{count:,} cases: {median:.2f} s, ratio {median / alone:.3f}, found {found[count]:,}", flush=True)


def write_rows(path: Path, size: float, count: int) -> list[str]:
    """Write rows of about `size` bytes in all, and return as many questions, half of them nearly those of rows."""
    pieces = texts()
    others = [text[:ASKED] for text in islice(pieces, count // 2)]
    trained: list[str] = []
    with path.open("w", encoding="utf-8", newline="\n") as file:
        for text in pieces:
            file.write(json.dumps({"instruction": text[:ASKED], "output": text[-ASKED:]}, ensure_ascii=False) + "\n")
            if len(trained) < count - len(others):
                trained.append(f"Changed {text[:ASKED].partition(' ')[2]}")
            if file.tell() >= size:
                break
    return [question for pair in zip(others, trained, strict=False) for question in pair]


def write_cases(path: Path, questions: list[str]) -> None:
    """Write an expert's own cases; none where there is no question."""
    path.parent.mkdir(exist_ok=True)
    path.unlink(missing_ok=True)
    rows = [
        {"id": f"c{number}", "category": "all", "verifier": "json", "prompt": asked, "schema": None, "expected": 1}
        for number, asked in enumerate(questions)
    ]
    if rows:
        path.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")


def build(manifest: Path, store: Path) -> tuple[float, int]:
    """Build the store anew; return the seconds, and how many cases were found in its rows."""
    shutil.rmtree(store, ignore_errors=True)
    started = time.monotonic()
    subprocess.run(
        pretokenize_command(manifest, store), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True
    )
    seconds = time.monotonic() - started
    (stats,) = store.glob("[0-9a-f]*/stats.json")
    overlap = json.loads(stats.read_text(encoding="utf-8"))["train"]["overlap"].get("cases", {"same": 0, "near": 0})
    return seconds, overlap["same"] + overlap["near"]


if __name__ == "__main__":
    main()
