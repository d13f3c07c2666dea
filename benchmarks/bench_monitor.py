"""Measure what watching costs a run: training steps with and without `expert-cli benchmark` beside them, in fine pairs.

    python -m benchmarks.bench_monitor [--blocks 60] [--slice 2] [--interval 2]

The work is forward, backward and update of a small transformer on every core. One monitor runs all the time; it is held
(SIGSTOP) and let go (SIGCONT) by slices: held, watching, watching, held. A block of four gives one ratio, in which a
machine that gets steadily faster or slower cancels out. A monitor let go takes one look at once, then one each interval, so
that a few more fall than in use. Printed: the median ratio of the blocks with its 95 % interval (order statistics,
no distribution assumed), and the processor time of a look and of the whole second process.
"""

from __future__ import annotations

import argparse
import json
import math
import resource
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch

from expert_cli.runs.lock import run_lock

WATCH = [sys.executable, "-m", "expert_cli", "benchmark", "--json", "--quiet"]
START = 5.0  # seconds that the second process is given to import and to begin


def make_step() -> Callable[[], None]:
    """Return one training step, some 20 ms long: a decoder-sized layer over 256 tokens."""
    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(576, 9, 1536, dropout=0.0, batch_first=True)
    optimizer = torch.optim.AdamW(layer.parameters(), fused=True)
    tokens = torch.randn(1, 256, 576)

    def step() -> None:
        layer(tokens).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def speed(step: Callable[[], None], seconds: float) -> float:
    """Train for this long; return steps a second."""
    done, started = 0, time.perf_counter()
    while (passed := time.perf_counter() - started) < seconds:
        step()
        done += 1
    return done / passed


def block(step: Callable[[], None], child: subprocess.Popen[bytes], seconds: float) -> float:
    """Return the ratio of speeds, watched to not watched, of four slices."""
    speeds: dict[bool, list[float]] = {True: [], False: []}
    for watching in (False, True, True, False):
        child.send_signal(signal.SIGCONT if watching else signal.SIGSTOP)
        speeds[watching].append(speed(step, seconds))
    child.send_signal(signal.SIGSTOP)
    return sum(speeds[True]) / sum(speeds[False])


def median_interval(values: list[float]) -> tuple[float, float, float]:
    """Return the median and its 95 % interval by order statistics (binomial, normal approximation)."""
    ordered = sorted(values)
    low = max(0, math.floor(len(ordered) / 2 - 0.98 * math.sqrt(len(ordered))))
    return statistics.median(ordered), ordered[low], ordered[-1 - low]


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--blocks", type=int, default=60)
    parser.add_argument("--slice", type=float, default=2.0)
    parser.add_argument("--interval", type=float, default=2.0)
    options = parser.parse_args()
    step = make_step()
    speed(step, 2)
    duration = START + 4 * options.slice * options.blocks
    with tempfile.TemporaryDirectory() as temporary, run_lock(Path(temporary) / "run"):
        folder = Path(temporary) / "run"
        folder.mkdir()
        (folder / "metrics.jsonl").touch()
        command = [*WATCH, "--run", str(folder), "--duration", str(duration), "--interval", str(options.interval)]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as child:
            time.sleep(START)
            ratios = [block(step, child, options.slice) for _ in range(options.blocks)]
            child.send_signal(signal.SIGCONT)
            out, _ = child.communicate()
    seen, used = json.loads(out), resource.getrusage(resource.RUSAGE_CHILDREN)
    middle, low, high = median_interval(ratios)
    look = seen["cpu_ms_per_sample"]
    watched = 2 * options.slice * options.blocks
    print(f"speed watched / not watched: {middle:.4f}, 95 % {low:.4f} to {high:.4f} ({len(ratios)} blocks)")
    print(f"{seen['samples']} looks, most of them in {watched:.0f} s of being let go, one at once each time")
    print(
        f"one look: {look:.2f} ms of processor = {look / options.interval / 10:.3f} % of a core at every {options.interval:g} s"
    )
    print(f"whole second process, start included: {used.ru_utime + used.ru_stime:.2f} s of processor")


if __name__ == "__main__":
    main()
