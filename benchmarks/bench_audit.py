"""How long `expert-cli audit` takes on many rows, by stage.

    python benchmarks/bench_audit.py                          # 100,000 rows for each of the four experts, on two cores
    python benchmarks/bench_audit.py --expert sql --spider DIR    # Spider's rows as well, run on its databases

The rows are an expert's own, each as often as it takes with other numbers in it and words of other questions put in: most
of them near duplicates of none, some of one. DIR holds train.jsonl and databases/. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from expert_cli.api.audits import audit

ROOT = Path(__file__).resolve().parents[1]
EXPERTS = {"sql": ("question", "answer"), "neo4j": ("question", "cypher"), "json": ("instruction", "output")}
EXPERTS["typescript"] = EXPERTS["json"]
LIMIT_S = 300.0
_NUMBER = re.compile(r"(?<![\w.])\d+(?![\w.])")


def main() -> int:
    """Print seconds by stage; exit code 1 if an audit took five minutes or more."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--expert", choices=EXPERTS, action="append")
    parser.add_argument("--spider", type=Path, help="a folder with train.jsonl and databases/, for sql")
    parser.add_argument("--cores", type=int, default=2)
    options = parser.parse_args()
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: options.cores])
    results = {name: measure(name, options.rows, options.spider) for name in options.expert or EXPERTS}
    for name, result in results.items():
        stages = ", ".join(f"{stage} {seconds:.1f}" for stage, seconds in result["stages"].items())
        print(f"{name}: {result['rows']:,} rows in {result['seconds']:.1f} s ({stages})")
    print(json.dumps({"cores": options.cores, "experts": results}))
    return int(any(result["seconds"] >= LIMIT_S for result in results.values()))


def measure(expert: str, count: int, spider: Path | None) -> dict[str, Any]:
    """Audit `count` rows of an expert, and return what was measured."""
    folder = ROOT / "experts" / f"expert-{expert}"
    files = [folder / "datasets" / "train.jsonl"]
    databases = None
    if expert == "sql" and spider:
        files.append(spider / "train.jsonl")
        databases = spider / "databases"
    own = [json.loads(line) for file in files for line in file.read_text(encoding="utf-8").splitlines()]
    with tempfile.TemporaryDirectory() as name:
        dataset = Path(name) / "rows.jsonl"
        with dataset.open("w", encoding="utf-8") as file:
            file.writelines(f"{json.dumps(row)}\n" for row in varied(own, EXPERTS[expert], count))
        started = time.perf_counter()
        found = audit(folder / "manifest.json", dataset=str(dataset), databases=databases, offline=True)
        seconds = time.perf_counter() - started
    document = found.as_json()
    counts = {check: found["count"] for check, found in document["checks"].items() if found["count"]}
    result = {"rows": document["rows"], "cases": document["cases"], "seconds": round(seconds, 1)}
    return result | {"stages": document["seconds"], "answers": document["answers"], "found": counts}


def varied(rows: list[dict[str, Any]], columns: tuple[str, str], count: int) -> Iterator[dict[str, Any]]:
    """Yield the rows, then more of them: another number for each, up to four words of other questions in the question."""
    question, answer = columns
    drawn = random.Random(0)
    words = [word for row in rows for word in str(row[question]).split()]
    for number in range(count):
        row = rows[number % len(rows)]
        turn = number // len(rows)
        if not turn:
            yield row
            continue

        def other(match: re.Match[str], turn: int = turn) -> str:
            return str(int(match[0]) + turn)

        asked = _NUMBER.sub(other, str(row[question])).split()
        for _ in range(drawn.randrange(5)):
            asked.insert(drawn.randrange(len(asked) + 1), drawn.choice(words))
        yield row | {question: " ".join(asked), answer: _NUMBER.sub(other, str(row[answer]))}


if __name__ == "__main__":
    raise SystemExit(main())
