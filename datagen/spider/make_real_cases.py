"""Turn public benchmarks into test cases and training rows, in the form of prompts that the experts are trained on.

    python -m datagen.spider.make_real_cases DATA OUTPUT

DATA holds sql/defog_eval.jsonl with sql/defog_db/, sql/spider_train.jsonl, typescript/mbxp.jsonl and
cypher/text2cypher_opus.jsonl with cypher/movies.cypher; a part that is missing is passed over. OUTPUT gets one folder an
expert with cases.jsonl (`expert-cli evaluate --cases`) and sql/spider_train.jsonl (`expert-cli train --dataset`). The
benchmarks have licenses of their own, so nothing of this belongs into the repository.

A case is kept only where its own right answer passes: the SQL and Cypher run and find something, the TypeScript is
type-checked and run (without node it is left unchecked).
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import apsw

from datagen.cases.make import cypher_category, sql_category
from datagen.common.dataset_files import Row, write_jsonl
from datagen.neo4j.make import connect, run
from datagen.typescript.check import failures

# Spider trains on these databases too, and defog asks about them (geo is defog's geography).
SHARED_DATABASES = {"academic", "geo", "restaurants", "scholar", "yelp"}
LIMIT_S = 1  # what graphqlite cannot answer in this time could not be judged either
MBXP = re.compile(
    r"^/\*\*(?P<doc>.*?)\*/\s*const (?P<name>\w+) = function \((?P<args>.*)\)\s*:\s*(?P<gives>.*?)\s*\{\s*$", re.S
)
PYTHON_WORDS = {"True": "true", "False": "false", "None": "null"}


def read(path: Path) -> list[dict[str, Any]]:
    """The rows of a JSON Lines file."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def statements(text: str) -> list[str]:
    """The statements of a text; a semicolon inside quotes parts nothing."""
    found, current = [], ""
    for piece in text.split(";"):
        current += f"{piece};"
        if sqlite3.complete_statement(current):
            found.append(current.strip())
            current = ""
    return [statement for statement in found if statement != ";"]


def unquoted(context: str) -> str:
    """The context with bare names, as training rows have them, where sqlite takes them."""
    bare = re.sub(r'"(\w+)"', r"\1", context)
    with closing(sqlite3.connect(":memory:")) as connection:
        try:
            connection.executescript(bare)
        except sqlite3.Error:
            return context
    return bare


def finds_something(database: Path, query: str) -> bool:
    """Whether the query runs and finds a row."""
    with closing(sqlite3.connect(f"{database.as_uri()}?mode=ro", uri=True)) as connection:
        try:
            return connection.execute(query).fetchone() is not None
        except sqlite3.Error:
            return False


def defog(data: Path, output: Path) -> Iterator[Row]:
    """Questions about the defog databases; several right queries may be given for one of them."""
    (output / "data").mkdir(parents=True, exist_ok=True)
    for number, row in enumerate(read(data / "sql" / "defog_eval.jsonl"), 1):
        database = (data / "sql" / "defog_db" / f"{row['db_id']}.sqlite").resolve()
        right = [query for query in statements(row["answer"]) if finds_something(database, query)]
        if not right:
            continue
        copy = output / "data" / database.name
        if not copy.exists():
            shutil.copyfile(database, copy)
        yield {
            "id": f"{row['db_id']}-{number}",
            "category": sql_category(right[0]),
            "verifier": "sql",
            "prompt": f"{row['question']} {row['instructions'] or ''}".strip(),
            "input": unquoted(row["context"]),
            "database": f"data/{copy.name}",
            "expected": " ".join(right),
        }


def _tidy_code(text: str) -> str:
    text = re.sub(r"\s+", " ", text)
    return re.sub(r" (?=[,)])|(?<=\() ", "", text)


def tidy(query: str, context: str) -> str:
    """The query with single spaces, and with single quotes around text that is no name of the context."""
    names = set(re.findall(r"\w+", context.lower()))
    parts = re.split(r"('[^']*'|\"[^\"]*\")", query.strip().rstrip(";"))
    for place in range(0, len(parts), 2):
        parts[place] = _tidy_code(parts[place])
    for place in range(1, len(parts), 2):
        inside = parts[place][1:-1]
        if parts[place][0] == '"' and inside.lower() not in names:
            parts[place] = "'" + inside.replace("'", "''") + "'"
    return "".join(parts).strip()


def compiles(query: str, context: str) -> bool:
    """Whether the query can be prepared over the context's tables."""
    with closing(sqlite3.connect(":memory:")) as connection:
        try:
            connection.executescript(context)
            connection.execute(f"EXPLAIN {query}")
        except (sqlite3.Error, sqlite3.Warning):
            return False
    return True


def spider(data: Path) -> Iterator[Row]:
    """Training rows with the columns of expert-sql, of databases that defog does not ask about."""
    for row in read(data / "sql" / "spider_train.jsonl"):
        answer = tidy(row["answer"], row["context"])
        if row["db_id"] not in SHARED_DATABASES and compiles(answer, row["context"]):
            yield {"question": row["question"].strip(), "context": row["context"], "answer": answer}


def _shown(doc: str) -> tuple[str, str]:
    """What follows on the signature: the task of a comment in one line; and its first example."""
    lines = [re.sub(r"^\s*\* ?", "", line).strip() for line in doc.strip().splitlines()]
    text, _, examples = "\n".join(lines).partition("Examples:")
    given = [line.removeprefix(">>> ") for line in examples.strip().splitlines() if line]
    example = f" Example: `{given[0]}` gives `{given[1]}`." if len(given) > 1 else ""
    task, said = re.subn(r"(?i)^write an? (typescript )?function ", " ", " ".join(text.split()))
    return task if said else f". {task}", re.sub(r"\b(True|False|None)\b", lambda m: PYTHON_WORDS[m[0]], example)


def functions(data: Path, _output: Path) -> Iterator[Row]:
    """Whole functions by signature, description and one example; the right answers are those that pass."""
    asked = [(row, MBXP.match(row["instruction"])) for row in read(data / "typescript" / "mbxp.jsonl")]
    made, right = [], []
    for row, match in asked:
        if match is None:
            continue
        text, example = _shown(match["doc"])
        checks = re.sub(r'assert\.deepEqual\((\w+), (\w+), "[^"]*"\);', r"deepStrictEqual(\1, \2);", row["test"])
        tests = checks.replace("import * as assert from 'assert'", 'import { deepStrictEqual } from "node:assert";')
        signature = f"{match['name']}({match['args']}): {match['gives']}"
        case = {"id": row["task_id"].replace("/", "-"), "category": "mbxp", "verifier": "typescript"}
        made.append(
            {**case, "prompt": f"Write a TypeScript function `{signature}`{text}{example}", "tests": tests.strip()}
        )
        right.append({"output": row["instruction"] + row["output"], "test": tests})
    reasons = failures(right)
    return (case for case, reason in zip(made, reasons, strict=True) if reason is None)


def graph_script(text: str) -> str:
    """The script without constraints and indexes, which change no result."""
    return (
        "\n".join(line for line in text.splitlines() if not re.match(r"CREATE (CONSTRAINT|INDEX)\b", line)).strip()
        + "\n"
    )


def reaches_something(connection: apsw.Connection, query: str) -> bool:
    """Whether graphqlite runs the query within the limit and its result holds more than nulls, zeros and empty lists."""
    late = time.monotonic() + LIMIT_S
    connection.set_progress_handler(lambda: time.monotonic() > late, 10_000)
    try:
        return any(value not in (None, 0, []) for values in run(connection, query) for value in values)
    except (apsw.Error, ValueError):
        return False


def movies(data: Path, output: Path) -> Iterator[Row]:
    """Questions about the movies graph whose answer graphqlite can run."""
    script = graph_script((data / "cypher" / "movies.cypher").read_text(encoding="utf-8"))
    (output / "data").mkdir(parents=True, exist_ok=True)
    (output / "data" / "movies.cypher").write_text(script, encoding="utf-8", newline="\n")
    connection = connect()
    for statement in statements(script):
        connection.execute("SELECT cypher(?)", (statement.rstrip(";"),)).fetchall()
    rows = [row for row in read(data / "cypher" / "text2cypher_opus.jsonl") if row["database"] == "movies"]
    for number, row in enumerate(rows, 1):
        if reaches_something(connection, row["cypher"]):
            head = {"id": f"movies-{number}", "category": cypher_category(row["cypher"]), "verifier": "cypher"}
            prompt = {"prompt": row["question"], "input": row["schema"]}
            yield {**head, **prompt, "script": "data/movies.cypher", "expected": row["cypher"]}


SETS: dict[str, tuple[str, Callable[[Path, Path], Iterator[Row]]]] = {
    "sql": ("sql/defog_eval.jsonl", defog),
    "typescript": ("typescript/mbxp.jsonl", functions),
    "cypher": ("cypher/text2cypher_opus.jsonl", movies),
}


def main() -> None:
    """Write what the data gives and say how much was kept."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, help="the folder of the benchmarks")
    parser.add_argument("output", type=Path, help="a folder outside the repository")
    options = parser.parse_args()
    data, output = options.data, options.output
    for name, (source, make) in SETS.items():
        if (data / source).is_file():
            rows = list(make(data, output / name))
            kept = write_jsonl(output / name / "cases.jsonl", rows)
            print(f"{output / name / 'cases.jsonl'}: {kept} cases")
    if (data / "sql" / "spider_train.jsonl").is_file():
        print(
            f"{output / 'sql' / 'spider_train.jsonl'}: {write_jsonl(output / 'sql' / 'spider_train.jsonl', spider(data))} rows"
        )


if __name__ == "__main__":
    main()
