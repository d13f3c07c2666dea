"""Kill real training runs at random instants and show that they end as if nothing had happened.

    python -m benchmarks.kill_test [--kills 30] [--seed 0] [--case NAME]

Each case is a tiny model trained by `expert-cli train`: once unbroken, then in trials that are killed (SIGKILL, the main
process alone) one to three times and go on with `--resume auto` until they are done. What a trial leaves must be what the
unbroken run left, bit for bit: the loss of every step (final checkpoint), every line of metrics.jsonl, the tokens counted,
the adapter's hash. Prints a line a kill and a table; exits with 1 on any difference. Linux and macOS.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from benchmarks.lib.own_step import write_manifest
from expert_cli.runs.run_paths import RunPaths
from expert_cli.training import checkpoint
from tests.tiny import tiny_model_folder

LOOK_EVERY_S = 0.001
PATIENCE_S = 600
COMPARED = ("step", "loss", "grad_norm", "learning_rate", "eval_loss", "tokens_real", "tokens_trained", "tokens_padded")
ROWS = [(f"Add {a} and {b}{'!' * (b % 5)}", str(a + b)) for a in range(1, 10) for b in range(1, 9)]
CONFIG: dict[str, Any] = {
    "rank": 8,
    "alpha": 16,
    "batch_size": 2,
    "learning_rate": 0.01,
    "max_seq_length": 64,
    "lr_scheduler": "cosine",
    "warmup_steps": 3,
    "logging_steps": 1,
    "save_steps": 2,
    "save_total_limit": 2,
    "report_to": "none",
    "bf16": False,
    "fp16": False,
    "max_steps": 24,
}
WORKERS = {"dataloader_num_workers": 2, "dataloader_prefetch_factor": 2, "dataloader_persistent_workers": True}


CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "plain": ("none", {}),
    "2 workers, accumulation 4, dropout": (
        "none",
        {**WORKERS, "gradient_accumulation_steps": 4, "dropout": 0.1, "save_steps": 1, "max_steps": 20},
    ),
    "8-bit optimizer": ("none", {"optim": "adamw_8bit", "rank": 64, "dropout": 0.1, "save_steps": 3}),
    "NF4, accumulation 4, evaluations": (
        "int4",
        {"bf16": True, "gradient_accumulation_steps": 4, "eval_steps": 3, "save_steps": 3, "max_steps": 18},
    ),
    "epoch borders, 2 workers": (
        "none",
        {**WORKERS, "batch_size": 6, "max_steps": None, "epochs": 6, "packing": False, "save_steps": 3, "dropout": 0.1},
    ),
    "NF4, 8-bit optimizer, 2 workers": (
        "int4",
        {**WORKERS, "bf16": True, "optim": "adamw_8bit", "rank": 64, "dropout": 0.1, "save_steps": 1},
    ),
}
"""Name -> the base model's quantization, and what is added to CONFIG."""
Process = Any
"""A run under way: a subprocess.Popen, or what is asked as one is."""


@dataclass(frozen=True)
class Sight:
    """An output folder at one instant: steps logged, checkpoints by step, a writer at work, done."""

    logged: int
    saved: tuple[int, ...]
    writing: bool
    complete: bool

    @classmethod
    def of(cls, output: Path) -> Sight:
        """Look."""
        paths = RunPaths(output)
        names = [path.name for path in paths.checkpoints.iterdir()] if paths.checkpoints.is_dir() else []
        saved = sorted(int(name.partition("-")[2]) for name in names if name.startswith("checkpoint-"))
        text = paths.metrics.read_text(encoding="utf-8") if paths.metrics.is_file() else ""
        logged = max(map(int, re.findall(r'"step": (\d+)', text)), default=0)
        return cls(logged, tuple(saved), any(n.startswith(".writing-") for n in names), paths.complete.exists())

    def words(self) -> str:
        """Return what a kill left."""
        writing = ", a checkpoint half written" if self.writing else ""
        return f"{self.logged} steps logged, checkpoints {' '.join(map(str, self.saved)) or 'none'}{writing}"


@dataclass(frozen=True)
class Moment:
    """When to kill: `delay_s` after `reached` holds; without a delay, exactly while it holds."""

    name: str
    reached: Callable[[Sight], bool]
    delay_s: float = 0.0

    @classmethod
    def drawn(cls, dice: random.Random, output: Path, steps: int, seconds: float) -> Moment:
        """Draw one: any time of a run, after any step, in mid-write, or after the last checkpoint."""
        done = max(Sight.of(output).saved, default=0)
        kind = dice.choice(("time", "step", "step", "step", "write", "write", "end"))
        if kind == "time":
            delay = dice.uniform(0, seconds)
            return cls(f"{delay:.1f} s after the start", lambda _: True, delay)
        target = dice.randint(done + 1, steps) if done < steps else steps
        if kind == "end" or done >= steps:
            return cls("after the last checkpoint", lambda now: steps in now.saved and not now.complete)
        if kind == "write":
            return cls(f"in mid-write after step {target}", lambda now: now.writing and now.logged >= target)
        delay = dice.uniform(0, 0.05)
        return cls(f"{delay * 1000:.0f} ms after step {target}", lambda now: now.logged >= target, delay)


def kill(process: Process, output: Path, moment: Moment) -> Sight | None:
    """Kill a run at a moment; return what it left, or None if it ended before."""
    deadline = time.monotonic() + PATIENCE_S
    while process.poll() is None:
        if time.monotonic() > deadline:
            process.kill()
            raise TimeoutError(f"{output}: '{moment.name}' did not come in {PATIENCE_S} s")
        if moment.reached(Sight.of(output)):
            time.sleep(moment.delay_s)
            if process.poll() is None and (moment.delay_s or _holds_frozen(process, output, moment)):
                process.kill()
                process.communicate()
        time.sleep(LOOK_EVERY_S)
    return Sight.of(output) if process.returncode == -signal.SIGKILL else None


def _holds_frozen(process: Process, output: Path, moment: Moment) -> bool:
    """Stop the process, look again, and let it go on if the moment has passed."""
    process.send_signal(signal.SIGSTOP)
    while process.poll() is None and psutil.Process(process.pid).status() != psutil.STATUS_STOPPED:
        time.sleep(LOOK_EVERY_S)
    if moment.reached(Sight.of(output)):
        return True
    process.send_signal(signal.SIGCONT)
    return False


def finish(process: Process) -> None:
    """Wait for a run to end. Raises RuntimeError if it failed."""
    process.communicate()
    if process.returncode:
        raise RuntimeError(f"a run ended with exit code {process.returncode}")


def traces(output: Path) -> dict[str, Any]:
    """Return all that must be equal in a broken and an unbroken run."""
    paths = RunPaths(output)
    newest, damaged = checkpoint.latest_valid(paths.checkpoints)
    if newest is None or damaged:
        raise RuntimeError(f"{output}: damaged checkpoints: {damaged}")
    report = json.loads(paths.report_json.read_text(encoding="utf-8"))
    lines = [json.loads(line) for line in paths.metrics.read_text(encoding="utf-8").splitlines()]
    return {
        "losses": checkpoint.read(newest).tensors["losses"].tolist(),
        "metrics": [{name: line[name] for name in COMPARED if name in line} for line in lines],
        "tokens": report["tokens"],
        "adapter": report["adapter_sha256"],
    }


def command(manifest: Path, output: Path) -> list[str]:
    """Return the words that start a run and go on with it."""
    return ["train", "--manifest", str(manifest), "--output", str(output), "--resume", "auto", "--quiet"]


def write_project(folder: Path, model: Path, quantization: str, config: Mapping[str, Any]) -> Path:
    """Write a manifest and its rows into `folder`; return the manifest's path."""
    return write_manifest(folder, model, quantization, ROWS, {**CONFIG, **config})


def start(manifest: Path, output: Path) -> Process:
    """Start the real program."""
    words = [sys.executable, "-m", "expert_cli", *command(manifest, output)]
    return subprocess.Popen(words, env={**os.environ, "OMP_NUM_THREADS": "1"}, stdout=subprocess.DEVNULL)


def run_case(name: str, kills: int, home: Path, dice: random.Random) -> list[str]:
    """Train unbroken, then trials until `kills` have landed; print a line a kill and return what differed."""
    manifest = write_project(home / "project", home.parent / "model", *CASES[name])
    began = time.monotonic()
    finish(start(manifest, home / "unbroken"))
    seconds, wanted = time.monotonic() - began, traces(home / "unbroken")
    steps, landed, trial, wrong = len(wanted["losses"]), 0, 0, []
    print(f"{name}: {steps} steps, unbroken run {seconds:.1f} s", flush=True)
    while landed < kills:
        trial += 1
        output = home / f"trial-{trial}"
        for _ in range(min(kills - landed, dice.randint(1, 3))):
            moment = Moment.drawn(dice, output, steps, seconds)
            left = kill(start(manifest, output), output, moment)
            if left is None:
                print(f"  trial {trial}: ended before '{moment.name}'")
                break
            landed += 1
            print(f"  kill {landed}, trial {trial}, {moment.name}: {left.words()}", flush=True)
        finish(start(manifest, output))
        found = traces(output)
        different = [key for key in wanted if wanted[key] != found[key]]
        wrong += [f"{name}, trial {trial} ({output}): {key}" for key in different]
        print(f"  trial {trial}: {'DIFFERENT ' + ', '.join(different) if different else 'equal'}", flush=True)
    return wrong


def main() -> None:
    """Run the cases; exit with 1 if anything differs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=30)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--case", choices=CASES, action="append")
    options = parser.parse_args()
    home = Path(tempfile.mkdtemp(prefix="kill-test-"))
    tiny_model_folder(home / "model")
    names = options.case or list(CASES)
    dice = random.Random(options.seed)
    table, wrong = [f"\n{'case':40}{'kills':>6}{'differences':>13}{'seconds':>9}"], []
    for number, name in enumerate(names):
        kills = options.kills * (number + 1) // len(names) - options.kills * number // len(names)
        began = time.monotonic()
        differences = run_case(name, kills, home / str(number), dice)
        wrong += differences
        table.append(f"{name:40}{kills:>6}{len(differences):>13}{time.monotonic() - began:>9.0f}")
    print(*table, *(wrong or [f"all {options.kills} kills: equal to the unbroken run, bit for bit"]), sep="\n")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
