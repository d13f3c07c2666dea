"""Train the four experts, ask them and their base model, and print the tables of README.md and docs/BENCHMARKS.md.

    python -m benchmarks.measure_experts OUT --data DATA

Each expert is trained on the rows that lie in the repository, and asked three sets of questions:

    held-out        experts/NAME/tests/cases.jsonl: the worlds of its training rows, questions that are not among them
    unseen world    experts/NAME/tests/unseen.jsonl: databases, graphs and objects that no training row speaks of
    real questions  public benchmarks under DATA (see datagen/spider/make_real_cases.py), as cases below OUT/real: SQL defog,
                    TypeScript mbxp, Cypher the movies graph

The base model answers the same in its own chat template, without examples and with three of them. Everything that was
written stays below OUT: runs, and for each set a document with every answer (`evaluate --answers` judges it again), which is
not measured again. DATA may be left out: then nothing real is asked. Commands run in the folder of the repository; OUT stands
for that folder where they are printed.
"""

from __future__ import annotations

import argparse
import json
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parents[1]
EXPERTS = {"sql": "SQL", "json": "JSON", "typescript": "TypeScript", "neo4j": "Cypher"}
REAL = {"sql": "sql", "json": "json", "typescript": "typescript", "neo4j": "cypher"}
"""An expert -> its folder among the real cases."""
REAL_LIMIT = 300
"""So many of the real questions are asked, spread over all."""
SETS = {"cases": "held-out", "unseen": "unseen world", "real": "real questions"}
BASES = ("baseline", "few_shot")
Document = dict[str, Any]


def train_command(name: str, options: argparse.Namespace) -> list[str]:
    """Return the arguments that train an expert, or go on with its training; a finished run is left as it is."""
    folder = f"experts/expert-{name}"
    length = ["--max-steps", str(options.max_steps)] if options.max_steps else ["--epochs", "1"]
    command = ["train", "--manifest", f"{folder}/manifest.json", "--base-model", "smollm2"]
    command += ["--dataset", f"{folder}/datasets/train.jsonl", "--output", str(run_of(name, options))]
    return [*command, *length, "--resume", "auto"]


def evaluate_command(name: str, key: str, cases: str, options: argparse.Namespace) -> list[str]:
    """Return the arguments that ask an expert and its base model."""
    limit = limit_of(key, options)
    command = ["evaluate", "--adapter", str(run_of(name, options)), "--cases", cases, "--baseline", "--shots", "3"]
    command += ["--max-new-tokens", "512", "--output", str(answers_of(name, key, options))]
    return [*command, *(["--limit", str(limit)] if limit else [])]


def run_of(name: str, options: argparse.Namespace) -> Path:
    """Return the run directory of an expert; a shorter training has its own."""
    out: Path = options.out
    return out / (f"{name}-{options.max_steps}-steps" if options.max_steps else name)


def answers_of(name: str, key: str, options: argparse.Namespace) -> Path:
    """Return the document of a set; so many of its questions have their own."""
    run, limit = run_of(name, options), limit_of(key, options)
    return run.with_name(f"{run.name}-{key}-{limit}.json" if limit else f"{run.name}-{key}.json")


def limit_of(key: str, options: argparse.Namespace) -> int | None:
    """Return how many questions of a set are asked at most; None: all."""
    limit: int | None = options.limit or (REAL_LIMIT if key == "real" else None)
    return limit


def case_files(name: str, options: argparse.Namespace) -> dict[str, str]:
    """Return the sets of an expert that are there, relative to the repository where they are in it."""
    tests = f"experts/expert-{name}/tests"
    real = options.out / "real" / REAL[name] / "cases.jsonl"
    found = {"cases": f"{tests}/cases.jsonl", "unseen": f"{tests}/unseen.jsonl", "real": str(real)}
    return {key: path for key, path in found.items() if (HERE / path).is_file()}


def run(command: Sequence[str]) -> None:
    """Run a command of expert-cli. Raises CalledProcessError."""
    print(f"$ expert-cli {shlex.join(command)}", flush=True)
    subprocess.run([sys.executable, "-m", "expert_cli", *command], check=True, cwd=HERE)


def printed(command: Sequence[str], out: Path) -> str:
    """Return a command as it is printed beside a table."""
    return f"expert-cli {shlex.join(command)}".replace(str(out), "OUT")


def measure(options: argparse.Namespace) -> tuple[dict[tuple[str, str], Document], list[str]]:
    """Train and ask what was not asked yet; return the documents by expert and set, and the commands that made them."""
    real = options.out / "real"
    if options.data is not None and not real.is_dir():
        made = ["datagen.spider.make_real_cases", str(options.data.resolve()), str(real)]
        subprocess.run([sys.executable, "-m", *made], cwd=HERE, check=True)
    found, commands = {}, []
    for name in options.experts:
        training, files = train_command(name, options), case_files(name, options)
        if not all(answers_of(name, key, options).is_file() for key in files):
            run(training)
        for key, path in files.items():
            answers, asking = answers_of(name, key, options), evaluate_command(name, key, path, options)
            if not answers.is_file():
                run(asking)
            found[name, key] = json.loads(answers.read_text(encoding="utf-8"))
            commands += [printed(training, options.out), printed(asking, options.out)]
    return found, list(dict.fromkeys(commands))


def short_table(found: dict[tuple[str, str], Document]) -> list[str]:
    """Return README's table: an expert a line, a set a column, "expert, base model, base model with examples of cases"."""

    def cell(document: Document | None) -> str:
        if document is None:
            return "not measured"
        bases = ", ".join(str(document[base]["correct"]) for base in BASES if document[base])
        return f"**{document['correct']}**, {bases} of {document['cases']}"

    lines = [f"| expert | {' | '.join(SETS.values())} |", f"|---|{'---|' * len(SETS)}"]
    for name in dict.fromkeys(name for name, _ in found):
        cells = [cell(found.get((name, key))) for key in SETS]
        lines.append(f"| {EXPERTS[name]} | {' | '.join(cells)} |")
    told = "Right answers of the trained expert, and of the base model without examples and with 3."
    return [*lines, "", told]


def long_table(found: dict[tuple[str, str], Document]) -> list[str]:
    """Return BENCHMARKS' table: a line for every expert and set, with 95 % intervals and how many answers were cut off."""

    def interval(share: Document | None) -> str:
        if share is None:
            return "not asked"
        low, high = (f"{100 * end:.1f} %" for end in share["ci95"])
        return f"{share['correct']}/{share['cases']}, {100 * share['correct'] / share['cases']:.1f} % ({low} to {high})"

    lines = [
        "| expert | questions | base model | with examples | trained | cut off (trained, base, with examples) |",
        "|---|---|---|---|---|---|",
    ]
    for (name, key), document in found.items():
        bases = [document[base] for base in BASES]
        cut = ", ".join(str(part["generation"]["cut_off"]) for part in (document, *bases) if part)
        shares = " | ".join(map(interval, (*bases, document)))
        lines.append(f"| {EXPERTS[name]} | {SETS[key]} | {shares} | {cut} |")
    return lines


def main() -> None:
    """Measure what is missing, then print the tables and the commands that made them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, help="a folder outside the repository; measuring goes on there")
    parser.add_argument("--data", type=Path, help="the folder of the public benchmarks")
    parser.add_argument("--experts", type=lambda text: text.split(","), default=list(EXPERTS))
    parser.add_argument("--limit", type=int, help="ask so many of every set")
    parser.add_argument("--max-steps", type=int, help="train so many steps instead of an epoch")
    options = parser.parse_args()
    options.out = options.out.resolve()
    options.out.mkdir(parents=True, exist_ok=True)
    found, commands = measure(options)
    print("", *short_table(found), "", *long_table(found), "", *commands, sep="\n")


if __name__ == "__main__":
    main()
