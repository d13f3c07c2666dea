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
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import psutil

from expert_cli.runs.run_paths import RunPaths

LOOK_EVERY_S = 0.001
PATIENCE_S = 600
COMPARED = ("step", "loss", "grad_norm", "learning_rate", "eval_loss", "tokens_real", "tokens_trained", "tokens_padded")
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


@dataclass(frozen=True)
class Case:
    """One combination of settings."""

    config: Mapping[str, Any] = field(default_factory=dict)
    quantization: str = "none"


CASES = {
    "plain": Case(),
    "2 workers, accumulation 4, dropout": Case(
        {**WORKERS, "gradient_accumulation_steps": 4, "dropout": 0.1, "save_steps": 1, "max_steps": 20}
    ),
    "8-bit optimizer": Case({"optim": "adamw_8bit", "rank": 64, "dropout": 0.1, "save_steps": 3}),
    "NF4, accumulation 4, evaluations": Case(
        {"bf16": True, "gradient_accumulation_steps": 4, "eval_steps": 3, "save_steps": 3, "max_steps": 18}, "int4"
    ),
    "epoch borders, 2 workers": Case(
        {**WORKERS, "batch_size": 6, "max_steps": None, "epochs": 6, "packing": False, "save_steps": 3, "dropout": 0.1}
    ),
    "NF4, 8-bit optimizer, 2 workers": Case(
        {**WORKERS, "bf16": True, "optim": "adamw_8bit", "rank": 64, "dropout": 0.1, "save_steps": 1}, "int4"
    ),
}


class Process(Protocol):
    """A run under way."""

    pid: int

    def poll(self) -> int | None:
        """Return the exit code, None while it runs."""


Start = Callable[[list[str]], Process]
"""Starts `expert-cli` with these words."""


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
        steps = [line.partition('"step": ')[2].partition(",")[0] for line in text.splitlines()]
        logged = max((int(step) for step in steps if step.isdigit()), default=0)
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


def kill(process: Process, output: Path, moment: Moment) -> Sight | None:
    """Kill a run at a moment; return what it left, or None if it ended before."""
    deadline = time.monotonic() + PATIENCE_S
    while process.poll() is None:
        if time.monotonic() > deadline:
            os.kill(process.pid, signal.SIGKILL)
            raise TimeoutError(f"{output}: '{moment.name}' did not come in {PATIENCE_S} s")
        if moment.reached(Sight.of(output)):
            time.sleep(moment.delay_s)
            if moment.delay_s or _holds_frozen(process, output, moment):
                break
        time.sleep(LOOK_EVERY_S)
    if process.poll() is not None:
        return None
    os.kill(process.pid, signal.SIGKILL)
    while process.poll() is None:
        time.sleep(LOOK_EVERY_S)
    return None if process.poll() == 0 else Sight.of(output)


def _holds_frozen(process: Process, output: Path, moment: Moment) -> bool:
    """Stop the process, look again, and let it go on if the moment has passed."""
    os.kill(process.pid, signal.SIGSTOP)
    while process.poll() is None and psutil.Process(process.pid).status() != psutil.STATUS_STOPPED:
        time.sleep(LOOK_EVERY_S)
    if moment.reached(Sight.of(output)):
        return True
    os.kill(process.pid, signal.SIGCONT)
    return False


def finish(process: Process) -> None:
    """Wait for a run to end. Raises RuntimeError if it failed."""
    while process.poll() is None:
        time.sleep(10 * LOOK_EVERY_S)
    if process.poll() != 0:
        raise RuntimeError(f"a run ended with exit code {process.poll()}")


def traces(output: Path) -> dict[str, Any]:
    """Return all that must be equal in a broken and an unbroken run."""
    from expert_cli.training import checkpoint

    paths = RunPaths(output)
    newest = checkpoint.latest_valid(paths.checkpoints)
    if newest.path is None or newest.damaged:
        raise RuntimeError(f"{output}: damaged checkpoints: {newest.damaged}")
    report = json.loads(paths.report_json.read_text(encoding="utf-8"))
    lines = [json.loads(line) for line in paths.metrics.read_text(encoding="utf-8").splitlines()]
    return {
        "losses": checkpoint.read(newest.path).tensors["losses"].tolist(),
        "metrics": [{name: line[name] for name in COMPARED if name in line} for line in lines],
        "tokens": report["tokens"],
        "adapter": report["adapter_sha256"],
    }


def command(manifest: Path, output: Path) -> list[str]:
    """Return the words that start a run and go on with it."""
    return ["train", "--manifest", str(manifest), "--output", str(output), "--resume", "auto", "--quiet"]


def write_project(folder: Path, model: Path, case: Case) -> Path:
    """Write a manifest and its rows into `folder`; return the manifest's path."""
    folder.mkdir(parents=True)
    rows = [
        {"instruction": f"Add {a} and {b}{'!' * (b % 5)}", "input": "", "output": str(a + b)}
        for a in range(1, 10)
        for b in range(1, 9)
    ]
    (folder / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    manifest = {
        "name": "expert-small",
        "schema_version": "2.0",
        "base_models": [{"name": str(model), "quantization": case.quantization}],
        "training": {
            "dataset": {"path": "train.jsonl"},
            "config": {name: value for name, value in {**CONFIG, **case.config}.items() if value is not None},
        },
    }
    path = folder / "manifest.json"
    path.write_text(json.dumps(manifest), encoding="utf-8")
    return path


def random_moment(dice: random.Random, output: Path, steps: int, seconds: float) -> Moment:
    """Draw when to kill: any time of a run, after any step, in mid-write, or after the last checkpoint."""
    done = max(Sight.of(output).saved, default=0)
    kind = dice.choice(("time", "step", "step", "step", "write", "write", "end"))
    if kind == "time":
        delay = dice.uniform(0, seconds)
        return Moment(f"{delay:.1f} s after the start", lambda _: True, delay)
    target = dice.randint(done + 1, steps) if done < steps else steps
    if kind == "end" or done >= steps:
        return Moment("after the last checkpoint", lambda now: steps in now.saved and not now.complete)
    if kind == "write":
        return Moment(f"in mid-write after step {target}", lambda now: now.writing and now.logged >= target)
    delay = dice.uniform(0, 0.05)
    return Moment(f"{delay * 1000:.0f} ms after step {target}", lambda now: now.logged >= target, delay)


def run_case(name: str, case: Case, kills: int, home: Path, dice: random.Random, start: Start) -> list[str]:
    """Train unbroken, then trials until `kills` have landed; print a line a kill and return what differed."""
    manifest = write_project(home / "project", home.parent / "model", case)
    began = time.monotonic()
    finish(start(command(manifest, home / "unbroken")))
    seconds = time.monotonic() - began
    wanted = traces(home / "unbroken")
    steps, landed, trial, wrong = len(wanted["losses"]), 0, 0, []
    print(f"{name}: {steps} steps, unbroken run {seconds:.1f} s", flush=True)
    while landed < kills:
        trial += 1
        output = home / f"trial-{trial}"
        for _ in range(min(kills - landed, dice.randint(1, 3))):
            moment = random_moment(dice, output, steps, seconds)
            left = kill(start(command(manifest, output)), output, moment)
            if left is None:
                print(f"  trial {trial}: ended before '{moment.name}'")
                break
            landed += 1
            print(f"  kill {landed}, trial {trial}, {moment.name}: {left.words()}", flush=True)
        finish(start(command(manifest, output)))
        found = traces(output)
        different = [key for key in wanted if wanted[key] != found[key]]
        wrong += [f"{name}, trial {trial} ({output}): {key}" for key in different]
        print(f"  trial {trial}: {'DIFFERENT ' + ', '.join(different) if different else 'equal'}", flush=True)
    return wrong


def start_process(words: list[str]) -> Process:
    """Start the real program."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
    return subprocess.Popen([sys.executable, "-m", "expert_cli", *words], env=environment, stdout=subprocess.DEVNULL)


def main() -> None:
    """Run the cases; exit with 1 if anything differs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=30)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--case", choices=CASES, action="append")
    parser.add_argument("--keep", type=Path, help="leave all runs in this folder")
    options = parser.parse_args()
    from tests.tiny import tiny_model_folder

    home = options.keep or Path(tempfile.mkdtemp(prefix="kill-test-"))
    tiny_model_folder(home / "model")
    names = options.case or list(CASES)
    dice = random.Random(options.seed)
    table, wrong = [], []
    for number, name in enumerate(names):
        kills = options.kills * (number + 1) // len(names) - options.kills * number // len(names)
        began = time.monotonic()
        differences = run_case(name, CASES[name], kills, home / str(number), dice, start_process)
        wrong += differences
        table.append((name, kills, len(differences), time.monotonic() - began))
    print(f"\n{'case':40}{'kills':>6}{'differences':>13}{'seconds':>9}")
    for name, kills, different, seconds in table:
        print(f"{name:40}{kills:>6}{different:>13}{seconds:>9.0f}")
    print("\n".join(wrong) or f"all {options.kills} kills: equal to the unbroken run, bit for bit")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
