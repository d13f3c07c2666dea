"""What random packs give against best fit: the loss of held-out answers, document by document, and answers that are run.

    python -m benchmarks.measure_packing OUT [--spider DIR] [--sets sql,json] [--seeds 3] [--rows 150] [--tokens 20480]

For every set, seed and packing SmolLM2-135M is trained on the same few rows (a small set, a little more than an epoch),
then loses so many nats on each held-out row, and answers cases. The four experts: rows of their own, their validation rows,
their cases. spider (DIR holds train.jsonl and databases/): rows of 124 databases, questions on the 20 others.
A run that is in OUT/results.jsonl already is not repeated. The table compares pairs of one set and seed.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

from expert_cli.utils.statistics import mean_of

ROOT = Path(__file__).parents[1]
EXPERTS = ("json", "typescript", "neo4j", "sql")
PACKINGS = ("best_fit", "random")
HELD_OUT_DATABASES = 20
DOCUMENTS, CASES = 60, 24


def read(path: Path) -> list[dict[str, Any]]:
    """Return the rows of a JSON Lines file."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def write(path: Path, rows: list[dict[str, Any]]) -> Path:
    """Write rows as JSON Lines."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    return path


def inputs_of(name: str, out: Path, spider: Path | None, rows: int) -> tuple[Path, Path, Path, Path, int]:
    """Return the manifest of a set, its training rows, held-out rows and cases, and the length of its packs."""
    chosen = random.Random(f"rows of {name}")
    folder = out / name
    if name != "spider":
        home = ROOT / "experts" / f"expert-{name}"
        train = chosen.sample(read(home / "datasets" / "train.jsonl"), rows)
        held_out = read(home / "datasets" / "valid.jsonl")
        held_out = chosen.sample(held_out, min(DOCUMENTS, len(held_out)))
        cases, length = home / "tests" / "cases.jsonl", 512
    else:
        if spider is None:
            sys.exit("spider: name its folder with --spider")
        everything = read(spider / "train.jsonl")
        databases = sorted({row["db_id"] for row in everything})
        others = set(chosen.sample(databases, HELD_OUT_DATABASES))
        home, length = ROOT / "experts" / "expert-sql", 1024
        train = chosen.sample([row for row in everything if row["db_id"] not in others], rows)
        held_out = chosen.sample([row for row in everything if row["db_id"] in others], DOCUMENTS)
        asked = [
            {
                "id": str(n),
                "verifier": "sql",
                "prompt": row["question"],
                "input": row["context"],
                "database": str((spider / "databases" / f"{row['db_id']}.sqlite").resolve()),
                "expected": row["answer"],
            }
            for n, row in enumerate(held_out)
        ]
        cases = write(folder / "cases.jsonl", asked)
    return (
        home / "manifest.json",
        write(folder / "train.jsonl", train),
        write(folder / "held_out.jsonl", held_out),
        cases,
        length,
    )


def expert_cli(*words: object) -> str:
    """Run the tool and return what it prints."""
    return subprocess.run(
        [sys.executable, "-m", "expert_cli", *map(str, words)], check=True, stdout=subprocess.PIPE, text=True
    ).stdout


def losses(adapter: Path, manifest: Path, held_out: Path) -> list[float]:
    """Return the nats of every held-out answer."""
    import torch

    from expert_cli.config.adapter_origin import find_adapter
    from expert_cli.config.plan import make_plan
    from expert_cli.config.resolve import Overrides
    from expert_cli.data.packing.batches import Collator
    from expert_cli.data.packing.dataset import PackedDataset
    from expert_cli.hardware.machine import inspect
    from expert_cli.inference.expert import open_expert
    from expert_cli.model.kernels.chunked_loss import CausalLoss
    from expert_cli.pipeline.pretokenize import resolve_inputs, store_for
    from expert_cli.utils.reporter import NullReporter

    overrides = Overrides(base_model="smollm2", dataset=str(held_out))
    run = make_plan(manifest, inspect(), overrides).run
    inputs = resolve_inputs(run, NullReporter())
    documents = store_for(run, inputs, NullReporter()).split("train")
    if documents is None:
        sys.exit(f"{held_out}: no rows")
    data = PackedDataset(documents, 4096, "off", "error")
    module = CausalLoss(open_expert(run, find_adapter(adapter), NullReporter()).model).eval()
    collate = Collator(inputs.tokenizer.pad_id)
    found = []
    with torch.no_grad():
        for n in range(len(data)):
            batch = {k: v for k, v in collate([data[0, n]]).items() if k != "real_tokens"}
            found.append(float(module(**batch)))
    return found


def measure(name: str, packing: str, seed: int, options: argparse.Namespace) -> dict[str, Any]:
    """Train once, and return what came of it."""
    out: Path = options.out
    manifest, train, held_out, cases, length = inputs_of(name, out, options.spider, options.rows)
    run = out / name / f"{packing}-{seed}"
    setting = ("--set", f"training.config.packing={packing}", "--set", f"training.config.max_seq_length={length}")
    common = ("--manifest", manifest, "--base-model", "smollm2")
    steps = options.tokens // length
    expert_cli(
        "train", *common, "--dataset", train, "--output", run, "--seed", seed, "--max-steps", steps, *setting,
        "--resume", "auto", "--quiet",
    )  # fmt: skip
    told = expert_cli(
        "evaluate", *common, "--adapter", run, "--cases", cases, "--limit", CASES, "--json", "--quiet",
        "--output", run / "measured.json",
    )  # fmt: skip
    report, evaluation = json.loads((run / "report.json").read_text(encoding="utf-8")), json.loads(told)
    return {
        "set": name,
        "packing": packing,
        "seed": seed,
        "steps": steps,
        "fill": report["store"]["packing"]["fill"],
        "documents": losses(run, manifest, held_out),
        "right": [answer["kind"] == "correct" for answer in evaluation["answers"]],
        "seconds": report["seconds"],
    }


def interval(values: list[float]) -> str:
    """Return mean and 95 % interval of at least two paired differences."""
    found = mean_of(values)
    low, high = found.ci95 or (math.nan, math.nan)
    return f"{found.mean:+.3f} ({low:+.3f} to {high:+.3f})"


def table(rows: list[dict[str, Any]]) -> None:
    """Print a line a set: nats a held-out answer and right answers with both packings, and their paired difference."""
    print("| set | nats, best fit | nats, random | random - best fit (95 %) | right, best fit | right, random |")
    print("|---|---|---|---|---|---|")
    by = {(row["set"], row["packing"], row["seed"]): row for row in rows}
    for name in dict.fromkeys(row["set"] for row in rows):
        seeds = [s for n, p, s in by if n == name and p == "random" and (n, "best_fit", s) in by]
        if not seeds:
            continue
        one, other = ([by[name, packing, seed] for seed in seeds] for packing in PACKINGS)
        # A document's mean over the seeds: documents are the sample, seeds of one document are not independent.
        nats = [
            [statistics.mean(d) for d in zip(*(r["documents"] for r in side), strict=True)] for side in (one, other)
        ]
        right = [" ".join(f"{sum(r['right'])}/{len(r['right'])}" for r in side) for side in (one, other)]
        differences = [b - a for a, b in zip(*nats, strict=True)]
        means = [f"{statistics.mean(side):.3f}" for side in nats]
        print(
            f"| {name}, {len(seeds)} seeds | {means[0]} | {means[1]} | {interval(differences)} | {right[0]} | {right[1]} |"
        )


def main() -> None:
    """Measure what is not measured yet, then print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=Path)
    parser.add_argument("--spider", type=Path)
    parser.add_argument("--sets", default=",".join((*EXPERTS, "spider")))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--rows", type=int, default=150)
    parser.add_argument("--tokens", type=int, default=20_480, help="tokens of capacity that a run trains on")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    results = options.out / "results.jsonl"
    done = read(results) if results.is_file() else []
    known = {(row["set"], row["packing"], row["seed"]) for row in done}
    for seed in range(options.seeds):
        for name in options.sets.split(","):
            for packing in PACKINGS:
                if (name, packing, seed) in known:
                    continue
                row = measure(name, packing, seed, options)
                with results.open("a", encoding="utf-8") as file:
                    file.write(f"{json.dumps(row)}\n")
                nats, right = statistics.mean(row["documents"]), f"{sum(row['right'])}/{len(row['right'])}"
                print(
                    f"{name} {packing} {seed}: {nats:.3f} nats, {right} right, {row['seconds']:.0f} s",
                    flush=True,
                )
    table(read(results) if results.is_file() else [])


if __name__ == "__main__":
    main()
