"""What the schema prompt shows of a database: whether all that the right query names is there, and what it costs in tokens.

python -m benchmarks.measure_schema_prompt --data FOLDER --tokenizer tokenizer.json [--held-out 20] [--seed 0] [--all]

FOLDER: train.jsonl (db_id, question, context, answer) and databases/<db_id>.sqlite. Asked are the questions of the databases
that the seed holds out; --all: those of all the others. Prints a line a setting: the share of the query's tables, and of its
columns, that are shown; of questions with all of them shown, and its mean over databases; of the texts of the query that the
database holds, those that stand in the prompt as the query has them; tokens of the schema's part, mean and largest; seconds.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import sqlglot
from sqlglot import exp
from sqlglot.optimizer.scope import traverse_scope
from tokenizers import Tokenizer

from expert_cli.data.schema_prompt.builder import SchemaPrompt, shown
from expert_cli.data.schema_prompt.schema import Database
from expert_cli.data.schema_prompt.styles import STYLES
from expert_cli.data.schema_prompt.words import joined, text_words
from expert_cli.manifest.keys.schema_prompt import SchemaPromptConfig

ALL = SchemaPromptConfig(tables=None, columns=None, values=0)
SETTINGS = {
    "all, create_table": replace(ALL, style="create_table"),
    "all, compact": ALL,
    "all, compact, no types, no keys": replace(ALL, types=False, keys=False),
    "4 x 5": SchemaPromptConfig(tables=4, columns=5),
    "4 x 8": SchemaPromptConfig(tables=4, columns=8),
    "5 x 8": SchemaPromptConfig(tables=5, columns=8),
    "6 x 8": SchemaPromptConfig(tables=6, columns=8),
    "6 x 10": SchemaPromptConfig(tables=6, columns=10),
    "6 x 10, create_table": SchemaPromptConfig(tables=6, columns=10, style="create_table"),
    "6 x 10, no types": SchemaPromptConfig(tables=6, columns=10, types=False),
    "6 x 10, no values": SchemaPromptConfig(tables=6, columns=10, values=0),
    "6 x 10, 1 example": SchemaPromptConfig(tables=6, columns=10, examples=1),
    "6 x 10, 2 examples": SchemaPromptConfig(tables=6, columns=10, examples=2),
    "8 x 10": SchemaPromptConfig(tables=8, columns=10),
    "8 x 12": SchemaPromptConfig(tables=8, columns=12),
}


class Gold(NamedTuple):
    """What a query names, in small letters: tables, (table, column), and texts."""

    tables: set[str]
    columns: set[tuple[str, str]]
    texts: set[str]


def gold_of(query: str, database: Database) -> Gold:
    """Read a query. A column without a table is of the first one of its FROM that has it."""
    columns = {table.name.casefold(): {c.name.casefold() for c in table.columns} for table in database.tables}
    tables, named, texts = set(), set(), set()
    tree = sqlglot.parse_one(query.rstrip("; "), read="sqlite")
    for table in tree.find_all(exp.Table):
        tables.add(table.name.casefold())
    for scope in traverse_scope(tree):
        sources = {
            name.casefold(): one.name.casefold() for name, one in scope.sources.items() if isinstance(one, exp.Table)
        }
        for column in scope.columns:
            name, of = column.name.casefold(), column.table.casefold()
            there = [sources[of]] if of in sources else [t for t in sources.values() if name in columns.get(t, ())]
            if there and name in columns.get(there[0], ()):
                named.add((there[0], name))
            elif column.this.quoted and not of:
                texts.add(column.name)  # SQLite takes "x" for a text where no column is called so
    texts |= {str(one.this) for one in tree.find_all(exp.Literal) if one.is_string}
    return Gold(tables & columns.keys(), named, {text.strip("%") for text in texts if text.strip("%")})


def measure(
    rows: list[dict[str, Any]], folder: Path, settings: SchemaPromptConfig, tokenizer: Tokenizer
) -> list[float]:
    """Return the figures of one setting."""
    builder = SchemaPrompt(settings)
    tables, columns, whole, texts, tokens = [], [], [], [], []
    by_database: dict[str, list[bool]] = defaultdict(list)
    started = time.monotonic()
    for row in rows:
        database = builder.database(folder / f"{row['db_id']}.sqlite")
        given = shown(database, row["question"], settings)
        text = STYLES[settings.style](given, settings)
        there = {one.table.name.casefold(): {name.casefold() for name in one.columns} for one in given}
        gold: Gold = row["gold"]
        missing_tables = gold.tables - there.keys()
        missing = {(table, column) for table, column in gold.columns if column not in there.get(table, ())}
        tables.append(1 - len(missing_tables) / max(1, len(gold.tables)))
        columns.append(1 - len(missing) / max(1, len(gold.columns)))
        whole.append(not missing and not missing_tables)
        by_database[row["db_id"]].append(whole[-1])
        texts += [one in text for one in gold.texts if joined(text_words(one)) in database.values.by_words]
        tokens.append(len(tokenizer.encode(text).ids))
    seconds = time.monotonic() - started
    mean = [fmean(of_one) for of_one in by_database.values()]
    return [*(100 * fmean(part) for part in (tables, columns, whole, mean, texts)), fmean(tokens), max(tokens), seconds]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--tokenizer", type=Path, required=True)
    parser.add_argument("--held-out", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--only", nargs="*", default=[], help="settings, by their names")
    parser.add_argument("--leave-out", nargs="*", default=[], help="databases")
    options = parser.parse_args()
    rows = [json.loads(line) for line in (options.data / "train.jsonl").open(encoding="utf-8")]
    held = set(random.Random(options.seed).sample(sorted({row["db_id"] for row in rows}), options.held_out))
    rows = [row for row in rows if (row["db_id"] in held) != options.all and row["db_id"] not in options.leave_out]
    folder = options.data / "databases"
    reader = SchemaPrompt(ALL)
    for row in rows:
        row["gold"] = gold_of(row["answer"], reader.database(folder / f"{row['db_id']}.sqlite"))
    tokenizer = Tokenizer.from_file(str(options.tokenizer))
    print(f"{len(rows)} questions on {len({row['db_id'] for row in rows})} databases")
    head = ("tables", "columns", "all", "mean", "texts", "tokens", "largest", "s")
    print("setting".ljust(32) + "".join(f"{title:>9}" for title in head))
    for name, settings in SETTINGS.items():
        if not options.only or name in options.only:
            *shares, mean, largest, seconds = measure(rows, folder, settings, tokenizer)
            cells = "".join(f"{share:9.1f}" for share in shares)
            print(f"{name:32}{cells}{mean:9.0f}{largest:9.0f}{seconds:9.1f}", flush=True)


if __name__ == "__main__":
    main()
