"""Measure what a program beside it costs a training step, with the tool's way of waiting and with libgomp's own.

    python -m benchmarks.bench_busy [--manifest M] [--rounds 5] [--steps 30] [--json FILE]

Four runs a round, each in a process of its own: alone and beside a process that only counts, with either way of waiting. The
ratios are of the runs of one round. Without M: a tiny model, whose kernels are short, so that waiting weighs most.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.bench_train import sums_project
from benchmarks.lib.own_step import measure

LIBGOMP = {"GOMP_SPINCOUNT": "300000"}
"""libgomp's own number of turns where nothing is set (GCC 14, libgomp/env.c)."""
WAITING: dict[str, dict[str, str]] = {"ours": {}, "libgomp": LIBGOMP}
OPENMP = ("OMP_NUM_THREADS", "OMP_WAIT_POLICY", "GOMP_SPINCOUNT")
CONFIG = {
    "adapter_type": "lora",
    "rank": 8,
    "target_modules": "all-linear",
    "batch_size": 8,
    "max_seq_length": 128,
    "packing": True,
    "learning_rate": 0.001,
    "dataloader_num_workers": 0,
}
Round = dict[str, float]


def main() -> None:
    """Measure what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--manifest", type=Path)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--warm", type=int, default=5)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--json", type=Path, help="write every measurement to this file")
    options = parser.parse_args()
    for name in OPENMP:
        os.environ.pop(name, None)
    found: list[Round] = []
    with tempfile.TemporaryDirectory() as folder:
        manifest = options.manifest or sums_project(Path(folder), "llama", {}, CONFIG)
        for _ in range(options.rounds):
            found.append(one_round(manifest, options.warm, options.steps))
            print(", ".join(f"{name} {1000 * step_s:.1f} ms" for name, step_s in found[-1].items()), flush=True)
            if options.json:
                options.json.write_text(json.dumps(found), encoding="utf-8")
    print(words_of(found))


def one_round(manifest: Path, warm: int, steps: int) -> Round:
    """Return the median step in seconds of every way to wait, alone and beside a busy process."""
    found: Round = {}
    for way, environment in WAITING.items():
        os.environ.update(environment)
        for beside in ("alone", "busy"):
            with busy_process(wanted=beside == "busy"):
                run = measure("ours", manifest, warm, steps)
            if run is None:
                raise SystemExit("nothing was measured")
            found[f"{way}, {beside}"] = statistics.median(run["step_s"])
        for name in environment:
            os.environ.pop(name)
    return found


@contextmanager
def busy_process(*, wanted: bool) -> Iterator[None]:
    """Keep one core busy meanwhile."""
    process = subprocess.Popen([sys.executable, "-c", "while True: pass"]) if wanted else None
    try:
        yield
    finally:
        if process:
            process.kill()
            process.wait()


def words_of(found: list[Round]) -> str:
    """Return the medians of the ratios within the rounds."""
    rows = [(f"beside a busy process a step takes ({way})", f"{way}, busy", f"{way}, alone") for way in WAITING] + [
        ("alone, our way of waiting against libgomp's", "ours, alone", "libgomp, alone")
    ]
    return "\n".join(
        f"{words}: {statistics.median(one[a] / one[b] for one in found):.2f} x "
        f"({', '.join(f'{one[a] / one[b]:.2f}' for one in found)})"
        for words, a, b in rows
    )


if __name__ == "__main__":
    main()
