"""How the checker of SQL answers does: gold queries that stay viable, wrong answers that do not, words at random, microseconds.

python -m benchmarks.bench_sql_grammar golds FILE...        # JSON Lines with expected|answer and input|context
python -m benchmarks.bench_sql_grammar answers FILE CASES    # an evaluation's answers: which of them the checker refuses
python -m benchmarks.bench_sql_grammar walks CASES --walks N # random words that it takes, compiled by SQLite
"""

from __future__ import annotations

import argparse
import collections
import json
import random
import re
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from expert_cli.evaluation.audit.sql_schema import compile_fault, open_schema
from expert_cli.evaluation.verifiers.query_text import split
from expert_cli.inference.grammar.sql.checker import SqlChecker
from expert_cli.inference.grammar.sql.table_schema import tables_of

NAMES = ("no such column", "no such table", "ambiguous column", "no such function")
WORDS = [
    "wrong",
    "nam",
    "T9x",
    "total_of",
    "SELECT",
    "SELECT",
    "FROM",
    "FROM",
    "FROM",
    "WHERE",
    "GROUP",
    "BY",
    "BY",
    "HAVING",
    "ORDER",
    "LIMIT",
    "OFFSET",
    "JOIN",
    "LEFT",
    "NATURAL",
    "CROSS",
    "ON",
    "ON",
    "USING",
    "AS",
    "AS",
    "AND",
    "OR",
    "NOT",
    "IN",
    "BETWEEN",
    "LIKE",
    "IS",
    "NULL",
    "CASE",
    "WHEN",
    "THEN",
    "ELSE",
    "END",
    "UNION",
    "INTERSECT",
    "EXCEPT",
    "ALL",
    "DISTINCT",
    "EXISTS",
    "WITH",
    "RECURSIVE",
    "OVER",
    "WINDOW",
    "PARTITION",
    "ASC",
    "DESC",
    "CAST",
    "FILTER",
    "VALUES",
    "COUNT",
    "SUM",
    "MAX",
    "MIN",
    "AVG",
    "LOWER",
    "strftime",
    "COALESCE",
    "ROW_NUMBER",
    "RANK",
    "ROUND",
    "TEXT",
    "rowid",
    ")",
    ")",
    ")",
    "(",
    "(",
    ",",
    ",",
    ".",
    ".",
    "=",
    "<",
    ">",
    "+",
    "-",
    "*",
    "/",
    "%",
    "||",
    ";",
    "[name]",
    "T1",
    "T2",
    "T3",
    "a",
    "b",
    "n",
    "1",
    "2",
    "'x'",
    '"name"',
    '"x"',
]
CLOSING = ("END", "THEN", "WHEN", "1", "SELECT 1", "AS", "T1", "T2", "T3", "n", "=")


def rows_of(path: Path) -> list[dict[str, Any]]:
    """Return the rows of a JSON Lines file."""
    with path.open(encoding="utf-8") as file:
        return [json.loads(line) for line in file if line.strip()]


def schema_of(row: dict[str, Any]) -> str:
    """Return the text of a row that has its tables."""
    return str(row.get("input") or row.get("context") or row.get("prompt"))


def refused_at(checker: SqlChecker, query: str) -> int | None:
    """Return the length of the first prefix that is refused, -1 where the query may not end, None where all is well."""
    for length in range(1, len(query) + 1):
        if not checker.viable(query[:length]):
            return length
    return None if checker.complete(query) else -1


def golds(rows: Sequence[dict[str, Any]]) -> Iterator[tuple[str, str]]:
    """Yield a row's tables and each of its accepted queries."""
    for row in rows:
        expected = row.get("expected") or row.get("answer")
        for text in expected if isinstance(expected, list) else [expected]:
            yield from ((schema_of(row), query) for query in split(str(text), "sqlite"))


def measure_golds(path: Path, show: int) -> None:
    """Print how many gold queries of a file stay viable at each character."""
    count, taken, checks, seconds = 0, 0, 0, 0.0
    for schema, query in golds(rows_of(path)):
        checker = SqlChecker(tables_of(schema), "sqlite")
        start = time.perf_counter()
        length = refused_at(checker, query)
        seconds += time.perf_counter() - start
        checks += len(query) + 1
        count += 1
        taken += length is None
        if length is not None and show:
            show -= 1
            print(f"    refused: {query[:length] if length > 0 else query + ' <end>'}")
            print(f"        {compile_fault(open_schema(schema)[0], query) or 'SQLite compiles it'} << {query[:300]}")
    print(
        f"{path.name}: {taken} of {count} gold queries viable at every prefix, {1e6 * seconds / checks:.1f} us a check"
    )


def measure_answers(path: Path, cases: Path, show: int) -> None:
    """Print which answers of an evaluation are refused, by what SQLite says of them on their tables."""
    schemas = {row["id"]: schema_of(row) for row in rows_of(cases)}
    table: collections.Counter[tuple[str, bool]] = collections.Counter()
    for answer in json.loads(path.read_text(encoding="utf-8"))["answers"]:
        schema, query = schemas[answer["id"]], answer["answer"]
        fault = compile_fault(open_schema(schema)[0], query)
        kind = next((name for name in NAMES if name in fault), "other error" if fault else "compiles")
        refused = refused_at(SqlChecker(tables_of(schema), "sqlite"), query) is not None
        table[kind, refused] += 1
        if show and refused == (kind == "compiles"):
            show -= 1
            length = refused_at(SqlChecker(tables_of(schema), "sqlite"), query)
            print(f"    {fault or 'compiles'} [{query[:length]}] << {query}")
    for (kind, refused), count in sorted(table.items()):
        print(f"{kind}: {count} {'refused' if refused else 'taken'}")


def walk(schema: str, draw: random.Random, words: Sequence[str], longest: int) -> str | None:
    """Return a query of random words that the checker takes; None where none ended in time."""
    checker, text = SqlChecker(tables_of(schema), "sqlite"), ""
    for step in range(longest):
        if step > 3 and checker.complete(text) and (text.endswith(";") or draw.random() < 0.3):
            return text
        first = (")", "FROM", *draw.sample(CLOSING, len(CLOSING))) if draw.random() < (step - 8) / 12 else ()
        for word in (*first, *draw.sample(words, len(words)), *last_resorts(checker, schema, text)):
            blank = "" if word in ".,();" or text.endswith((".", "(")) else " "
            if checker.viable(f"{text}{blank}{word}") and checker.viable(f"{text}{blank}{word} "):
                text = f"{text}{blank}{word}"
                break
        else:
            print(f"    DEAD END: nothing is viable after {text!r}")
            return None
    return text if checker.complete(text) else None


def last_resorts(checker: SqlChecker, schema: str, text: str) -> Iterator[str]:
    """Yield what else could go on from a text: every keyword that is wanted, every name of the schema and of the text."""
    wanted = checker._want
    yield from (word for group in (*wanted.words, *wanted.marks) for word in sorted(group))
    yield from (name for table in tables_of(schema).values() for name in (table.name, *table.columns))
    yield from sorted(set(re.findall(r"[^\W\d]\w*", text)))


def measure_walks(cases: Path, walks: int, seed: int, show: int) -> None:
    """Print what SQLite says of queries of random words."""
    draw = random.Random(seed)
    rows = rows_of(cases)
    table: collections.Counter[str] = collections.Counter()
    for _ in range(walks):
        schema = schema_of(draw.choice(rows))
        query = walk(schema, draw, vocabulary(schema, draw), 80)
        if query is None:
            table["not ended"] += 1
            continue
        fault = compile_fault(open_schema(schema)[0], query)
        table[re.sub(r":.*|\d+", "", fault) if fault else "compiles"] += 1
        if fault and show:
            show -= 1
            print(f"    {fault} << {query}")
    for kind, count in table.most_common():
        print(f"{kind}: {count}")


def vocabulary(schema: str, draw: random.Random) -> list[str]:
    """Return words to draw from: some names of a schema, wrong ones, keywords, functions, marks, literals."""
    known = tables_of(schema)
    tables = [known[name] for name in draw.sample(sorted(known), k=min(4, len(known)))]
    return [*(name for table in tables for name in (table.name, *table.columns)), *WORDS]


def main() -> None:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("golds", "answers", "walks"))
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--walks", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--show", type=int, default=10)
    options = parser.parse_args()
    if options.what == "golds":
        for path in options.files:
            measure_golds(path, options.show)
    elif options.what == "answers":
        measure_answers(options.files[0], options.files[1], options.show)
    else:
        measure_walks(options.files[0], options.walks, options.seed, options.show)


if __name__ == "__main__":
    main()
