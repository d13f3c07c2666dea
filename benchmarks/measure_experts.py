"""Train the four experts, ask them and their base model, and print the tables of README.md and docs/BENCHMARKS.md.

    python -m benchmarks.measure_experts OUT --data DATA

Each expert is trained on the rows that lie in the repository, and asked three sets of questions:

    held-out        experts/NAME/tests/cases.jsonl: the worlds of its training rows, questions that are not among them
    unseen world    experts/NAME/tests/unseen.jsonl: databases, graphs and objects that no training row speaks of
    real questions  public benchmarks under DATA (see datagen/spider/make_real_cases.py), as cases below OUT/real: SQL defog,
                    TypeScript mbxp, Cypher the movies graph

The base model answers the same in its own chat template, without examples and with --shots of them. Everything that was
written stays below OUT: runs, and for each set a document with every answer (`evaluate --answers` judges it again).
OUT/results.jsonl gets a row a set, with its commands; what stands there is not measured again. DATA may be left out: then
nothing real is asked. Commands run in the folder of the repository; OUT stands for that folder where they are printed.
"""

from __future__ import annotations

import argparse
import json
import shlex
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parents[1]
EXPERTS = {"sql": "SQL", "json": "JSON", "typescript": "TypeScript", "neo4j": "Cypher"}
REAL = {"sql": "sql", "json": "json", "typescript": "typescript", "neo4j": "cypher"}
"""An expert -> its folder among the real cases."""
SETS = {"cases": "held-out", "unseen": "unseen world", "real": "real questions"}
BASES = ("baseline", "few_shot")
Row = dict[str, Any]


def train_command(name: str, options: argparse.Namespace) -> list[str]:
    """Return the arguments that train an expert, or go on with its training; a finished run is left as it is."""
    folder = f"experts/expert-{name}"
    command = ["train", "--manifest", f"{folder}/manifest.json", "--base-model", options.base_model]
    command += ["--dataset", f"{folder}/datasets/train.jsonl", "--output", str(options.out / name)]
    length = ["--max-steps", str(options.max_steps)] if options.max_steps else ["--epochs", "1"]
    return [*command, *length, "--resume", "auto"]


def evaluate_command(name: str, key: str, cases: str, options: argparse.Namespace) -> list[str]:
    """Return the arguments that ask an expert and its base model."""
    limit = limit_of(key, options)
    command = ["evaluate", "--adapter", str(options.out / name), "--cases", cases]
    command += [
        "--baseline",
        "--shots",
        str(options.shots),
        "--max-new-tokens",
        "512",
        "--output",
        str(options.out / f"{name}-{key}.json"),
    ]
    return [*command, *(["--limit", str(limit)] if limit else [])]


def limit_of(key: str, options: argparse.Namespace) -> int | None:
    """Return how many questions of a set are asked at most; None: all."""
    limit: int | None = options.limit or (options.real_limit if key == "real" else None)
    return limit


def case_files(name: str, options: argparse.Namespace) -> dict[str, str]:
    """Return the sets of an expert that are there, relative to the repository where they are in it."""
    tests = f"experts/expert-{name}/tests"
    real = options.out / "real" / REAL[name] / "cases.jsonl"
    found = {"cases": f"{tests}/cases.jsonl", "unseen": f"{tests}/unseen.jsonl", "real": str(real)}
    return {key: path for key, path in found.items() if (HERE / path).is_file()}


def run(command: Sequence[str]) -> float:
    """Run a command of expert-cli and return its seconds. Raises CalledProcessError."""
    print(f"$ expert-cli {shlex.join(command)}", flush=True)
    started = time.monotonic()
    subprocess.run([sys.executable, "-m", "expert_cli", *command], check=True, cwd=HERE)
    return time.monotonic() - started


def printed(command: Sequence[str], out: Path) -> str:
    """Return a command as it is printed beside a table."""
    return f"expert-cli {shlex.join(command)}".replace(str(out), "OUT")


def row_of(document: Row, name: str, key: str, commands: Sequence[str], seconds: float) -> Row:
    """Return what is kept of an evaluation's document, beside the file itself."""

    def share(part: Row) -> Row:
        return {"correct": part["correct"], "cases": part["cases"], "ci95": part["ci95"]}

    return {
        "expert": name,
        "set": key,
        "trained": share(document),
        **{base: share(document[base]) for base in BASES if document[base]},
        "shots": document["few_shot"]["shots"] if document["few_shot"] else 0,
        "cut_off": {
            who: part["generation"]["cut_off"]
            for who, part in (("trained", document), *((base, document[base]) for base in BASES))
            if part
        },
        "limit": document["limit"],
        "adapter_sha256": document["expert"]["adapter_sha256"],
        "commands": list(commands),
        "seconds": seconds,
    }


def measure(options: argparse.Namespace, done: list[Row]) -> None:
    """Train and ask what is not among the results yet; each result is written as soon as it is there."""
    if options.data is not None and not (options.out / "real").is_dir():
        made = [
            sys.executable,
            "-m",
            "datagen.spider.make_real_cases",
            str(options.data.resolve()),
            str(options.out.resolve() / "real"),
        ]
        subprocess.run(made, cwd=HERE, check=True)
    for name in options.experts:
        files = {key: path for key, path in case_files(name, options).items() if not same(done, name, key, options)}
        training = train_command(name, options)
        if files:
            run(training)
        for key, path in files.items():
            command = evaluate_command(name, key, path, options)
            seconds = run(command)
            document = json.loads((options.out / f"{name}-{key}.json").read_text(encoding="utf-8"))
            row = row_of(document, name, key, [printed(one, options.out) for one in (training, command)], seconds)
            done.append(row)
            with (options.out / "results.jsonl").open("a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")


def same(rows: Sequence[Row], name: str, key: str, options: argparse.Namespace) -> list[Row]:
    """Return the results for a set of an expert that were asked as they would be now."""
    asked = (name, key, limit_of(key, options), options.shots)
    return [row for row in rows if (row["expert"], row["set"], row["limit"], row["shots"]) == asked]


def short_table(rows: Sequence[Row]) -> list[str]:
    """Return README's table: an expert a line, a set a column, "expert (base model; base model with examples) of cases"."""
    shots = max((row["shots"] for row in rows), default=0)
    lines = [
        f"| expert | {' | '.join(SETS.values())} |",
        f"|---|{'---|' * len(SETS)}",
    ]
    for name, title in EXPERTS.items():
        cells = []
        for key in SETS:
            row = next((one for one in rows if (one["expert"], one["set"]) == (name, key)), None)
            cells.append("not measured" if row is None else _cell(row))
        if any(cell != "not measured" for cell in cells):
            lines.append(f"| {title} | {' | '.join(cells)} |")
    told = f"Right answers of the trained expert, and of the base model without examples and with {shots}."
    return [*lines, "", told]


def _cell(row: Row) -> str:
    trained = row["trained"]
    bases = ", ".join(str(row[base]["correct"]) for base in BASES if base in row)
    return f"**{trained['correct']}**, {bases} of {trained['cases']}"


def long_table(rows: Sequence[Row]) -> list[str]:
    """Return BENCHMARKS' table: a line for every expert and set, with 95 % intervals and how many answers were cut off."""
    lines = [
        "| expert | questions | base model | with examples | trained | cut off (trained, base, with examples) |",
        "|---|---|---|---|---|---|",
    ]
    for name, title in EXPERTS.items():
        for key, what in SETS.items():
            for row in (one for one in rows if (one["expert"], one["set"]) == (name, key)):
                shares = [_interval(row[who]) if who in row else "not asked" for who in (*BASES, "trained")]
                cut = ", ".join(str(count) for count in row["cut_off"].values())
                lines.append(f"| {title} | {what} | {' | '.join(shares)} | {cut} |")
    return lines


def _interval(share: Row) -> str:
    low, high = (f"{100 * end:.1f} %" for end in share["ci95"])
    return f"{share['correct']}/{share['cases']}, {100 * share['correct'] / share['cases']:.1f} % ({low} to {high})"


def read(path: Path) -> list[Row]:
    """Return the results so far."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.is_file() else []


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure what is missing, then print the tables and the commands that made them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, help="a folder outside the repository; measuring goes on there")
    parser.add_argument(
        "--data", type=Path, help="the folder of the public benchmarks; without it nothing real is asked"
    )
    parser.add_argument("--experts", type=lambda text: text.split(","), default=list(EXPERTS))
    parser.add_argument("--base-model", default="smollm2")
    parser.add_argument("--shots", type=int, default=3)
    parser.add_argument("--limit", type=int, help="ask so many of every set")
    parser.add_argument("--real-limit", type=int, default=300, help="ask so many of the real questions, spread")
    parser.add_argument("--max-steps", type=int, help="train so many steps instead of an epoch")
    options = parser.parse_args(arguments)
    options.out = options.out.resolve()
    options.out.mkdir(parents=True, exist_ok=True)
    done = read(options.out / "results.jsonl")
    measure(options, done)
    rows = [row for name in EXPERTS for key in SETS for row in same(done, name, key, options)]
    commands = dict.fromkeys(command for row in rows for command in row["commands"])
    print("", *short_table(rows), "", *long_table(rows), "", *commands, sep="\n")


if __name__ == "__main__":
    main()
