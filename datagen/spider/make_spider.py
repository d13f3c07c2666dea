"""Turn Spider's training questions and their databases into rows, prompts and held-out cases of a text-to-SQL expert.

    python -m datagen.spider.make_spider SPIDER OUTPUT

SPIDER holds train.jsonl (db_id, question, context, answer) and databases/<db_id>.sqlite. OUTPUT gets

    train.jsonl       rows: question, context, answer (in the form of plain_sql.py), db_id
    prompts.jsonl     the same questions as cases (training.rft.prompts), with the rows' answers
    heldout.jsonl     cases on 20 databases that no row speaks of; decisions are made with them, by Spider's own rule
    databases/        copies

The 20 are drawn by a fixed seed. With --without DB ... databases are left out of all: those that a benchmark asks about.
A query is kept where SQLite runs it. The data has a license of its own (CC BY-SA 4.0), so nothing of this belongs into the
repository.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from functools import cache
from pathlib import Path

from datagen.cases.make import sql_category
from datagen.common.dataset_files import Row, write_jsonl
from datagen.spider.make_real_cases import SHARED_DATABASES, read, tidy
from datagen.spider.plain_sql import plain
from expert_cli.data.database_prompt import Table, read_file

HELD_OUT = 20
SEED = 0
CONTENTS = 8
"""So many other contents of its database judge an answer, too."""


def held_out(names: set[str]) -> set[str]:
    """Databases for decisions; those that defog asks about are not among them, so that leaving them out changes nothing."""
    return set(random.Random(SEED).sample(sorted(names - SHARED_DATABASES), HELD_OUT))


def opened(database: Path) -> closing[sqlite3.Connection]:
    """The database, to read; its texts as bytes, since some are no UTF-8."""
    connection = sqlite3.connect(f"{database.resolve().as_uri()}?mode=ro", uri=True)
    connection.text_factory = bytes
    return closing(connection)


def rows_of(connection: sqlite3.Connection, query: str) -> list[str] | None:
    """What a query gives, in any order; None where it does not run."""
    try:
        return sorted(map(repr, connection.execute(query)))
    except (sqlite3.Error, sqlite3.Warning):
        return None


@cache
def _declared(database: Path) -> tuple[Table, ...]:
    return tuple(read_file(database).tables.values())


@cache
def tables_of(database: Path) -> dict[str, list[str]]:
    """The tables of a database and their columns, in small letters where they need no quotes."""
    return {small(one.name): [small(column) for column in one.columns] for one in _declared(database)}


def small(name: str) -> str:
    """A name in small letters; as it is where it needs quotes."""
    return name.lower() if name.isidentifier() else name


@cache
def joins_of(database: Path) -> frozenset[tuple[str, str, str, str]]:
    """The foreign keys of a database: table, column, the other table, its column, in small letters."""
    keys = [(one.name, *key) for one in _declared(database) for key in one.foreign_keys]
    named = [(name, own, other, theirs) for name, other, pairs in keys for own, theirs in pairs.items() if theirs]
    return frozenset((a.lower(), b.lower(), c.lower(), d.lower()) for a, b, c, d in named)


def usable(source: Path, without: set[str]) -> Iterator[Row]:
    """The rows whose query runs: as `gold` in its own words, as `answer` in the plain form where that gives the same."""
    for number, row in enumerate(read(source / "train.jsonl"), 1):
        database = source / "databases" / f"{row['db_id']}.sqlite"
        if row["db_id"] in without:
            continue
        answer = tidy(row["answer"], row["context"])
        with opened(database) as connection:
            right = rows_of(connection, answer)
            if right is None:
                continue
            form = plain(answer, tables_of(database), joins_of(database))
            same = form is not None and rows_of(connection, form) == right
        question = row["question"].strip()
        yield {
            **row,
            "id": f"{row['db_id']}-{number}",
            "question": question,
            "gold": answer,
            "answer": form if same else answer,
        }


def as_row(row: Row) -> Row:
    """A training row."""
    return {key: row[key] for key in ("question", "context", "answer", "db_id")}


def as_case(row: Row, expected: str, rule: str) -> Row:
    """A case, judged on its database and on other contents of it. expected: the row's key of the right query."""
    return {
        "id": row["id"],
        "category": sql_category(row["gold"]),
        "verifier": "sql",
        "prompt": row["question"],
        "input": row["context"],
        "database": place(row),
        "expected": row[expected],
        "perturb": CONTENTS,
        "rule": rule,
    }


def place(row: Row) -> str:
    """Where the row's database lies below the output folder."""
    return f"databases/{row['db_id']}.sqlite"


def main() -> None:
    """Write the files and say how much is in them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("spider", type=Path, help="the folder of train.jsonl and databases/")
    parser.add_argument("output", type=Path, help="a folder outside the repository")
    parser.add_argument("--without", nargs="*", default=[], metavar="DB", help="databases to leave out")
    options = parser.parse_args()
    shutil.copytree(options.spider / "databases", options.output / "databases", dirs_exist_ok=True)
    rows = list(usable(options.spider, set(options.without)))
    apart = held_out({path.stem for path in (options.spider / "databases").glob("*.sqlite")})
    learned, kept = ([row for row in rows if (row["db_id"] in apart) is held] for held in (False, True))
    for name, made in {
        "train.jsonl": map(as_row, learned),
        "prompts.jsonl": (as_case(row, "answer", "strict") for row in learned),
        "heldout.jsonl": (as_case(row, "gold", "spider") for row in kept),
    }.items():
        print(f"{options.output / name}: {write_jsonl(options.output / name, list(made))} rows")


if __name__ == "__main__":
    main()
