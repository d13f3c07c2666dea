"""Measure what watching costs a run: the same work with and without `expert-cli benchmark` beside it, in pairs.

    python scripts/bench_monitor.py [--pairs 10] [--seconds 20] [--interval 2]

The work is matrix products on every core, as a training on a CPU does them. Order of each pair: with, without; then
without, with. Printed are the median ratio of the pairs with its range, and what does not depend on who else uses the
machine: the CPU time of one look, and of the whole second process.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch

WATCH = [sys.executable, "-m", "expert_cli", "benchmark", "--json", "--quiet"]


def work(seconds: float) -> float:
    """Multiply matrices for this long; return products a second."""
    matrix = torch.randn(512, 512, generator=torch.Generator().manual_seed(0))
    done, started = 0, time.perf_counter()
    while time.perf_counter() - started < seconds:
        matrix = torch.nn.functional.normalize(matrix @ matrix)
        done += 1
    return done / (time.perf_counter() - started)


def watched(seconds: float, interval: float, run: Path) -> tuple[float, float]:
    """Work beside a monitor that has started; return products a second and the monitor's CPU ms a look."""
    command = [*WATCH, "--run", str(run), "--duration", str(seconds + 5), "--interval", str(interval)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as child:
        time.sleep(3)
        rate = work(seconds)
        out, _ = child.communicate()
    return rate, float(json.loads(out)["cpu_ms_per_sample"])


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--interval", type=float, default=2.0)
    options = parser.parse_args()
    ratios, looks = [], []
    work(2)
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "metrics.jsonl").touch()
        for pair in range(options.pairs):
            alone = work(options.seconds) if pair % 2 else 0.0
            beside, look = watched(options.seconds, options.interval, Path(folder))
            alone = alone or work(options.seconds)
            ratios.append(beside / alone)
            looks.append(look)
            print(f"pair {pair}: {alone:.1f} products/s alone, {beside:.1f} watched, ratio {ratios[-1]:.4f}")
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    look = statistics.median(looks)
    print(
        f"ratio, median of {len(ratios)} pairs: {statistics.median(ratios):.4f} ({min(ratios):.4f} to {max(ratios):.4f})"
    )
    print(
        f"one look: {look:.2f} ms of CPU = {look / options.interval / 10:.3f}% of one core at every {options.interval:g} s"
    )
    print(f"whole second process, start included: {(used.ru_utime + used.ru_stime) / len(looks):.2f} s of CPU")


if __name__ == "__main__":
    main()
