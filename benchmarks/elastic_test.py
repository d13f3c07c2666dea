"""Kill one of several processes at random instants, go on with fewer or more, and show that the run ends as if nothing had
happened.

    python -m benchmarks.elastic_test [--kills 20] [--seed 0]

A tiny model is trained by `expert-cli train` in 4 processes (gloo), once unbroken, then in trials: 4 processes, one of
which is killed (SIGKILL), then 2, then 1, killed alike, then 3 to the end, all with `--resume auto`. Every step must have
trained the same rows, told by its tokens, and its loss must be the unbroken run's but for the order in which numbers are
added; beside the largest difference stands how much the losses of other seeds differ. Prints a line a kill; exits with 1
where a run is another. Linux.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import socket
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks import kill_test
from benchmarks.kill_test import Case, Moment, Process, Sight

PROCESSES = (4, 2, 1, 3)
CASE = Case({"batch_size": 1, "gradient_accumulation_steps": 1, "save_steps": 2, "max_steps": None, "epochs": 4})
"""Steps of four packs, which three processes cannot share out evenly."""
CLOSE = 1e-4
"""By so much the losses may differ, as a share of each."""
COUNTS = ("step", "tokens_real", "tokens_trained")

Start = Callable[[list[str], Mapping[str, str]], Process]
"""Starts `expert-cli` with these words and this environment."""


def free_port() -> int:
    """Return a port that nothing listens on."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        return int(bound.getsockname()[1])


def variables_of(count: int) -> list[dict[str, str]]:
    """Return the variables that torchrun sets for each of `count` processes; a single one is no job and gets none."""
    if count == 1:
        return [{}]
    job = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    job |= {"WORLD_SIZE": str(count), "LOCAL_WORLD_SIZE": str(count)}
    return [{**job, "RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(count)]


class Job:
    """Processes that train together, one of which will be killed."""

    def __init__(self, words: list[str], count: int, start: Start, victim: int = 0) -> None:
        """Start them; `victim`: which is killed."""
        self._processes = [start(words, variables) for variables in variables_of(count)]
        self.pid = self._processes[victim % count].pid

    def poll(self) -> int | None:
        """Return the largest of the exit codes, None while one of them runs; a signal's is the largest."""
        codes = [process.poll() for process in self._processes]
        return None if None in codes else max((abs(code or 0) for code in codes), default=0)


@dataclass(frozen=True)
class Kill:
    """When one of the processes is killed, and which."""

    moment: Moment
    victim: int


def trial(
    manifest: Path, output: Path, kills: Sequence[Kill], start: Start, tell: Callable[[str], None] = print
) -> int:
    """Kill a run of 4 processes, of 2 and of 1, and let 3 end it; return how many of the kills came before the end."""
    landed = 0
    for count, one in zip(PROCESSES[:-1], kills, strict=True):
        job = Job(kill_test.command(manifest, output), count, start, one.victim)
        left = kill_test.kill(job, output, one.moment)
        landed += left is not None
        tell(f"  {count} processes, {one.moment.name}: {left.words() if left else 'ended before'}")
    kill_test.finish(Job(kill_test.command(manifest, output), PROCESSES[-1], start))
    return landed


def drawn(dice: random.Random, steps: int) -> list[Kill]:
    """Draw the kills of a trial, one in each quarter of the steps but the last: after a step, or in mid-write."""
    kills, quarter = [], steps // len(PROCESSES)
    for nth in range(len(PROCESSES) - 1):
        step, delay = dice.randint(nth * quarter + 1, (nth + 1) * quarter), dice.uniform(0, 0.05)
        moment = Moment(f"{delay * 1000:.0f} ms after step {step}", partial(_logged, step), delay)
        if dice.random() < 0.3:
            moment = Moment(f"in mid-write from step {step} on", partial(_writing, step))
        kills.append(Kill(moment, dice.randrange(max(PROCESSES))))
    return kills


def _logged(step: int, now: Sight) -> bool:
    return now.logged >= step


def _writing(step: int, now: Sight) -> bool:
    return now.writing and now.logged >= step


def unbroken(manifest: Path, output: Path, start: Start, seed: int = 42) -> None:
    """Train in 4 processes."""
    words = [*kill_test.command(manifest, output), "--set", f"training.config.seed={seed}"]
    kill_test.finish(Job(words, PROCESSES[0], start))


def differences(output: Path, wanted: Path) -> tuple[list[str], float]:
    """Return which steps trained other tokens, and the largest difference between losses, as a share."""
    mine, theirs = (kill_test.traces(folder) for folder in (output, wanted))
    counts = [[{name: line[name] for name in COUNTS} for line in one["metrics"]] for one in (mine, theirs)]
    other = [f"step {own['step']}" for own, given in zip(*counts, strict=True) if own != given]
    return other, spread(mine["losses"], theirs["losses"])


def spread(losses: Sequence[float], others: Sequence[float]) -> float:
    """Return the largest difference, as a share."""
    return max(abs(one - other) / abs(other) for one, other in zip(losses, others, strict=True))


def start_process(words: list[str], job: Mapping[str, str]) -> Process:
    """Start the real program."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1", "CUDA_VISIBLE_DEVICES": "", **job}
    out = subprocess.DEVNULL
    return subprocess.Popen([sys.executable, "-m", "expert_cli", *words], env=environment, stdout=out, stderr=out)


def main() -> None:
    """Run the trials; exit with 1 if a run is another."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    from tests.tiny import tiny_model_folder

    home = Path(tempfile.mkdtemp(prefix="elastic-test-"))
    tiny_model_folder(home / "model")
    manifest = kill_test.write_project(home / "project", home / "model", CASE)
    unbroken(manifest, home / "unbroken", start_process)
    losses: list[float] = kill_test.traces(home / "unbroken")["losses"]
    seeds = []
    for seed in (43, 44):
        unbroken(manifest, home / f"seed-{seed}", start_process, seed)
        seeds.append(spread(kill_test.traces(home / f"seed-{seed}")["losses"], losses))
    dice, landed, number, wrong, largest = random.Random(options.seed), 0, 0, [], []
    while landed < options.kills:
        number += 1
        output = home / f"trial-{number}"
        print(f"trial {number}")
        landed += trial(manifest, output, drawn(dice, len(losses)), start_process)
        other, most = differences(output, home / "unbroken")
        largest.append(most)
        wrong += [f"trial {number}: {words}" for words in other] + [f"trial {number}: losses"] * (most > CLOSE)
        print(
            f"  {'DIFFERENT' if other or most > CLOSE else 'the same rows'}; losses differ by {most:.1e} at most",
            flush=True,
        )
    found: dict[str, Any] = {"kills": landed, "trials": number, "wrong": wrong, "steps": len(losses)}
    found |= {"largest": max(largest), "median": statistics.median(largest), "between_seeds": seeds}
    print(json.dumps(found, indent=2))
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
