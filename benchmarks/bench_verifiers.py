"""Measure how many answers a second are judged, engines already started: on one content, and on eight made of it besides;
others by the answers of their example, the right one and the wrong one in turn.

"all right" is the worst case: a wrong answer ends with the first content.

python -m benchmarks.bench_verifiers [--seconds 3]
"""

from __future__ import annotations

import argparse
import sqlite3
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from expert_cli.evaluation.cases import read_case
from expert_cli.evaluation.verifiers.case import Case
from expert_cli.evaluation.verifiers.registry import VERIFIERS

ROWS = 200
TIMEOUT_S = 2.0
QUERIES = (
    "SELECT name FROM people WHERE age > 30 ORDER BY name",
    "SELECT city, count(*), avg(age) FROM people GROUP BY city",
    "SELECT p.name, q.name FROM people p JOIN people q ON q.id = p.id + 1 WHERE p.age > 60",
    "SELECT nme FROM people",
    "DROP TABLE people",
)
CYPHER_QUERIES = (
    "MATCH (p:Person)-[:KNOWS]->(q:Person) RETURN p.name, q.name",
    "MATCH (p:Person) WHERE p.age > 30 RETURN count(p)",
    "MATCH (p:Person RETURN p",
)

JUDGE = """
import json, sys
told = json.loads(sys.stdin.readline())
print(json.dumps({"correct": told["answer"] == told["case"]["expected"]}))
"""


def make_database(path: Path) -> None:
    """Write a small table of people."""
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE people (id INTEGER PRIMARY KEY, name TEXT, city TEXT, age INTEGER)")
    rows = [(i, f"name {i}", f"city {i % 7}", 20 + i % 50) for i in range(ROWS)]
    connection.executemany("INSERT INTO people VALUES (?, ?, ?, ?)", rows)
    connection.commit()
    connection.close()


def make_script(path: Path) -> None:
    """Write a small graph of people."""
    nodes = [f"(p{i}:Person {{name: 'name {i}', age: {20 + i}}})" for i in range(30)]
    links = [f"(p{i})-[:KNOWS]->(p{(i * 7 + 1) % 30})" for i in range(30)]
    path.write_text(f"CREATE {', '.join(nodes + links)};\n", encoding="utf-8")


def rate(case: Case, file: Path | None, answers: Sequence[str], seconds: float) -> tuple[float, int]:
    """Return checks a second, the answers in turn, and how many there were."""
    case.grade(answers[0], file, TIMEOUT_S)
    started, done = time.perf_counter(), 0
    while time.perf_counter() - started < seconds:
        case.grade(answers[done % len(answers)], file, TIMEOUT_S)
        done += 1
    return done / (time.perf_counter() - started), done


def main() -> None:
    """Print a line a verifier."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=3.0)
    seconds: float = parser.parse_args().seconds
    with tempfile.TemporaryDirectory() as folder:
        database, script = Path(folder, "people.sqlite"), Path(folder, "people.cypher")
        make_database(database)
        make_script(script)
        sql = {"verifier": "sql", "database": database.name, "expected": QUERIES[0]}
        graph = {"verifier": "cypher", "script": script.name, "expected": CYPHER_QUERIES[0]}
        value = {"verifier": "json", "schema": None, "expected": {"tags": [1, 2], "name": "Ada"}, "rule": "exact"}
        asked: dict[str, tuple[dict[str, Any], Path | None, tuple[str, ...]]] = {
            "sql": (sql, database, QUERIES),
            "sql, 8 more": ({**sql, "perturb": 8}, database, QUERIES),
            "sql, 8, all right": ({**sql, "perturb": 8}, database, QUERIES[:1]),
            "cypher": (graph, script, CYPHER_QUERIES),
            "cypher, 8 more": ({**graph, "perturb": 8}, script, CYPHER_QUERIES),
            "cypher, 8, right": ({**graph, "perturb": 8}, script, CYPHER_QUERIES[:1]),
            "json": (value, None, ('{"name": "Ada", "tags": [1, 2.0]}',)),
        }
        judge = Path(folder, "judge.py")
        judge.write_text(JUDGE, encoding="utf-8")
        for name, kind in VERIFIERS.items():
            row = {"verifier": name} | {key: value for key, value in kind.example.row.items() if key != "prompt"}
            file = judge if name == "command" else None
            asked.setdefault(name, (row, file, (kind.example.right, kind.example.wrong)))
        for name, (row, file, answers) in asked.items():
            per_second, done = rate(read_case(name, row), file, answers, seconds)
            print(f"{name:18} {per_second:10,.0f} checks/s  ({done:,} checks)")


if __name__ == "__main__":
    main()
